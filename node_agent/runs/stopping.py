"""Stops runs: a save request, SIGTERM, and the kill when the grace period has ended; or an immediate kill, if they use too much
memory."""

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from node_agent.checkpoints.criu_dumps import Dumps
from node_agent.checkpoints.save_requests import Checkpointing
from node_agent.processes import job_files
from node_agent.processes.launcher.spawn import STOP_FILE, savers_of
from node_agent.processes.process_groups import is_led_by, kill_group, terminate_group
from node_agent.processes.run_cgroups import RunCgroups
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import RunKey, RunPhase, RunRecord, StopReason
from node_agent.run_state.save_values import SaveMeans
from node_agent.spool.spool import Spool

log = logging.getLogger(__name__)

_SAVED_LEAVES = 10.0
"""Maximum seconds from SIGTERM to the kill of a run that its checkpoint command has saved."""


class Stopping:
    """The stops of one spool's runs. `spawn` and `find` are those of `Checkpointing`. `guarded` calls a function for the event
    loop, and reports what fails in it. `saves` says what would save a run now."""

    def __init__(
        self,
        spool: Spool,
        holding: RunCgroups,
        paths: Paths,
        spawn: Callable[[RunRecord], None],
        find: Callable[[RunKey], None],
        dumps: Dumps,
        guarded: Callable[..., None],
        saves: Callable[[RunRecord], SaveMeans],
    ) -> None:
        self._spool = spool
        self._holding = holding
        self._paths = paths
        self._guarded = guarded
        self._saves = saves
        self.means: dict[RunKey, SaveMeans] = {}
        """The means by which a run could save when it got SIGTERM from this agent."""
        self.deadlines: dict[RunKey, asyncio.TimerHandle] = {}
        """Timers until a run that is being stopped is killed."""
        dumped = lambda record: dumps.why_not(record, holding.path(record.key)), dumps.dump_result
        self.checkpointing = Checkpointing(
            spool, holding, paths, spawn, find, self._terminate, self._shorten_grace, *dumped, guarded
        )

    def close(self) -> None:
        """Kill no run from here on."""
        for timer in self.deadlines.values():
            timer.cancel()
        self.checkpointing.close()

    def press(self, record: RunRecord, deadline: float) -> None:
        """Stop a run that has a process, and kill it at the deadline. A repeated call only sets the new deadline."""
        key = record.key
        self._no_deadline(key)
        if deadline <= time.monotonic():
            self._kill(key)
            return
        self.kill_at(record, deadline)
        self.tell_why(record, deadline)
        if not self.checkpointing.begin(record, deadline):
            self._terminate(key)

    def kill_at(self, record: RunRecord, deadline: float) -> None:
        """Kill a run at the deadline."""
        self._no_deadline(record.key)
        loop = asyncio.get_running_loop()
        self.deadlines[record.key] = loop.call_at(deadline, self._guarded, self._kill, record.key)

    def forget(self, key: RunKey) -> None:
        """Forget a run that has ended."""
        self._no_deadline(key)
        self.means.pop(key, None)
        self.checkpointing.abandon_save(key)

    def relent(self, key: RunKey) -> None:
        """Cancel the stop of a run, and remove the file that announces it."""
        self.forget(key)
        with suppress(OSError):
            job_files.remove_file(self._paths.folder(key), STOP_FILE)

    def _no_deadline(self, key: RunKey) -> None:
        if (timer := self.deadlines.pop(key, None)) is not None:
            timer.cancel()

    def _terminate(self, key: RunKey, checkpoint: str = "") -> None:
        """Send SIGTERM. `checkpoint`: the result of asking it to save."""
        record = self._spool.runs[key]
        if record.phase is RunPhase.ENDED or record.signalled:
            return
        assert record.stop_deadline is not None
        self.means[key] = self._saves(record)
        log.info("run %s: terminating, %.1f s left", key, record.stop_deadline - time.monotonic())
        # Recorded afterwards. An agent that is killed in between sends it twice; the other way round, a run might never learn
        # that it has to save its work.
        self.signal(record, signal.SIGTERM)
        self._spool.remember([replace(record, signalled=True, checkpoint=checkpoint or record.checkpoint)])

    def _shorten_grace(self, key: RunKey, checkpoint: str) -> None:
        """Shorten the grace period after the checkpoint command has saved the work: later work is lost, so do not wait long."""
        record = self._spool.runs[key]
        assert record.stop_deadline is not None
        deadline = min(record.stop_deadline, time.monotonic() + _SAVED_LEAVES)
        self._spool.remember([replace(record, stop_deadline=deadline)])
        self._terminate(key, checkpoint)
        self.press(self._spool.runs[key], deadline)

    def kill_for_memory(self, key: RunKey, used: int) -> None:
        """Kill a run that uses more memory than it asked for: `used` bytes."""
        record = self._spool.runs.get(key)
        if record is None or record.phase is RunPhase.ENDED:
            return
        if not record.out_of_memory:
            log.info("run %s: killing it: it uses %d MiB and asked for %d MiB", key, used >> 20, record.memory_mib)
            self._spool.remember([replace(record, out_of_memory=True)])
        self.signal(record, signal.SIGKILL)

    def kill_for_device_memory(self, key: RunKey, index: int, used_mib: int, limit_mib: int) -> None:
        """Kill a run that uses more of a device than it may while others use it, too."""
        record = self._spool.runs.get(key)
        if record is None or record.phase is RunPhase.ENDED:
            return
        if not record.out_of_memory:
            why = f"it uses {used_mib} MiB of device {index}, which it shares, and may use {limit_mib} MiB"
            log.warning("run %s: killing it: %s", key, why)
            with suppress(OSError):
                job_files.append_text(*os.path.split(record.log_path), f"ebb: killed: out of device memory: {why}\n")
            self._spool.remember([replace(record, out_of_memory=True, device_memory=why)])
        self.signal(record, signal.SIGKILL)

    def signal(self, record: RunRecord, signum: int) -> None:
        """Send SIGTERM to a run's processes, its leader gone or not, or SIGKILL, also to those that left its process group."""
        if is_led_by(record.pid, record.start_ticks):
            if signum == signal.SIGTERM:
                terminate_group(record.pid, savers_of(self._paths.folder(record.key)))
            else:
                kill_group(record.pid, signum)
        if signum == signal.SIGKILL:
            self._holding.kill(record.key)
            self.checkpointing.abandon_save(record.key)

    def _kill(self, key: RunKey) -> None:
        record = self._spool.runs[key]
        if record.phase is not RunPhase.ENDED:
            log.info("run %s: its grace period is over, killing it", key)
            self.signal(record, signal.SIGKILL)

    def tell_why(self, record: RunRecord, deadline: float) -> None:
        """Write the reason for the run to read. If it cannot be written, the run is stopped all the same."""
        assert record.stop_received is not None
        grace = round(deadline - record.stop_received, 3)
        why = {"reason": record.stop_reason.name.lower(), "cause_job": record.stop_cause, "grace_s": grace}
        if record.stop_reason is StopReason.RESIZED:
            why |= {"target": record.stop_resize_to, "epoch": record.key.run}
        try:
            job_files.write_file(self._paths.folder(record.key), STOP_FILE, json.dumps(why).encode())
        except OSError as error:
            log.warning("run %s: cannot be told why it is stopped: %s", record.key, error)
