"""Reads once a second what all live runs of the node report about themselves.

These are their step files, and the files in which they ask for a grace period and name their checkpoints.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ebb_inject.ebb_hook.step_file import EVALUATING, Record
from node_agent.measuring.step_measurements import RunMeasurement, measurement, memory_peak
from node_agent.measuring.step_rates import WINDOW, Advance, RunSteps, StepState
from node_agent.processes.job_reports import RunGrace, read_grace, read_names, read_record
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import RunKey, RunPhase, RunRecord
from node_agent.run_state.park_state import ParkStage, Rung
from node_agent.run_state.save_values import NOTHING_SAID, RunCheckpoints, SaveMeans
from node_agent.spool.spool import Spool

EVERY = 1.0
"""Seconds between two readings, as with the devices."""
_LONG = 2.0
"""Seconds: shorter steps fit into any grace period."""
MOST = 4096
"""Runs that are reported: as many as the scheduler accepts."""
_AT_WORK = (RunPhase.RUNNING, RunPhase.STOPPING, RunPhase.PARKING, RunPhase.PARKED, RunPhase.RESUMING)


class StepWatch:
    """Keeps the steps of the runs that are working. It holds no file open, and needs no state from before a restart."""

    def __init__(
        self,
        spool: Spool,
        paths: Paths,
        window: float = WINDOW,
        saves: Callable[[Iterable[RunRecord]], Mapping[RunKey, SaveMeans]] = lambda _: {},
    ) -> None:
        """`window`: minimum seconds over which current rates are computed. `saves` says what would save each run."""
        self.latest: tuple[RunSteps, ...] = ()
        """Every run that counts its steps, in the order of the keys."""
        self.measurements: tuple[RunMeasurement, ...] = ()
        """The same runs, if it is known when their processes began."""
        self.graces: tuple[RunGrace, ...] = ()
        """Every run that asks for a grace period, in the order of the keys."""
        self.checkpoints: tuple[RunCheckpoints, ...] = ()
        """Every run for which it is known how it saves, in the order of the keys."""
        self._spool = spool
        self._paths = paths
        self._window = window
        self._saves = saves
        self._advances: dict[RunKey, Advance] = {}
        self._longest: dict[RunKey, tuple[float, bool]] = {}
        """The longest time without the end of a step, for runs with long steps, and whether they evaluated then."""
        self._stops: dict[RunKey, int] = {}
        """Times each run had been stopped in the middle of a step, at the last look."""

    async def run(self) -> None:
        while True:
            self.read_files()
            await asyncio.sleep(EVERY)

    def read_files(self) -> None:
        """Read the files once: some microseconds for each run."""
        now = time.monotonic_ns()
        at_work = [record for record in self._spool.live() if record.phase in _AT_WORK]
        advances: dict[RunKey, Advance] = {}
        measurements: list[RunMeasurement] = []
        graces: list[RunGrace] = []
        checkpoints: list[RunCheckpoints] = []
        means = self._saves(at_work)
        self._longest = {run.key: self._longest[run.key] for run in at_work if run.key in self._longest}
        for run in at_work:
            key = run.key
            found = self._advances.get(key)
            if (record := read_record(self._paths.steps(key), now)) is not None:
                found = found or Advance(key, self._window)
                found.add(record, 0.0 if run.share is None else run.share.cycle)
                self._note_longest(run, record, now)
                if run.pid and (measured := measurement(key, record, run.start_ticks, memory_peak(run.pid))) is not None:
                    measurements.append(measured)
            if found is not None:
                if run.park.stops != self._stops.get(key, 0) or _is_in_a_step(run):
                    found.note_interruption()
                advances[key] = found
            if (grace := read_grace(self._paths.grace(key), key)) is not None:
                graces.append(grace)
            said, how = read_names(self._paths.checkpoint_names(key)), means.get(key, SaveMeans.UNKNOWN)
            if how or said != NOTHING_SAID:
                longest = self._longest.get(key, (0.0, False)) if how is SaveMeans.REGISTERED else (0.0, False)
                checkpoints.append(RunCheckpoints(key, said, how, *longest))
        self._advances = advances
        self.graces = tuple(sorted(graces, key=lambda one: one.key)[:MOST])
        self.checkpoints = tuple(sorted(checkpoints, key=lambda one: one.key)[:MOST])
        self._stops = {run.key: run.park.stops for run in at_work if run.park.stops}
        awake = {run.key: _awake_since(run, now) for run in at_work}
        self.measurements = tuple(sorted(measurements, key=lambda one: one.key)[:MOST])
        reported = (advances[key].steps_at(now, awake[key]) for key in sorted(advances)[:MOST])
        parked = {run.key for run in at_work if run.phase is RunPhase.PARKED}
        self.latest = tuple(_parked_steps(steps) if steps.key in parked else steps for steps in reported if steps is not None)

    def _note_longest(self, run: RunRecord, record: Record, now: int) -> None:
        """Note the time since the last step, only while the run executes: a parked run is in no step."""
        since = (now - record.last_ns) * 1e-9
        awake = run.park.stage is ParkStage.EXECUTES and record.last_ns >= run.park.changed * 1e9
        if awake and run.share is None and since >= max(_LONG, self._longest.get(run.key, (0.0, False))[0]):
            self._longest[run.key] = since, record.state == EVALUATING


def _parked_steps(steps: RunSteps) -> RunSteps:
    """Return the progress of a parked run, whose end is unknown."""
    return replace(steps, state=StepState.PARKED, remaining=None)


def _is_in_a_step(run: RunRecord) -> bool:
    """Whether a run is stopped in the middle of a step."""
    return run.park.stage is ParkStage.PARKED and run.park.rung is not Rung.COOPERATIVE


def _awake_since(run: RunRecord, now_ns: int) -> int:
    """Return since when a run executes, if it was parked: a parked run is not idle. Nanoseconds of the monotonic clock."""
    return round(run.park.changed * 1e9) if run.park.stage is ParkStage.EXECUTES else now_ns
