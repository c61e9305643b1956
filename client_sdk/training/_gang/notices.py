"""Notices by which the ranks of a gang coordinate a stop, and the channels that carry them.

A notice only grows: a fixed bound does not change, and nothing in it is retracted. So it makes no difference over how many
channels a notice travels, how late it arrives, or how many times.

There are two channels: small files in the checkpoint directory, and the store of the job's own process group. The files need a
directory that all nodes of the gang share, and the number of the launch, which distinguishes them from those of other launches.
The store needs torch.distributed, which this module never imports: it uses the module if the program has imported it.
"""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from client_sdk.training._gang.ranks import Ranks

if TYPE_CHECKING:
    from ebb_inject.ebb_hook.store_connection import StoreConnection

DONE = 1 << 62
"""The bound of a rank that has finished its loop: greater than any boundary."""


class Notice(NamedTuple):
    """A rank's statement about a stop. A rank that has sent any notice has entered its Checkpointer."""

    bound: int | None = None
    """The last boundary that the rank reaches without knowing the common one; None: not fixed yet."""
    ready: bool = False
    """The rank has reached the common boundary and captured its state. It takes part in no further collective."""
    left: bool = False
    """The rank is exiting, or has exited, before its work was done."""
    beat: int = 0
    """Grows while the rank lives, once a stop is known."""


def merge(notices: list[Notice]) -> Notice | None:
    """All that a rank has said over several channels."""
    if not notices:
        return None
    bound = next((notice.bound for notice in notices if notice.bound is not None), None)
    return Notice(bound, any(n.ready for n in notices), any(n.left for n in notices), max(n.beat for n in notices))


class Channel(Protocol):
    """A way to the other ranks. Every method may raise OSError or RuntimeError while the way is blocked."""

    def say(self, notice: Notice) -> None: ...
    def hear(self, rank: int) -> Notice | None: ...
    def ask(self) -> None:
        """Tells all ranks that one of them was asked to stop."""

    def is_asked(self) -> bool: ...


class FileChannel:
    """Files in the checkpoint directory. `launch` distinguishes one use of the Checkpointer from all others."""

    def __init__(self, directory: Path, name: str, ranks: Ranks, launch: str) -> None:
        self._directory = directory
        self._name = name
        self._ranks = ranks
        self._launch = launch
        self._asked = directory / f".{name}.{launch}.asked"

    def open(self) -> None:
        """Creates the files that others look for. NFS remembers for half a minute that a file is missing."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._remove_old(f".{self._name}{self._ranks.tag(self._ranks.own)}.", ".notice")
        self._remove_old(f".{self._name}.", ".asked")
        self._asked.open("ab").close()
        self.say(Notice())

    def say(self, notice: Notice) -> None:
        path = self._path(self._ranks.own)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(notice), encoding="ascii")
        new.replace(path)

    def hear(self, rank: int) -> Notice | None:
        try:
            return Notice(*json.loads(self._path(rank).read_text(encoding="ascii")))
        except (OSError, ValueError, TypeError):
            return None

    def ask(self) -> None:
        with self._asked.open("r+b") as file:
            file.write(b"1")  # every rank writes the same byte

    def is_asked(self) -> bool:
        try:
            return bool(self._asked.read_bytes())  # opening a file makes NFS ask its server; the cached size alone may be stale
        except OSError:
            return False

    def _path(self, rank: int) -> Path:
        return self._directory / f".{self._name}{self._ranks.tag(rank)}.{self._launch}.notice"

    def _remove_old(self, begin: str, end: str) -> None:
        """Removes what earlier runs left. Another rank of this run may still read what an earlier use of the name left."""
        run = self._launch.partition(".")[0]
        for path in self._directory.iterdir():
            if path.name.startswith(begin) and path.name.endswith(end):
                found = path.name.removeprefix(begin).partition(".")[0]
                if found.isdigit() and found < run:
                    path.unlink(missing_ok=True)


class StoreChannel:
    """The key-value store by which the ranks of a process group find each other. `store` belongs to this channel alone."""

    def __init__(self, store: Any, own: int, prefix: str) -> None:
        self._store = store
        self._own = own
        self._prefix = prefix

    def say(self, notice: Notice) -> None:
        self._store.set(f"{self._prefix}/{self._own}", json.dumps(notice))

    def hear(self, rank: int) -> Notice | None:
        found = self._get(f"{self._prefix}/{rank}")
        return None if found is None else Notice(*json.loads(found))

    def ask(self) -> None:
        self._store.set(f"{self._prefix}/asked", "1")

    def is_asked(self) -> bool:
        return self._get(f"{self._prefix}/asked") is not None

    def _get(self, key: str) -> bytes | None:
        """Without waiting for the key, as `get` alone would."""
        if not self._store.check([key]):
            return None
        found: bytes = self._store.get(key)
        return found


def open_store_channel(ranks: Ranks, prefix: str, opening: Callable[["StoreConnection"], None]) -> StoreChannel | None:
    """The store of the default process group, if the program has initialized one of all these ranks. `opening` is given the
    connection before it is opened, for another thread to interrupt what waits for the store."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None:
        return None
    with suppress(Exception):  # half imported, not initialized, about to be destroyed: there is no group to use
        if c10d.is_initialized() and (c10d.get_rank(), c10d.get_world_size()) == (ranks.own, ranks.world):
            from ebb_inject.ebb_hook.store_connection import StoreConnection  # which a process without a group does not need

            connection = StoreConnection(c10d._get_default_store())
            opening(connection)
            return StoreChannel(connection.open(), ranks.own, prefix)
    return None


class StopFile(NamedTuple):
    """The agent's information about a stop, written before the signal."""

    reason: str
    grace: float
    """Seconds from the stop to the kill."""


def read_stop_file(path: Path) -> StopFile | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return StopFile(str(found["reason"]), float(found["grace_s"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
