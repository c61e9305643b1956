"""How the ranks of a gang agree at which boundary all of them stop.

Once a rank knows of a stop, it fixes a bound: a boundary that it has not passed, and that it does not pass before it knows the
bounds of all ranks. The greatest of the bounds is the common boundary, at which all ranks stop. ADR 38 proves that they do.

A thread speaks and listens for the rank, since the training itself may be inside a collective that waits for another rank. The
thread looks for a stop a few times a second, and costs a step nothing.
"""

import logging
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from client_sdk.training._gang.notices import DONE, Channel, FileChannel, Notice, merge, open_store_channel, read_stop_file
from client_sdk.training._gang.ranks import Ranks

if TYPE_CHECKING:
    from ebb_inject.ebb_hook.store_connection import StoreConnection

T = TypeVar("T")

_log = logging.getLogger("client_sdk.training")

_uses: Counter[tuple[Path, str, int]] = Counter()
"""How often this process has entered a Checkpointer of a name: what is said in one use does not hold in the next."""

_IDLE = 0.25
"""Seconds between two looks for a stop. A rank that gets SIGTERM in Python code knows of it at once."""
_SHORTEST, _LONGEST = 0.005, 0.1
"""Seconds between two reads of the notices of the others, once a stop is known."""
_PATIENCE = 15.0
"""Seconds for which a rank waits for the others if the grace period is unknown."""
_SHARE = 0.5
"""The part of the grace period for which a rank waits for the others. The rest is for saving."""
_CONNECTING = 1.0
"""Seconds in which a channel must be found."""
_ENTERING = 3.0
"""Seconds for which a rank waits for one that has not entered its Checkpointer: SIGTERM has ended that program."""
_SILENT = 10.0
"""Seconds after which a rank counts as lost if its thread no longer sends notices."""
_BEAT = 1.0
"""Seconds between two signs of life."""
_LEAVING = 1.0
"""Seconds in which the training may leave by itself once its rank has given up."""
_CLOSING = 2.0
"""Seconds for the last notice of a rank to be written, and for the thread to end once its connection is closed."""


def agreement_of(
    directory: Path,
    name: str,
    ranks: Ranks,
    run: int,
    restarts: int,
    stop_file: Path | None,
    on_stop: Callable[[], None],
    next_boundary: Callable[[], int],
    abandon: Callable[[], None],
) -> "Agreement":
    """Begins an agreement for a rank that enters its Checkpointer. `run` is 0 if the ranks were started by hand: then they have
    their process group alone, as files of other launches may be in the directory."""
    _uses[directory, name, ranks.own] += 1
    launch = f"{run:06}.{restarts}.{_uses[directory, name, ranks.own]}"
    channels: list[Channel] = []
    if run:
        files = FileChannel(directory, name, ranks, launch)
        try:
            files.open()
            channels.append(files)
        except OSError as error:
            _log.warning("rank %d cannot agree with the others by files in %s: %s", ranks.own, directory, error)
    agreement = Agreement(ranks, channels, f"ebb/{name}/{launch}", stop_file, on_stop, next_boundary, abandon)
    agreement.start()
    return agreement


class Agreement:
    """One rank's part in agreeing where to stop, for one use of a Checkpointer.

    Public methods are for the main thread; `ask` also for a signal handler.
    """

    def __init__(
        self,
        ranks: Ranks,
        channels: list[Channel],
        group: str,
        stop_file: Path | None,
        on_stop: Callable[[], None],
        next_boundary: Callable[[], int],
        abandon: Callable[[], None],
    ) -> None:
        """`group` is the prefix of this agreement in the store of the process group, once there is one.

        The thread calls `on_stop` when it learns of a stop, and then `next_boundary`, which returns a boundary that the
        training has not passed. Afterwards the training must call `stops_at` at every boundary. `abandon` is called if the rank
        has given up and the training does not leave; it need not return.
        """
        self._ranks = ranks
        self._group = group
        self._in_group = False
        self._others = [rank for rank in ranks.together if rank != ranks.own]
        self._channels = channels
        self._stop_file = stop_file
        self._on_stop = on_stop
        self._next_boundary = next_boundary
        self._abandon = abandon
        self._changed = threading.Condition()
        self._own = Notice()
        self._heard: dict[int, tuple[Notice, float]] = {}
        """The last notice of each rank, and when it changed."""
        self._asked_at: float | None = None
        self._patience = _PATIENCE
        self._common: int | None = None
        self._gave_up_at: float | None = None
        self._closing = False
        self._connection: StoreConnection | None = None
        self._pid = os.getpid()
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # its put() may interrupt itself, as a signal handler does
        self._thread = threading.Thread(target=self._run, name="ebb-gang-stop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self) -> None:
        """This rank was asked to stop, so all ranks are."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        self._wake.put(None)

    def stops_at(self, boundary: int, wait: bool = True) -> bool | None:
        """Whether this rank, which was asked to stop and is at this boundary, stops there. None: unknown yet, if not `wait`.

        A rank also stops where it is if the others do not answer."""
        self.ask()
        with self._changed:
            if self._own.bound is None:
                self._tell(self._own._replace(bound=boundary))
            while self._common is None and not self._gives_up():
                if not wait:
                    return None
                self._changed.wait(_LONGEST)
            return self._common is None or self._gave_up_at is not None or boundary >= self._common

    def ready(self) -> None:
        """This rank is at the common boundary, has taken its state, and takes part in no collective any more."""
        with self._changed:
            self._tell(self._own._replace(ready=True))

    def wait_for_all(self) -> None:
        """Returns when all ranks are ready, or those that are not are lost."""
        with self._changed:
            while self._gave_up_at is None and not (self._all_ready() or self._is_hopeless()):
                self._changed.wait(_LONGEST)

    def close(self, done: bool) -> None:
        """This rank leaves its Checkpointer, and its thread ends. `done`: in good order, with nothing left to do."""
        if os.getpid() != self._pid:
            return  # a fork that leaves the block: it has no thread, and speaks for nobody
        with self._changed:
            if not done:
                self._tell(self._own._replace(left=True))
            elif self._own.bound is None:
                self._tell(self._own._replace(bound=DONE))
            self._closing = True
        self._wake.put(None)
        self._thread.join(_CLOSING)
        if self._thread.is_alive() and self._connection is not None:
            self._connection.interrupt()
            self._thread.join(_CLOSING)

    # ---- in both threads, with the lock ------------------------------------------------------------------------------------

    def _tell(self, notice: Notice) -> None:
        self._own = notice
        self._wake.put(None)

    def _gives_up(self) -> bool:
        if self._common is None and self._gave_up_at is None and self._is_hopeless():
            self._gave_up_at = time.monotonic()
            self._tell(self._own._replace(left=True))
        return self._gave_up_at is not None

    def _is_hopeless(self) -> bool:
        """Whether some rank is not going to say what this one waits for."""
        now = time.monotonic()
        waited = now - (self._asked_at or now)
        if waited >= self._patience or (waited >= _CONNECTING and not self._channels):
            return True
        if waited >= _ENTERING and len(self._heard) < len(self._others):
            return True
        return any(
            (notice.left and not notice.ready) or (self._awaits(rank) and now - since >= _SILENT)
            for rank, (notice, since) in self._heard.items()
        )

    def _awaits(self, rank: int) -> bool:
        """Whether there is something that this rank has yet to hear from another."""
        if rank not in self._heard:
            return True
        notice, _ = self._heard[rank]
        return notice.bound is None if self._common is None else not notice.ready

    def _all_ready(self) -> bool:
        return len(self._heard) == len(self._others) and all(notice.ready for notice, _ in self._heard.values())

    # ---- the thread --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asked: set[Channel] = set()
        said: dict[Channel, Notice] = {}
        pause = _IDLE
        while True:
            self._look_for_stop()
            closing = self._closing
            if self._asked_at is not None:
                self._on_stop()
                with self._changed:
                    self._fix_bound()
                asked |= {channel for channel in set(self._channels) - asked if self._call_succeeds(channel, channel.ask)}
            self._say(said)
            if closing:
                return
            if self._asked_at is not None:
                self._listen()
                pause = _SHORTEST if pause == _IDLE else min(pause * 1.2, _LONGEST)
            self._sleep(pause)

    def _sleep(self, seconds: float) -> None:
        try:
            self._wake.get(timeout=seconds)
            while True:
                self._wake.get_nowait()
        except queue.Empty:
            pass

    def _look_for_stop(self) -> None:
        if not self._in_group and (found := open_store_channel(self._ranks, self._group, self._note)) is not None:
            self._in_group = True
            self._channels = [*self._channels, found]
        if self._stop_file is not None and (stop := read_stop_file(self._stop_file)) is not None:
            # "gang": a task has failed, so there is nobody to agree with.
            self._patience = 0.0 if stop.reason == "gang" else stop.grace * _SHARE
        elif self._asked_at is not None or not any(self._try(channel, channel.is_asked) for channel in self._channels):
            return
        if self._asked_at is None:
            self._asked_at = time.monotonic()

    def _note(self, connection: "StoreConnection") -> None:
        self._connection = connection

    def _fix_bound(self) -> None:
        beat = int((time.monotonic() - (self._asked_at or 0.0)) / _BEAT)
        bound = self._next_boundary() if self._own.bound is None else self._own.bound
        self._own = self._own._replace(bound=bound, beat=beat)

    def _say(self, said: dict[Channel, Notice]) -> None:
        own = self._own
        for channel in self._channels:
            if said.get(channel) != own and self._call_succeeds(channel, partial(channel.say, own)):
                said[channel] = own

    def _listen(self) -> None:
        now = time.monotonic()
        heard = {rank: self._hear(rank) for rank in self._others if self._awaits(rank)}
        with self._changed:
            for rank, notice in heard.items():
                if notice is not None and (rank not in self._heard or self._heard[rank][0] != notice):
                    self._heard[rank] = notice, now
            bounds = [self._own.bound, *(notice.bound for notice, _ in self._heard.values())]
            known = [bound for bound in bounds if bound is not None]
            if self._common is None and self._gave_up_at is None and len(known) == len(self._others) + 1:
                self._common = max(known)
                # Each rank must announce itself again.
                self._heard = {rank: (notice, now) for rank, (notice, _) in self._heard.items()}
            late = self._gives_up() and now - (self._gave_up_at or now) >= _LEAVING
            self._changed.notify_all()
        if late:
            self._abandon()

    def _hear(self, rank: int) -> Notice | None:
        found = [self._try(channel, partial(channel.hear, rank)) for channel in self._channels]
        return merge([notice for notice in found if notice is not None])

    def _call_succeeds(self, channel: Channel, call: Callable[[], None]) -> bool:
        def attempt() -> bool:
            call()
            return True

        return bool(self._try(channel, attempt))

    def _try(self, channel: Channel, call: Callable[[], T]) -> T | None:
        """None if that fails. A channel that is broken for good, as a store without its server is, is used no more."""
        try:
            return call()
        except OSError:
            return None
        except Exception:
            self._channels = [other for other in self._channels if other is not channel]
            return None
