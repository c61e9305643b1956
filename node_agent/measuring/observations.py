"""Observations of the node's devices, and of the runs that they concern.

The provider reports processes; `processes/run_members` says to which runs they belong.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from node_agent.devices.base import ActivityPeriod, DeviceCycle, Observation, Observed, Provider
from node_agent.measuring.device_memory import Used
from node_agent.measuring.mini_batch import MiniBatch, MiniBatchSource, choose_best, step_mini_batch
from node_agent.measuring.step_measurements import RunMeasurement, memory_peak
from node_agent.measuring.step_rates import RunSteps
from node_agent.processes.blocking_calls import call_in_own_thread
from node_agent.processes.job_reports import RunGrace
from node_agent.processes.run_members import RunMembers
from node_agent.processes.run_paths import RUNS
from node_agent.processes.stray_processes import run_of
from node_agent.run_state.model import RunKey
from node_agent.run_state.park_state import ParkStage
from node_agent.run_state.save_values import RunCheckpoints
from node_agent.spool.spool import Spool

log = logging.getLogger(__name__)

_PATIENCE = 5.0
"""Seconds to find out to which runs processes belong. Until then they belong to none."""

_ONCE_MORE = 3.0
"""Seconds to wait for one more look at the devices: a provider looks every second, unless its driver hangs."""

_TRUSTED = 5.0
"""Seconds for which the memory of a process on a device counts as known."""

_WAVE = 60.0
"""Seconds of the past that a wave of memory or power may show, at most."""

Leaders = Mapping[int, RunKey]
"""Runs with a process, by its pid."""


@dataclass(frozen=True, slots=True)
class RunCycle:
    """The wave of a run's memory on a device. Without a period, no cycle was seen."""

    key: RunKey
    index: int
    period_seconds: float | None
    minimum_mib: int
    maximum_mib: int
    confidence: float


@dataclass(frozen=True, slots=True)
class SliceObservation:
    """The device time of a member of a share group. Durations are in seconds."""

    key: RunKey
    executing: bool
    executed: float
    since: float
    """Time in the group."""
    switches: int
    switching: float
    """Time in which it neither executed nor was parked."""
    rung: str
    residue_bytes: int
    wait: float = 0.0
    """Time from the end of a turn until the run no longer executes: the longest of the last few."""
    park: float = 0.0
    """Time from then until it is parked: the mean of the last few."""
    resume: float = 0.0
    """Time until a parked run executes again: the mean of the last few."""
    outlasted: float = 0.0
    """The longest time within which a park did not end, since the last one that succeeded."""
    tried: bool = False
    """A park was tried, so zeros are measurements."""


@dataclass(frozen=True, slots=True)
class Observations:
    devices: tuple[Observation, ...]
    """Every device of the node; none if they are simulated."""
    cycles: tuple[RunCycle, ...]
    """Cycles of every run that is seen on a device."""
    steps: tuple[RunSteps, ...] = ()
    """Every run that counts its steps."""
    measurements: tuple[RunMeasurement, ...] = ()
    """The same runs, if it is known when their processes began."""
    graces: tuple[RunGrace, ...] = ()
    """Every run that asks for a grace period."""
    checkpoints: tuple[RunCheckpoints, ...] = ()
    """Every run for which it is known how it saves."""
    periods: tuple[MiniBatch, ...] = ()
    """The periods that runs show on their devices, of every source and device."""
    slices: tuple[SliceObservation, ...] = ()
    """Every run that shares its devices in turns."""

    @property
    def mini_batches(self) -> tuple[MiniBatch, ...]:
        """The mini-batch times of all runs for which a source knows it."""
        counted = (found for steps in self.steps if (found := step_mini_batch(steps)) is not None)
        return choose_best((*counted, *self.periods))

    @property
    def faults(self) -> tuple[tuple[int, str], ...]:
        return tuple((device.index, device.fault) for device in self.devices if device.fault)


class Observing:
    """Keeps the last observation. If the provider sees nothing, `run` ends immediately, and costs nothing."""

    def __init__(
        self,
        provider: Provider,
        spool: Spool,
        state: Path,
        urgent: Callable[[], None],
        looked: Callable[[Used], None] = lambda _: None,
        simulated: bool = False,
    ) -> None:
        """`urgent` is called when other devices are faulty than before, and `looked` with the device memory of runs.
        `simulated`: report host memory as the device memory of runs that share devices."""
        self._tell = looked
        self._simulated = simulated
        self.latest: Observations | None = None
        self._provider = provider
        self._spool = spool
        self._state = state
        self._urgent = urgent
        self._looked = asyncio.Event()
        self._leaders: Leaders = {}
        self._owners: dict[int, RunKey | None] = {}
        self._used: dict[RunKey, dict[int, int]] = {}
        self._looked_at = self._look_began = 0.0
        self._asking = False
        """Whether the owners of some processes are being looked up, which may take forever."""

    async def run(self) -> None:
        async for observed in self._provider.observe():
            await self._learn({process.pid for process in observed.processes})
            before, self.latest = self.latest, self._about_runs(observed)
            if before is None or before.faults != self.latest.faults:
                self._log(dict(before.faults if before else ()), dict(self.latest.faults))
                self._urgent()
            self._looked_at = time.monotonic()
            self._look_began = self._looked_at if observed.began is None else observed.began
            self._looked.set()
            self._looked = asyncio.Event()

    def memory_of(self, key: RunKey, since: float = 0.0) -> dict[int, int] | None:
        """Return the MiB of each process of a run on devices, about a second old; None if that is not known, or if no look at
        the devices has begun since `since` (monotonic)."""
        if self.latest is None or self._asking or time.monotonic() - self._looked_at > _TRUSTED or self._look_began < since:
            return None
        return dict(self._used.get(key, {}))

    async def once_more(self) -> None:
        """Wait briefly for one more look at the devices; return immediately if nothing is seen of them."""
        if self.latest is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_ONCE_MORE):
                    await self._looked.wait()

    def _log(self, before: Mapping[int, str], now: Mapping[int, str]) -> None:
        names = {device.index: f"device {device.index} ({device.uuid})" for device in self._provider.inventory.devices}
        for index in sorted(before.keys() | now.keys()):
            if index not in now:
                log.warning("%s is well again", names.get(index, f"device {index}"))
            elif now[index] != before.get(index):
                log.error("%s is faulty, and gets nothing new: %s", names.get(index, f"device {index}"), now[index])

    async def _learn(self, pids: Collection[int]) -> None:
        """Find the owners of these processes: once for each process, and for all again when the runs have changed."""
        leaders = {record.pid: record.key for record in self._spool.live() if record.pid}
        known = self._owners if leaders == self._leaders else {}
        self._leaders, self._owners = leaders, {pid: known[pid] for pid in pids if pid in known}
        unknown = [pid for pid in pids if pid not in known]
        if not unknown or self._asking:
            return

        def ask() -> dict[int, RunKey | None]:
            try:
                return owners(unknown, leaders, self._state, self._spool.short_id)
            finally:
                self._asking = False

        # Reading the environment of a process that hangs in the driver may block as well. Faults are reported meanwhile.
        self._asking = True
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                self._owners |= await call_in_own_thread(ask)

    def _about_runs(self, observed: Observed) -> Observations:
        seen = {(cycle.pid, cycle.index): cycle for cycle in observed.cycles}
        used: dict[tuple[RunKey, int], int] = defaultdict(int)
        waves: dict[tuple[RunKey, int], DeviceCycle] = {}
        self._used = defaultdict(dict)
        for process in observed.processes:
            if (key := self._owners.get(process.pid)) is not None:
                used[key, process.index] += process.used_mib
                self._used[key][process.pid] = self._used[key].get(process.pid, 0) + process.used_mib
                if (wave := seen.get((process.pid, process.index))) is not None:
                    waves[key, process.index] = wave
        self._tell(used)
        cycles = tuple(_cycles(used, waves))
        periods = (*_memory_mini_batches(cycles), *self._activity_mini_batches(observed.activity))
        whole = tuple(period for period in periods if not self._was_parked(period.key))
        devices = self._add_host_memory(observed.devices) if self._simulated else observed.devices
        return Observations(devices, cycles, periods=whole)

    def _add_host_memory(self, devices: Iterable[Observation]) -> tuple[Observation, ...]:
        """Return simulated devices, with the host memory of the runs that share them and execute now."""
        used: dict[int, int] = defaultdict(int)
        for record in self._spool.live():
            if record.share is not None and record.pid and record.park.stage is ParkStage.EXECUTES:
                memory = memory_peak(record.pid)
                for index in record.share.devices:
                    used[index] += memory
        return tuple(replace(each, memory_used_mib=used.get(each.index)) for each in devices)

    def _was_parked(self, key: RunKey) -> bool:
        """Whether a run was parked during the time that a wave shows: its pauses would look like mini-batches."""
        record = self._spool.runs.get(key)
        if record is None or not record.park.switches:
            return False
        return record.park.stage is not ParkStage.EXECUTES or time.monotonic() - record.park.changed < _WAVE

    def _activity_mini_batches(self, activity: Iterable[ActivityPeriod]) -> Iterator[MiniBatch]:
        for each in activity:
            if (key := self._owners.get(each.pid)) is not None:
                yield MiniBatch(key, each.period_seconds, each.confidence, MiniBatchSource[each.source.name])


def _memory_mini_batches(cycles: Iterable[RunCycle]) -> Iterator[MiniBatch]:
    for cycle in cycles:
        if cycle.period_seconds is not None:
            yield MiniBatch(cycle.key, cycle.period_seconds, cycle.confidence, MiniBatchSource.MEMORY)


def _cycles(used: Mapping[tuple[RunKey, int], int], waves: Mapping[tuple[RunKey, int], DeviceCycle]) -> Iterator[RunCycle]:
    """Yield one for each run and device. A run that is not alone there, or has several processes there, has no wave."""
    for (key, index), amount in sorted(used.items()):
        if (wave := waves.get((key, index))) is None:
            yield RunCycle(key, index, None, amount, amount, 0.0)
        else:
            yield RunCycle(key, index, wave.period_seconds, wave.minimum_mib, wave.maximum_mib, wave.confidence)


def owners(pids: Collection[int], leaders: Leaders, state: Path, spool: str) -> dict[int, RunKey | None]:
    """Return the run of each process, among those with these leaders; None: it belongs to none."""
    named = {f"{spool}/{key.name}": key for key in leaders.values()}
    members = RunMembers()
    return {pid: _find_owner(pid, leaders, named, members, state, spool) for pid in pids}


def _find_owner(
    pid: int, leaders: Leaders, named: Mapping[str, RunKey], members: RunMembers, state: Path, spool: str
) -> RunKey | None:
    with suppress(OSError):
        if found := members.find_leader_of(pid, leaders) or named.get(members.find_control_group(pid, spool)):
            return found
        name = run_of(pid, state)
        if name in named and members.is_started_by_launcher(pid, f"{state}/{RUNS}/{name}"):
            return named[name]
    return None
