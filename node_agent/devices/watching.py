"""Watches the devices of a machine: their use, their processes, their memory waves, and errors."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from node_agent.devices import nvml, nvml_health
from node_agent.devices.activity import Activity, open_activity
from node_agent.devices.health import JOBS_FAULT, Standing
from node_agent.devices.memory_cycles import Cycle, Wave

T = TypeVar("T")
_Event = tuple[int | None, int | None]
"""The position of a GPU, and an XID; either may be unknown."""

LOOK_INTERVAL = 1.0
_POLL_INTERVAL = 30.0
"""Seconds between two questions about the health of the GPUs; errors are reported as they happen if the driver can."""


class _Unit(NamedTuple):
    """A possible device: a GPU, or an instance of one that is in MIG mode."""

    uuid: str
    handle: nvml.Handle
    memory: nvml.Gauge
    gpu: int


class _Watched(NamedTuple):
    """The wave of the only process on a unit. Another process has another wave."""

    pid: int
    wave: Wave


class Watch:
    """NVML must be open, and stay so. `xids` are the XIDs already known, by the UUID of a unit."""

    def __init__(self, memory_rate: float, xids: Mapping[str, int]) -> None:
        self._gpus, self._units = _units()
        self._standing = [Standing() for _ in self._gpus]
        for unit in self._units:
            self._standing[unit.gpu].note_xid(xids.get(unit.uuid, 0))
        self._sample_interval = 1 / memory_rate
        self._waves: dict[str, _Watched] = {}
        self._cycles: dict[str, Cycle] = {}
        self._activities: dict[str, Activity] = {}
        self._turn = 0
        self._polled_at = -_POLL_INTERVAL
        self._events: SimpleQueue[_Event] = SimpleQueue()

    def run(self, tell: Callable[[Mapping[str, Any]], None]) -> None:
        """Report about once a second what it sees, forever."""
        with suppress(nvml.Failed):  # a driver without events is polled instead
            threading.Thread(target=self._listen, args=(nvml_health.events(self._gpus),), daemon=True).start()
        look_at = sample_at = time.monotonic()
        while True:
            if (now := time.monotonic()) >= look_at:
                tell(self._observe(now))
                look_at = max(look_at + LOOK_INTERVAL, now)
            if self._waves:
                self._sample()
                # At uneven times: otherwise a wave that is faster than the samples would look like a slower one.
                sample_at = max(sample_at + self._sample_interval * random.uniform(0.6, 1.4), time.monotonic())
            else:
                sample_at = look_at
            time.sleep(max(min(look_at, sample_at) - time.monotonic(), 0))

    def _listen(self, events: Iterator[_Event]) -> None:
        for event in events:
            self._events.put(event)

    def _sample(self) -> None:
        now = time.monotonic()
        for unit in self._units:
            if (watched := self._waves.get(unit.uuid)) is not None:
                with suppress(nvml.Failed):  # the next look reports more
                    watched.wave.add(now, unit.memory.used_mib())
            if (activity := self._activities.get(unit.uuid)) is not None:
                with suppress(nvml.Failed):
                    activity.sample(now)

    def _observe(self, now: float) -> dict[str, Any]:
        if self._handle_events() or now >= self._polled_at + _POLL_INTERVAL:
            self._polled_at = now
            for gpu, standing in zip(self._gpus, self._standing, strict=True):
                standing.note_poll(*nvml_health.health(gpu))
        devices, processes = {}, []
        for unit in self._units:
            used, fault = _read_used(unit.memory)
            fault = "; ".join(filter(None, (fault, self._standing[unit.gpu].fault)))
            devices[unit.uuid] = (used, _ask(nvml.utilisation, unit.handle), fault)
            # This call is expensive: some drivers take milliseconds, and block other programs meanwhile.
            here = _ask(nvml.processes, unit.handle) or {}
            self._follow(unit, list(here))
            if len(here) == 1 and used is not None:
                here = {pid: used if mib is None else mib for pid, mib in here.items()}
            processes += [(pid, unit.uuid, mib) for pid, mib in here.items() if mib is not None]
        self._take_turn()
        return {
            "began": now,
            "devices": devices,
            "processes": processes,
            "cycles": [(self._waves[uuid].pid, uuid, *cycle) for uuid, cycle in self._cycles.items()],
            "activity": [
                (self._waves[uuid].pid, uuid, *activity.period, activity.source)
                for uuid, activity in self._activities.items()
                if activity.period is not None
            ],
            "xids": {unit.uuid: standing.xid for unit in self._units if (standing := self._standing[unit.gpu]).xid},
        }

    def _handle_events(self) -> bool:
        """Handle the events that have arrived. Return whether to ask the driver for more."""
        more = False
        with suppress(Empty):
            while True:
                gpu, xid = self._events.get_nowait()
                if gpu is not None and xid is not None:
                    self._standing[gpu].note_xid(xid)
                more |= xid not in JOBS_FAULT
        return more

    def _follow(self, unit: _Unit, pids: list[int]) -> None:
        """Follow the wave of a device only while one process is alone on it, because only then is it that process's wave."""
        watched = self._waves.get(unit.uuid)
        if watched is None or pids != [watched.pid]:
            self._waves.pop(unit.uuid, None)
            self._cycles.pop(unit.uuid, None)
            self._activities.pop(unit.uuid, None)
            if len(pids) == 1:
                self._waves[unit.uuid] = _Watched(pids[0], Wave())

    def _take_turn(self) -> None:
        """Look for the period of one wave, every other time: that costs as much as all other work of a second."""
        self._turn += 1
        if not self._waves or self._turn % 2:
            return
        looks = [
            *((self._look_at_memory, uuid) for uuid in self._waves),
            *((self._look_at_activity, uuid) for uuid in self._activities),
        ]
        look, uuid = looks[self._turn // 2 % len(looks)]
        look(uuid)

    def _look_at_memory(self, uuid: str) -> None:
        if (cycle := self._waves[uuid].wave.cycle()) is None:
            return
        self._cycles[uuid] = cycle
        if cycle.period_seconds is not None:
            self._activities.pop(uuid, None)
        elif uuid not in self._activities:
            # Only now: if memory shows the cycle, nothing more is asked of the driver.
            (handle,) = (unit.handle for unit in self._units if unit.uuid == uuid)
            if (activity := open_activity(handle, time.monotonic())) is not None:
                self._activities[uuid] = activity

    def _look_at_activity(self, uuid: str) -> None:
        self._activities[uuid].find_period()


def _units() -> tuple[list[nvml.Handle], list[_Unit]]:
    """Return all units that have a name; the agent knows what should be there."""
    gpus: list[nvml.Handle] = []
    units = []
    for index in range(nvml.count()):
        if (gpu := _ask(nvml.handle, index)) is not None:
            instances = _ask(nvml.instances, gpu)
            for handle in [gpu] if instances is None else instances:
                if (uuid := _ask(nvml.uuid, handle)) is not None:
                    units.append(_Unit(uuid, handle, nvml.Gauge(handle), len(gpus)))
            gpus.append(gpu)
    return gpus, units


def _read_used(memory: nvml.Gauge) -> tuple[int | None, str]:
    try:
        return memory.used_mib(), ""
    except nvml.Failed as error:
        return None, nvml.fault(error)


def _ask(call: Callable[[Any], T], about: Any) -> T | None:
    with suppress(nvml.Failed, ValueError):
        return call(about)
    return None
