"""Kills the processes of runs that the spool does not know, because they were recorded in another one."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from node_agent.processes import stray_processes
from node_agent.processes.cgroups import Groups
from node_agent.processes.launcher.client import Connected
from node_agent.processes.process_groups import kill_group, start_ticks
from node_agent.processes.process_watch import GroupWatch
from node_agent.run_state.model import Process, RunPhase
from node_agent.spool.spool import Spool

log = logging.getLogger(__name__)


class Evictions:
    """`guarded` calls a function for the event loop, and reports what fails in it."""

    def __init__(self, state: Path, spool: Spool, groups: Groups, guarded: Callable[..., None]) -> None:
        self.cleared = asyncio.Event()
        """Set once a launcher is there, and nothing is alive any more of runs that the spool does not know."""
        self._state = state
        self._spool = spool
        self._groups = groups
        self._guarded = guarded
        self._watches: dict[Process, GroupWatch] = {}

    def begin(self, connected: Connected) -> None:
        """Begin with all runs of this launcher and, the first time, with those that no launcher has any more."""
        own = self._spool.short_id
        strangers = {process: name for name, process in connected.others.items()}
        for key, process in connected.runs.items():
            record = self._spool.runs.get(key)
            if record is None or record.phase is RunPhase.ENDED:
                strangers[process] = f"{own}/{key.name}"
        if not self.cleared.is_set():
            live = {f"{own}/{record.key.name}" for record in self._spool.live()}
            processes = [Process(record.pid, record.start_ticks) for record in self._spool.live() if record.pid]
            strangers |= stray_processes.find(self._state, own, processes)
            strangers |= stray_processes.find_in_groups(self._state, own, self._groups, live, set(strangers.values()))
        watches = {
            process: GroupWatch(*process, partial(self._guarded, self._handle_exit, process, name), self._groups.path(name))
            for process, name in strangers.items()
            if process not in self._watches
        }
        self._watches |= watches  # all of them, before the first is found to be gone
        for process, watch in watches.items():
            log.warning("run %s: the spool does not know it; killing it (pid %d)", strangers[process], process.pid)
            if start_ticks(process.pid) == process.start_ticks:
                kill_group(process.pid)
            self._groups.kill(strangers[process])  # a process that was found only in a group may lead no process group
            watch.begin()
        self._settle()

    def close(self) -> None:
        for watch in self._watches.values():
            watch.close()

    def _handle_exit(self, process: Process, name: str) -> None:
        self._watches.pop(process, None)
        self._groups.remove(name)
        self._settle()

    def _settle(self) -> None:
        if not self._watches and not self.cleared.is_set():
            stray_processes.note_settled(self._state, self._spool.short_id)
            self.cleared.set()
