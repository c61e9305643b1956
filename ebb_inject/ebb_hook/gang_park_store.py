"""Exchanges notices about a park between the ranks of a gang, through the store of the program's process group."""

from __future__ import annotations

import json
import sys
import weakref
from typing import Any, NamedTuple

from .control import Refused
from .store_connection import StoreConnection

_OTHERS = {"horovod.torch": "Horovod", "mpi4py.MPI": "MPI"}
"""Modules by which ranks communicate without a process group of PyTorch."""
_C10D = "torch.distributed.distributed_c10d"


class Notice(NamedTuple):
    """A rank's notice. A rank that has published any notice has a thread that listens."""

    number: int = 0
    """Number of the park that was requested of it; 0: none."""
    bound: int | None = None
    """The last step that it completes without knowing the common one; None: not fixed yet."""
    moved: bool = False
    """It has completed the common step, and moved its memory."""
    knows: bool = False
    """It knows that all ranks have moved."""
    past: tuple[int, ...] = ()
    """The parks that it has left."""


class Group(NamedTuple):
    """The process group of all ranks."""

    c10d: Any
    rank: int
    world: int


_forked_from_rank = False
"""Whether this process was forked from a rank, and knows a process group to which it does not belong."""


def note_fork() -> None:
    """Runs in a forked child."""
    global _forked_from_rank
    c10d: Any = sys.modules.get(_C10D)
    _forked_from_rank = c10d is not None and bool(c10d.is_initialized())


def process_group() -> Group | None:
    """Return the program's process group; None if it has none. Raises Refused if its ranks also communicate in another way."""
    c10d: Any = sys.modules.get(_C10D)
    if c10d is not None and c10d.is_initialized():
        if _forked_from_rank:
            raise Refused("the process was forked from a rank of a gang")
        return Group(c10d, c10d.get_rank(), c10d.get_world_size())
    for name, shown in _OTHERS.items():
        if name in sys.modules:
            raise Refused(f"ranks that exchange by {shown} have no store of PyTorch in which they could agree on a step")
    return None


class Ranks:
    """The other ranks, for the thread of this one. Each rank has one key in the store, which it overwrites."""

    def __init__(self) -> None:
        self._of: weakref.ref[Any] | None = None
        """The program's own connection to the store, which must not be kept alive here: the server may belong to it."""
        self._store: Any = None
        self._connection: StoreConnection | None = None
        self._said: Notice | None = None

    def forget(self) -> None:
        """Start from scratch with the next call."""
        self._of = self._store = self._said = None

    def interrupt(self) -> None:
        """Make a call that waits for the store raise an error. Called from another thread."""
        if self._connection is not None:
            self._connection.interrupt()

    def say(self, group: Group, notice: Notice) -> None:
        """Publish the notice. Raises what the store raises, and Refused if the process group has no store."""
        theirs = group.c10d._get_default_store()
        if theirs is None:
            raise Refused("the process group has no store")
        if self._of is None or self._of() is not theirs:
            self._connection = StoreConnection(theirs)
            self._store, self._of, self._said = self._connection.open(), weakref.ref(theirs), None
        if notice != self._said:
            self._store.set(_key(group.rank), json.dumps(notice))
            self._said = notice

    def read_notices(self, group: Group) -> dict[int, Notice | None]:
        """Return the last notices of the others, by rank."""
        others = [rank for rank in range(group.world) if rank != group.rank]
        keys = [_key(rank) for rank in others]
        store = self._store
        if not store.check(keys):  # `get` waits for a key that is missing
            return {rank: self._read_notice(key) if store.check([key]) else None for rank, key in zip(others, keys)}  # noqa: B905
        if store.has_extended_api():
            return {rank: _notice(found) for rank, found in zip(others, store.multi_get(keys))}  # noqa: B905 (Python 3.10)
        return {rank: self._read_notice(key) for rank, key in zip(others, keys)}  # noqa: B905 (`strict` is of Python 3.10)

    def _read_notice(self, key: str) -> Notice:
        return _notice(self._store.get(key))


def _key(rank: int) -> str:
    return f"ebb/park/{rank}"


def _notice(found: bytes) -> Notice:
    number, bound, moved, knows, past = json.loads(found)
    return Notice(number, bound, moved, knows, tuple(past))
