"""Ends runs before their time: a signal and a grace period, and then the kill; or the kill at once, where memory is wanted."""

import asyncio
import json
import logging
import signal
import time
from collections.abc import Callable
from dataclasses import replace

from node_agent.jobs.confinement import Holding
from node_agent.jobs.environment import Paths
from node_agent.jobs.launcher.spawn import savers_of
from node_agent.jobs.model import RunKey, RunPhase, RunRecord
from node_agent.jobs.processes import kill_group, led_by, terminate_group
from node_agent.jobs.spool.spool import Spool

log = logging.getLogger(__name__)


class Stopping:
    """Of the runs of one spool. `guarded` calls a function for the event loop, and tells of what fails in it."""

    def __init__(self, spool: Spool, holding: Holding, paths: Paths, guarded: Callable[..., None]) -> None:
        self._spool = spool
        self._holding = holding
        self._paths = paths
        self._guarded = guarded
        self.deadlines: dict[RunKey, asyncio.TimerHandle] = {}
        """When a run that has its signal is killed."""

    def close(self) -> None:
        """Kills nobody from here on."""
        for timer in self.deadlines.values():
            timer.cancel()

    def press(self, record: RunRecord, deadline: float) -> None:
        """Terminates a run that has a process, and kills it at the deadline. Asked again, it sets the new deadline alone."""
        self.over(record.key)
        if deadline <= time.monotonic():
            self._kill(record.key)
            return
        loop = asyncio.get_running_loop()
        self.deadlines[record.key] = loop.call_at(deadline, self._guarded, self._kill, record.key)
        self._tell_why(record, deadline)
        if not record.signalled:
            log.info("run %s: terminating, %.1f s left", record.key, deadline - time.monotonic())
            # Noted afterwards. Killed in between, the agent signals twice; the other way round a run might never learn
            # that it is to save its work.
            self.signal(record, signal.SIGTERM)
            self._spool.remember([replace(record, signalled=True)])

    def over(self, key: RunKey) -> None:
        """There is no deadline for it any more."""
        if (timer := self.deadlines.pop(key, None)) is not None:
            timer.cancel()

    def exceeded(self, key: RunKey, used: int) -> None:
        """A run uses more memory than it asked for: so many bytes."""
        record = self._spool.runs.get(key)
        if record is None or record.phase is RunPhase.ENDED:
            return
        if not record.out_of_memory:
            log.info("run %s: killing it: it uses %d MiB and asked for %d MiB", key, used >> 20, record.memory_mib)
            self._spool.remember([replace(record, out_of_memory=True)])
        self.signal(record, signal.SIGKILL)

    def signal(self, record: RunRecord, signum: int) -> None:
        """Sends SIGTERM to a run's processes, its leader gone or not, or SIGKILL, also to those that left its process group."""
        if led_by(record.pid, record.start_ticks):
            if signum == signal.SIGTERM:
                terminate_group(record.pid, savers_of(self._paths.folder(record.key)))
            else:
                kill_group(record.pid, signum)
        if signum == signal.SIGKILL:
            self._holding.kill(record.key)

    def _kill(self, key: RunKey) -> None:
        record = self._spool.runs[key]
        if record.phase is not RunPhase.ENDED:
            log.info("run %s: its grace period is over, killing it", key)
            self.signal(record, signal.SIGKILL)

    def _tell_why(self, record: RunRecord, deadline: float) -> None:
        """For the run to read. It is stopped all the same where that cannot be written."""
        assert record.stop_received is not None
        grace = round(deadline - record.stop_received, 3)
        why = {"reason": record.stop_reason.name.lower(), "cause_job": record.stop_cause, "grace_s": grace}
        path = self._paths.stop(record.key)
        new = path.with_suffix(".new")
        try:
            new.write_text(json.dumps(why), encoding="utf-8")
            new.replace(path)
        except OSError as error:
            log.warning("run %s: cannot be told why it is stopped: %s", record.key, error)
