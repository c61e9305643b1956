"""The control groups of runs, which hold them together and limit their memory, and the memory watch if these are missing."""

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
"""Seconds until removing a group is tried again if something in it would not die."""


class RunCgroups:
    """The control groups of one spool's runs. `guarded` calls a function for the event loop, and reports what fails in it."""

    def __init__(self, spool: Spool, groups: Groups, guarded: Callable[..., None]) -> None:
        self._spool = spool
        self._groups = groups
        self._guarded = guarded
        self._oom_kills = OomKills()
        self._removals: dict[RunKey, asyncio.TimerHandle] = {}
        self._more: dict[RunKey, int] = {}
        """MiB that runs may use in addition to what they asked for, for their former device memory."""
        self.limits: dict[RunKey, tuple[int | str, int]] = {}
        """Runs that have a process and a memory limit that the kernel does not enforce."""

    def close(self) -> None:
        for timer in self._removals.values():
            timer.cancel()

    def kills_so_far(self) -> int:
        """Return how often this node's kernel has killed a process because memory ran out."""
        return self._oom_kills.read_recent()

    def path(self, key: RunKey) -> str:
        """Return the path of the run's control group; empty if it has none."""
        return self._groups.path(self._name(key))

    def make(self, key: RunKey, memory_mib: int) -> str:
        """Make the control group of a run that is going to start. Raises OSError."""
        return self._groups.make(self._name(key), memory_mib and memory_mib + self._more.get(key, 0))

    def allow(self, record: RunRecord, more: int) -> None:
        """Let a run use this many bytes in addition to what it asked for."""
        key = record.key
        if record.share is not None:
            more = max(more, record.share.parked_mib << 20)
        mib = -(-more // (1 << 20))
        if record.memory_mib and self._more.get(key, 0) != mib:
            self._more[key] = mib
            with suppress(OSError):  # it has no group
                self._groups.limit_memory(self._name(key), record.memory_mib + mib)
            if key in self.limits:
                self.limits[key] = self.limits[key][0], (record.memory_mib + mib) << 20

    def hold(self, record: RunRecord) -> None:
        """Limit the memory of a run that has its process now."""
        if record.pid and record.memory_mib:
            name = self._name(record.key)
            if not self._groups.is_limited(name):
                group = self._groups.path(name) if self._groups.is_alive(name) else record.pid
                self.limits[record.key] = group, (record.memory_mib + self._more.get(record.key, 0)) << 20

    def adopt(self, record: RunRecord) -> None:
        """Take over a run of an earlier agent, which may have had other settings."""
        self.allow(record, record.park.most_bytes)
        with suppress(OSError):  # it has no group
            self._groups.limit_memory(
                self._name(record.key), record.memory_mib and record.memory_mib + self._more.get(record.key, 0)
            )
        self.hold(record)

    def kill(self, key: RunKey) -> None:
        """Kill all processes in the run's control group."""
        self._groups.kill(self._name(key))

    def is_oom_killed(self, record: RunRecord, event: Exited, ours: bool) -> bool:
        """Whether the kernel killed it because memory ran out; `ours`: we had told it to end, or were about to."""
        kills = self._groups.oom_kills(self._name(record.key))
        if kills is not None:
            return kills > 0
        return not ours and exit_status.is_killed(event) and self._oom_kills.read() > record.oom_kills

    def release(self, key: RunKey, delay: float = 0.0) -> None:
        """Remove the group of a run that has ended, after `delay` seconds. The next agent removes groups that remain."""
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
        """Return the run's name at its launcher."""
        return f"{self._spool.short_id}/{key.name}"
