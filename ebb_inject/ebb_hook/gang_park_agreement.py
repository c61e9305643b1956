"""How the ranks of a gang on several nodes agree on the step after which all of them park, without their agents.

Each agent gives the processes of its node the number of the park, which is the same on all nodes. The ranks then agree through
the store of the job's process group:

1. A rank announces that it was asked, once the training has found that it can park. It delays no other rank.
2. Once all ranks have announced that, each fixes a *bound*: a step that it has not completed, and that it does not pass before
   it knows the bounds of all ranks.
3. The greatest of the bounds is the *common* step. After it, each rank moves its memory, and announces that.
4. Once all ranks have moved, they are parked. If one of them cannot move, all move their memory back and continue.

A thread of each rank does this, since the training itself may be inside a collective that waits for another rank. A rank only
adds to what it has announced about a park, and never returns to an agreement that it has left. ADR 58 shows why this is right.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING

from .control import PARK_TOGETHER, Refused
from .gang_park_store import Notice, Ranks, process_group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .control import Control, Request
    from .gang_park_store import Group
    from .steps import Steps

_ASKED = 5.0
"""Seconds until all ranks must have been asked. Until then the training continues as usual."""
_ABSENT = 2.0
"""Seconds until the threads of all ranks must have announced themselves."""
_HOLD = 10.0
"""Maximum seconds for which the training waits at its bound, and after its move."""
_TICK = 0.02
"""Seconds between two checks of the training while it waits."""
_IDLE = 1.0
"""Seconds after which the thread looks for a new process group."""
_SHORTEST, _LONGEST, _GROWTH = 0.001, 0.02, 1.2
"""Seconds between two looks into the store while there is a park to agree on."""
_KEPT = 8
"""Number of ended parks that are remembered."""
_ENDING = 2.0
"""Seconds for which the end of the process waits for the thread, and then once more, when its connection is closed."""
_TAKEN_BACK = "its node does not want it any more"
_ANOTHER = "its node asks for another park"


class _Park:
    """A park that was requested of this process."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.began = monotonic()
        self.counter: Steps | None = None
        """The counter of the steps of the bound."""
        self.bound: int | None = None
        self.common: int | None = None
        self.moved = False
        """This rank has moved its memory."""
        self.all_moved = False
        self.has_said = False
        """The other ranks can read that this one knows that all have moved."""
        self.all_know = False
        self.over = ""
        """Why this rank has left the agreement."""


class Together:
    """The agreements of this process. The methods are for the training, in the main thread."""

    def __init__(self, control: Control, is_first: bool) -> None:
        """`is_first`: the process belongs to the first task of the gang, which has the store of the process group."""
        self._control = control
        self._is_first = is_first
        self._counter: Steps | None = None
        """The step counter of a training that can park, as found at its last boundary with a request; None: it cannot, or that
        is unknown."""
        self._changed = threading.Condition()
        self._now: _Park | None = None
        self._past: tuple[int, ...] = ()
        self._is_parked = self._closing = False
        self._ranks = Ranks()
        self._thread = threading.Thread(target=self._run, name="ebb-park", daemon=True)
        self._thread.start()

    def parks_after(self, request: Request, counter: Steps | None, step: int) -> bool:
        """Whether this rank parks after the step that it has completed. Waits at its bound until that is known.

        Raises Refused if the ranks cannot park together, or have not agreed in time: the training continues."""
        group = process_group()
        if group is not None and group.world > 1 and counter is None:
            raise Refused(f"the program counts no steps, and {group.world} ranks must park after the same one")
        with self._changed:
            park = self._begin_park(request.at_step)
            if self._counter is not counter:
                self._counter = counter
                self._control.wake()
            since = monotonic()
            while not park.over:
                if park.bound is None:
                    return group is None or group.world == 1
                if step < park.bound:
                    return False
                if park.counter is not counter:
                    self._leave(park, "the program has begun to count its steps by itself")
                elif self._is_taken_back(park):
                    self._leave(park, _TAKEN_BACK)
                elif park.common is not None:
                    return step >= park.common
                elif monotonic() - since >= _HOLD:
                    self._leave(park, f"other ranks have not said within {_HOLD:g} s after which step they can park")
                else:
                    self._changed.wait(_TICK)
            raise Refused(park.over)

    def may_stop(self, number: int) -> None:
        """Wait, with the memory moved, until the process may be stopped: all ranks have moved, and can read that this one knows
        that. In the first task all of them must have announced the same, because the store is stopped with it.

        Raises Refused if a rank does not move, or is not heard from in time, or another park is requested by now: the memory
        must then be moved back."""
        with self._changed:
            if (park := self._now) is None or park.number != number:
                raise Refused(_ANOTHER)
            if park.bound is None and not park.over:
                return  # the tasks are independent
            park.moved = True
            self._control.wake()
            since = monotonic()
            while not park.over:
                if park.has_said and (park.all_know or not self._is_first):
                    return
                if self._is_taken_back(park):
                    self._leave(park, _TAKEN_BACK)
                elif monotonic() - since >= _HOLD:
                    missing = "that they know it" if park.all_moved else "that their memory is moved"
                    self._leave(park, f"other ranks have not said within {_HOLD:g} s {missing}")
                else:
                    self._changed.wait(_TICK)
            raise Refused(park.over)

    @contextmanager
    def while_parked(self) -> Iterator[None]:
        """Inside this context, the training waits for requests, and the thread does not."""
        self._set_parked(True)
        try:
            yield
        finally:
            self._set_parked(False)

    def note_refusal(self, number: int, why: str) -> None:
        """Note that the training does not park, and why. It must reach a boundary before it agrees to another park."""
        with self._changed:
            self._counter = None
            self._end_park(number, why)

    def note_resume(self, number: int) -> None:
        """Note that the training continues after this park. The next one may have begun."""
        with self._changed:
            self._end_park(number, "this park is over: the process has resumed since")

    def note_other_request(self) -> None:
        """Note that the agent has requested something else."""
        with self._changed:
            if self._now is not None and self._is_taken_back(self._now):
                self._leave(self._now, _TAKEN_BACK)

    def note_passed_boundary(self, why: str = _TAKEN_BACK) -> None:
        """Note that the training passes a boundary without asking whether it parks there."""
        with self._changed:
            if self._now is not None:
                self._leave(self._now, why)

    def close(self) -> None:
        """End the thread, because the process ends. The other ranks need not wait for it."""
        with self._changed:
            if self._now is not None:
                self._leave(self._now, "the process ends")
            self._closing = True
            self._changed.notify_all()
        self._control.wake()
        self._thread.join(_ENDING)
        if self._thread.is_alive():  # it must not return from the store while the interpreter ends
            self._ranks.interrupt()
            self._thread.join(_ENDING)

    # ---- in both threads, with the lock ------------------------------------------------------------------------------------

    def _begin_park(self, number: int) -> _Park:
        if self._now is None or self._now.number != number:
            if number in self._past:
                raise Refused("this park is over: this rank has left it")
            if self._now is not None:
                self._leave(self._now, _ANOTHER)
            self._now = _Park(number)
            self._control.wake()
        return self._now

    def _end_park(self, number: int, why: str) -> None:
        if self._now is not None and self._now.number == number:
            self._leave(self._now, why)
        elif number not in self._past:
            self._leave(_Park(number), why)  # before the thread has seen it

    def _leave(self, park: _Park, why: str) -> None:
        if not park.over:
            park.over = why
            self._past = (*self._past, park.number)[-_KEPT:]
            self._changed.notify_all()
            self._control.wake()

    def _is_taken_back(self, park: _Park) -> bool:
        """Whether the last request is another one."""
        request = self._control.request()
        return request is not None and (request.command, request.at_step) != (PARK_TOGETHER, park.number)

    def _set_parked(self, parked: bool) -> None:
        with self._changed:
            self._is_parked = parked
            self._changed.notify_all()

    def _notice(self) -> Notice:
        park = self._now
        if park is None or park.over or (park.bound is None and self._counter is None):
            return Notice(past=self._past)
        return Notice(park.number, park.bound, park.moved, park.all_moved, self._past)

    # ---- the thread --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = _IDLE
        while self._sleep(pause):
            try:
                self._read_request()
                while self._talk():
                    pause = _IDLE
            except Exception as error:
                self._ranks.forget()
                with self._changed:
                    if self._now is not None and not self._closing:
                        self._leave(self._now, f"the store of the process group fails: {type(error).__name__}: {error}"[:300])
            with self._changed:
                is_idle = self._now is None or bool(self._now.over)
            pause = _IDLE if is_idle else _SHORTEST if pause == _IDLE else min(pause * _GROWTH, _LONGEST)
        if self._now is not None:
            with suppress(Exception):
                self._talk()  # about the park that it has left

    def _sleep(self, seconds: float) -> bool:
        """Sleep; return whether the process continues."""
        with self._changed:
            while self._is_parked and not self._closing:
                self._changed.wait(_IDLE)
            if self._closing:
                return False
        self._control.look_out(seconds)
        with self._changed:
            if not self._is_parked:  # else the wakeup was meant for the training
                self._control.drain()
            return not self._closing

    def _read_request(self) -> None:
        """Note what the agent requests."""
        with self._changed:
            if self._is_parked:
                return
            request, park = self._control.request(), self._now
            if request is not None and request.command == PARK_TOGETHER and request.at_step not in self._past:
                self._begin_park(request.at_step)
            elif park is not None and not park.over and self._is_taken_back(park):
                self._leave(park, _TAKEN_BACK)

    def _talk(self) -> bool:
        """Announce news, read the other ranks' notices, and act on them. Return whether there is more to announce."""
        if (group := process_group()) is None:
            self._ranks.forget()
            with self._changed:
                if self._now is not None and self._now.bound is not None:
                    self._leave(self._now, "its process group is gone")
            return False
        if group.world == 1:
            return False
        with self._changed:
            own, park = self._notice(), self._now
        self._ranks.say(group, own)
        if park is None or park.over:
            return False
        if own.knows and not park.has_said:
            with self._changed:
                park.has_said = True
                self._changed.notify_all()
        others = self._ranks.read_notices(group)
        with self._changed:
            if park is not self._now or park.over:
                return True
            self._follow(park, group, others)
            return self._notice() != own

    def _follow(self, park: _Park, group: Group, others: dict[int, Notice | None]) -> None:
        """Act on the notices of the other ranks."""
        waited = monotonic() - park.began
        there = {rank: notice for rank, notice in others.items() if notice is not None}
        for rank, notice in there.items():
            if park.number in notice.past:
                self._leave(park, f"rank {rank} of {group.world} does not park, or not now")
                return
        asked = [notice for notice in there.values() if notice.number == park.number]
        if park.bound is None:
            if len(asked) == len(others) and self._counter is not None:
                park.counter, park.bound = self._counter, self._counter.step + 1
            elif waited >= _ABSENT and len(there) < len(others):
                rank = min(set(others) - set(there))
                self._leave(park, f"rank {rank} of {group.world} is not there: it runs without the hook, or has taken no step")
            elif waited >= _ASKED:
                silent = [rank for rank, notice in there.items() if notice.number != park.number]
                who = f"rank {silent[0]}" if silent else "this rank"
                self._leave(park, f"{who} of {group.world} was not asked to park within {_ASKED:g} s, or came to no step")
        elif park.common is None:
            bounds = [notice.bound for notice in asked if notice.bound is not None]
            if len(bounds) == len(others):
                park.common = max(park.bound, *bounds)
        elif len(asked) == len(others):
            park.all_moved = park.all_moved or (park.moved and all(notice.moved for notice in asked))
            park.all_know = all(notice.knows for notice in asked)
        self._changed.notify_all()
