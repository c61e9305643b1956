"""What holds runs together, and to the memory that they asked for: their control groups, and the watch without these."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from node_agent.processes import exit_status
from node_agent.processes.cgroups import Groups
from node_agent.processes.memory_watch import OomKills
from node_agent.run_state.events import Exited
from node_agent.run_state.model import RunKey, RunPhase, RunRecord
from node_agent.spool.spool import Spool

_AGAIN = 30.0
"""Seconds until a group in which something would not die is tried again."""


class RunCgroups:
    """Of the runs of one spool. `guarded` calls a function for the event loop, and tells of what fails in it."""

    def __init__(self, spool: Spool, groups: Groups, guarded: Callable[..., None]) -> None:
        self._spool = spool
        self._groups = groups
        self._guarded = guarded
        self._oom_kills = OomKills()
        self._removals: dict[RunKey, asyncio.TimerHandle] = {}
        self._more: dict[RunKey, int] = {}
        """MiB that runs may use beside what they asked for, for what they had on their devices."""
        self.limits: dict[RunKey, tuple[int | str, int]] = {}
        """The runs that have a process and asked for so much memory, and that the kernel does not hold to it."""

    def close(self) -> None:
        for timer in self._removals.values():
            timer.cancel()

    def kills_so_far(self) -> int:
        """Of this node's kernel, for want of memory."""
        return self._oom_kills.lately()

    def path(self, key: RunKey) -> str:
        """Of its control group; empty where it has none."""
        return self._groups.path(self._name(key))

    def make(self, key: RunKey, memory_mib: int) -> str:
        """The control group of a run that is going to start. Raises OSError."""
        return self._groups.make(self._name(key), memory_mib and memory_mib + self._more.get(key, 0))

    def allow(self, record: RunRecord, more: int) -> None:
        """Lets a run use so many bytes beside what it asked for."""
        key = record.key
        if record.share is not None:
            more = max(more, record.share.parked_mib << 20)
        mib = -(-more // (1 << 20))
        if record.memory_mib and self._more.get(key, 0) != mib:
            self._more[key] = mib
            with suppress(OSError):  # it has no group
                self._groups.bound(self._name(key), record.memory_mib + mib)
            if key in self.limits:
                self.limits[key] = self.limits[key][0], (record.memory_mib + mib) << 20

    def hold(self, record: RunRecord) -> None:
        """A run that has its process now."""
        if record.pid and record.memory_mib:
            name = self._name(record.key)
            if not self._groups.bounded(name):
                group = self._groups.path(name) if self._groups.alive(name) else record.pid
                self.limits[record.key] = group, (record.memory_mib + self._more.get(record.key, 0)) << 20

    def adopt(self, record: RunRecord) -> None:
        """A run of an agent before this one, which may have had other settings."""
        self.allow(record, record.park.most_bytes)
        with suppress(OSError):  # it has no group
            self._groups.bound(self._name(record.key), record.memory_mib and record.memory_mib + self._more.get(record.key, 0))
        self.hold(record)

    def kill(self, key: RunKey) -> None:
        """All that is in its control group."""
        self._groups.kill(self._name(key))

    def starved(self, record: RunRecord, event: Exited, ours: bool) -> bool:
        """Whether the kernel has killed it for want of memory; `ours`: we have told it to end, or were about to."""
        kills = self._groups.oom_kills(self._name(record.key))
        if kills is not None:
            return kills > 0
        return not ours and exit_status.killed(event) and self._oom_kills.now() > record.oom_kills

    def release(self, key: RunKey, delay: float = 0.0) -> None:
        """A run that is over. Its group is removed in a moment, when that is kept; what is left of them, by the next agent."""
        self.limits.pop(key, None)
        self._more.pop(key, None)
        if self.path(key):
            loop = asyncio.get_running_loop()
            self._removals[key] = loop.call_later(delay, self._guarded, self._remove, key)

    def _remove(self, key: RunKey) -> None:
        del self._removals[key]
        record = self._spool.runs.get(key)
        if (record is None or record.phase is RunPhase.ENDED) and not self._groups.remove(self._name(key)):
            self.release(key, _AGAIN)

    def _name(self, key: RunKey) -> str:
        """As its launcher has it."""
        return f"{self._spool.short_id}/{key.name}"
