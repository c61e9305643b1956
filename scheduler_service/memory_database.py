"""The store in memory as the engine writes it and the API reads it: `database` with the functions of `store.memory`."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from scheduler_service.core.model import Job, JobEvent
from scheduler_service.core.model.tenants.exchange import Exchange, Posting
from scheduler_service.core.state.journal import Change
from scheduler_service.database import FileLimits, MarketReader, Reader, UserFiles, Writer
from scheduler_service.store import Loaded, memory
from scheduler_service.store.memory import Memory

R = TypeVar("R")


class MemoryWriter(Writer):
    """Writer over a store in memory, in one epoch."""

    def __init__(self, store: Memory, epoch: int, commit_no: int) -> None:
        super().__init__(store, epoch, commit_no)  # type: ignore[arg-type]  # it is its own engine
        self._memory = store

    def _write(self, changes: Sequence[Change], events: Sequence[JobEvent]) -> int:
        return memory.commit(self._memory, self._epoch, changes, events)

    def _outcome(self) -> str:
        return memory.outcome(self._memory, self._epoch, self._commit_no)

    def find_requests(self, requests: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        return memory.find_requests(self._memory, requests)

    def find_posted(self, requests: Collection[tuple[int, str]]) -> dict[tuple[int, str], Posting]:
        return memory.find_posted(self._memory, requests)

    def find_accepted(self, requests: Collection[tuple[int, str]]) -> dict[tuple[int, str], Exchange]:
        return memory.find_accepted(self._memory, requests)


class _MemoryReads:
    """Reads by the functions of `store.memory` that have the names of those of `store`."""

    _engine: Any

    def _read(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        found: R = getattr(memory, function.__name__)(self._engine, *args, **kwargs)
        return found


class MemoryReader(_MemoryReads, Reader):
    """Reader over a store in memory. It finds no tokens."""

    def __init__(self, store: Memory) -> None:
        super().__init__(store)  # type: ignore[arg-type]  # it is its own engine

    @property
    def market(self) -> MarketReader:
        return MemoryMarketReader(self._engine)


class MemoryMarketReader(_MemoryReads, MarketReader):
    """MarketReader over a store in memory."""


class MemoryUserFiles(_MemoryReads, UserFiles):
    """UserFiles over a store in memory."""

    def __init__(self, store: Memory, limits: FileLimits) -> None:
        super().__init__(store, limits)  # type: ignore[arg-type]  # it is its own engine


def open_for_leader(store: Memory, epoch: int) -> tuple[Loaded, Writer]:
    """Load the state for a new leader, and open its writer."""
    loaded = memory.load(store)
    return loaded, MemoryWriter(store, epoch, loaded.commit_no)
