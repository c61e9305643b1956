"""Parks and resumes runs as the scheduler desires, or as the turns of their share group require, and reports the results."""

import logging
import signal
import time
from collections.abc import Callable
from dataclasses import replace

from node_agent.processes.run_cgroups import RunCgroups
from node_agent.processes.run_paths import Paths
from node_agent.run_state.events import Phases, RunEvent, RunParked, RunParkRefused, RunResumed
from node_agent.run_state.model import RunKey, RunPhase, RunRecord, StopReason, clean
from node_agent.run_state.park_state import ParkStage
from node_agent.sharing.parking.ladder import Ladder
from node_agent.sharing.parking.parking import Node, Parking, park_number
from node_agent.sharing.slices import Slices
from node_agent.spool.spool import Spool

log = logging.getLogger(__name__)

_REASON_LIMIT = 2048
"""Bytes of a reason."""
_SAVE_PART = 0.9
"""Part of the grace period in which a parked run saves. If it does not, it is parked again in the rest."""
_WAITS = "wait"
"""The phase of a park in which the run still executes."""


class Suspending:
    """Parks and resumes of one spool's runs. `start` launches a run; one that `waits` is launched later without that. `press`
    stops a run that was told to stop, `kill` sends a signal to one, and `relent` cancels its kill at a deadline. `reported` is
    called when there is something to report."""

    def __init__(
        self,
        spool: Spool,
        holding: RunCgroups,
        paths: Paths,
        ladder: Ladder,
        node: Node,
        start: Callable[[RunKey], None],
        waits: Callable[[RunKey], bool],
        press: Callable[[RunKey], None],
        kill: Callable[[RunRecord, int], None],
        relent: Callable[[RunKey], None],
        reported: Callable[[], None],
        guarded: Callable[..., None],
    ) -> None:
        self._spool = spool
        self._start = start
        self._press = press
        self._kill = kill
        self._relent = relent
        self._reported = reported
        self.parking = Parking(spool, holding, paths, ladder, node, self, guarded)
        self.slices = Slices(spool, self.parking, start, waits, guarded, node.on_devices)

    def close(self) -> None:
        """Change nothing from here on. What is parked stays parked."""
        self.slices.close()
        self.parking.close()

    def settle(self, key: RunKey) -> None:
        """Make a run parked or executing, as it should be."""
        record = self._spool.runs[key]
        if record.phase is RunPhase.ENDED:
            return
        if self.slices.is_sliced(record):
            assert record.share is not None
            self.slices.take_turn(record.share.group)
        elif record.pid:
            to_park = record.to_park and record.phase is not RunPhase.STOPPING
            number = park_number(record.park_number) if record.park_number else 0
            self.parking.want(key, to_park, record.park_limit, number)
        elif self.slices.is_held(key):  # it no longer takes turns with others
            self._start(key)
        self._tell(key, ())

    def handle_departure(self, group: int) -> None:
        """Handle that a run has left a share group."""
        self.slices.take_turn(group)

    def awakes(self, record: RunRecord) -> bool:
        """Whether a run that is to be stopped has to resume first, which it then does. A run that the scheduler wanted parked
        has no devices to resume on: it saves without them if it is to continue elsewhere, and is killed otherwise."""
        if record.park.stage is ParkStage.PARKED and record.to_park:
            now, received, deadline = time.monotonic(), record.stop_received, record.stop_deadline
            if record.stop_reason is StopReason.MIGRATED and received is not None and deadline is not None and deadline > now:
                self.parking.save(record.key, received + _SAVE_PART * (deadline - received))
                return True
            log.info("run %s: it is parked, and is to be stopped; killing it", record.key)
            self._kill(record, signal.SIGKILL)
            return True
        self.settle(record.key)
        return self._spool.runs[record.key].park.stage is not ParkStage.EXECUTES

    def handle_start(self, record: RunRecord) -> None:
        """Handle that a run has its process."""
        self.slices.handle_start(record.key)
        if record.to_park or record.share is not None:
            self.settle(record.key)

    def handle_end(self, record: RunRecord) -> None:
        """Handle that a run has ended."""
        self.parking.forget(record.key)
        self.slices.handle_end(record)

    # Events of `Parking`.

    def handle_parked(self, key: RunKey, phases: Phases) -> None:
        record = self._spool.runs[key]
        self._tell(key, phases)
        if self.slices.is_sliced(record):
            self.slices.handle_parked(key, sum(seconds for name, seconds in phases if name != _WAITS))
        else:
            self.settle(key)

    def handle_resumed(self, key: RunKey, phases: Phases) -> None:
        record = self._spool.runs[key]
        self._tell(key, phases)
        if record.phase is RunPhase.STOPPING:
            self._press(key)
        if self.slices.is_sliced(record):
            self.slices.handle_resumed(key)

    def handle_refused(self, key: RunKey, reason: str, lost: bool) -> None:
        record = self._spool.runs[key]
        refused = RunParkRefused(clean(reason, _REASON_LIMIT), lost)
        if record.to_park and record.phase is not RunPhase.STOPPING:
            self._report(replace(record, phase=RunPhase.RUNNING, to_park=False), refused)
        elif record.phase is not RunPhase.STOPPING and (self.slices.handle_refused(key) or lost):
            self._report(record, refused)
        if lost:
            self._kill(self._spool.runs[key], signal.SIGKILL)
        elif record.phase is RunPhase.STOPPING:
            self._press(key)

    def not_saved(self, key: RunKey, reason: str) -> None:
        record = self._spool.runs[key]
        if record.phase is not RunPhase.STOPPING:
            return
        if record.stop_reason is not StopReason.MIGRATED:  # it was since told to stop for another reason
            self._kill(record, signal.SIGKILL)
            return
        self._relent(key)
        parked = replace(record, phase=RunPhase.PARKED, stop_received=None, stop_deadline=None)
        parked = replace(parked, stop_reason=StopReason.UNSPECIFIED, stop_cause=0)
        self._report(parked, RunParkRefused(clean(reason, _REASON_LIMIT)))

    def _tell(self, key: RunKey, phases: Phases) -> None:
        """Report what the scheduler waits for, once it has happened."""
        record = self._spool.runs[key]
        state, rung = record.park, record.park.rung
        said = "" if rung is None else rung.value
        if record.phase is RunPhase.PARKING and state.stage is ParkStage.PARKED and record.to_park:
            event = RunParked(said, state.bytes, state.residue_bytes, phases, state.saves)
            self._report(replace(record, phase=RunPhase.PARKED), event)
        elif record.phase is RunPhase.RESUMING and state.stage is ParkStage.EXECUTES and not record.to_park:
            self._report(replace(record, phase=RunPhase.RUNNING), RunResumed(said, phases))

    def _report(self, record: RunRecord, event: RunEvent) -> None:
        self._spool.report(record, event)
        self._reported()
