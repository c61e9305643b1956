"""Handles the process of a run once it exists: it is warm, or it runs the program of its job, which is reported."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from node_agent.processes.launcher.client import Spawned
from node_agent.processes.run_cgroups import RunCgroups
from node_agent.run_state.events import Started
from node_agent.run_state.model import RunKey, RunPhase, RunRecord, clean
from node_agent.runs.starting import Starting
from node_agent.runs.warming import program_of
from node_agent.spool.spool import Spool

log = logging.getLogger(__name__)

PROGRAM_LIMIT = 4096
"""Bytes of a path, as in the kernel."""


class Beginning:
    """The beginnings of one spool's runs. `then` does something once the spool has kept a change: `started` is called with a
    run that runs its program, `press` with one that was told to stop meanwhile, `watch` with one that is not our child."""

    def __init__(
        self,
        spool: Spool,
        holding: RunCgroups,
        starting: Starting,
        reported: Callable[[], None],
        then: Callable[[Callable[[], None]], None],
        started: Callable[[RunRecord], None],
        press: Callable[[RunKey], None],
        watch: Callable[[RunKey], None],
    ) -> None:
        self._spool = spool
        self._holding = holding
        self._starting = starting
        self._reported = reported
        self._then = then
        self._started = started
        self._press = press
        self._watch = watch

    def handle_spawn(self, record: RunRecord, event: Spawned) -> None:
        if record.phase in (RunPhase.WARMING, RunPhase.STARTING) and self._starting.is_warm(record.key):
            record = replace(record, pid=event.pid, start_ticks=event.start_ticks)
            self._spool.remember([record])
            self._holding.hold(record)
            self._then(partial(self._starting.launch, record.key))
            if not event.child:
                self._then(partial(self._watch, record.key))
            return
        self._executes(record, event)

    def report_begin(self, record: RunRecord) -> None:
        """Report that a process that was warm runs the program of its job."""
        self._executes(record, Spawned(record.key, record.pid, record.start_ticks, True, program_of(record.pid)))

    def _executes(self, record: RunRecord, event: Spawned) -> None:
        phase = RunPhase.PARKING if record.to_park else RunPhase.RUNNING
        phase = RunPhase.STOPPING if record.phase is RunPhase.STOPPING else phase
        launch = record.launch
        restored = self._starting.dumps.restore_result(launch, event.restored)
        keeps = self._starting.dumps.keeps(launch)
        if launch is not None and not keeps and not (launch.checkpoint_signal or launch.checkpoint_command):
            launch = None
        record = replace(record, phase=phase, launch=launch, pid=event.pid, start_ticks=event.start_ticks)
        self._spool.report(record, Started(event.pid, record.log_path, clean(event.program, PROGRAM_LIMIT), restored))
        self._reported()
        self._starting.retries.forget(record.key)
        self._holding.hold(record)
        log.debug("run %s: started, pid %d", record.key, record.pid)
        self._then(partial(self._started, record))
        if phase is RunPhase.STOPPING:
            self._then(partial(self._press, record.key))
        if not event.child:
            self._then(partial(self._watch, record.key))
