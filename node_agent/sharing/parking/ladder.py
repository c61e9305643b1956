"""Parks the processes of one run by the first rung that can, and resumes them.

1. Cooperative: each process moves its device memory to the host between two steps, says so, and is stopped.
2. The driver's checkpoint, for one process on one GPU. It needs no help from the program.
3. Stopped: for a run that has nothing on a device.

A run that no rung parks continues as before. Every rung can be retried from any point, since an agent may be killed at any
point: a request to a process states the desired result, and the driver reports the state of a process.
"""

import asyncio
import logging
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ebb_inject.ebb_hook import control
from node_agent.devices.driver_checkpoint import DriverCheckpoint, ProcessState, reason_against
from node_agent.run_state.events import Phases
from node_agent.run_state.park_state import ParkState, Rung, Verdict
from node_agent.sharing.parking import freezing, requests
from node_agent.sharing.parking.freezing import Processes

log = logging.getLogger(__name__)

RESUME_LIMIT = 60.0
"""Seconds. A run that has not resumed by then is lost."""
_LOCK_LIMIT = 5.0
"""Seconds for the CUDA calls in progress."""
_LOOK_LIMIT = 3.0
"""Seconds to wait for another look at the devices. Looks come every second, unless the driver hangs."""
_LOOK_PAUSE = 0.02
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """A run that has processes."""

    processes: Processes
    folder: str
    """The folder of its control files."""
    on_devices: Callable[[float], Mapping[int, int] | None]
    """The memory of each process on devices, in MiB, by a look that began since a time (monotonic); None: not known."""
    at_step: Callable[[], int] = lambda: 0
    """The first step after which its processes may park; 0: any."""
    alone: bool = True
    """Whether it is not a task of a gang."""
    on_nodes: int = 1
    """Number of nodes that have tasks of its gang."""
    number: int = 0
    """Number of this park, the same on all nodes of the gang; 0: not known."""
    mps: bool = False
    """Whether it is a client of MPS."""


class Parked(NamedTuple):
    rung: Rung
    bytes: int
    residue_bytes: int
    phases: Phases
    moving: float
    """Seconds in which it no longer executed, and was not parked yet."""
    saves: bool = False
    """All of its processes can save while parked."""


class Resumed(NamedTuple):
    phases: Phases


class Failed(NamedTuple):
    reason: str
    lost: bool = False
    """It is unknown whether its processes can ever continue."""
    late: bool = False
    """It had not ended when its time had passed, or when it was no longer wanted. With more time it may succeed."""


class _Runs(NamedTuple):
    """A run that was not stopped, and keeps running."""

    used: Mapping[int, int] | None
    """The run's memory on devices."""
    reason: str


Noted = Callable[[Rung, tuple[int, ...]], None]


class Ladder:
    def __init__(self, driver: DriverCheckpoint | None = None) -> None:
        """Without a driver, the second rung refuses."""
        self._driver = driver

    async def park(
        self, run: Target, before: ParkState, *, limit: float, most_bytes: int, abandoned: Callable[[], bool], noted: Noted
    ) -> Parked | Failed:
        """Park a run within `limit` seconds. At most `most_bytes` are moved to host memory. `before` is what an agent has
        already done to it, and `noted` records which rung is tried, before anything is done."""
        began = time.monotonic()
        deadline = began + limit
        freezing.go_on(run.processes)  # an agent may have died after stopping them
        used = run.on_devices(before.changed)  # an older look does not show a process that the driver had suspended then
        reasons, late = [], False
        if before.rung is not Rung.DRIVER or not before.driver_pids:
            later = used == {} or (self._driver is not None and run.alone)
            patience = began + limit / 2 if later else deadline
            done = await self._park_cooperatively(run, patience, deadline, most_bytes, abandoned, noted)
            if isinstance(done, Parked) or done.lost or abandoned():
                return done
            reasons, late = [done.reason], done.late
        if not before.driver_pids:
            used = await _await_look(run, before.changed, deadline)
        if used == {} and not before.driver_pids:
            stopped = await self._park_by_stopping(run, deadline, noted)
            if isinstance(stopped, Parked):
                return stopped
            used = stopped.used
            reasons += [stopped.reason] if stopped.reason else []
        if used != {} or before.driver_pids:
            done = await self._park_by_driver(run, used, before.driver_pids, deadline, most_bytes, noted)
            if isinstance(done, Parked):
                return done
            return done._replace(reason="; ".join([*reasons, done.reason]), late=late or time.monotonic() >= deadline)
        return Failed("; ".join(reasons), late=late or time.monotonic() >= deadline)

    async def resume(self, run: Target, before: ParkState) -> Resumed | Failed:
        """Resume a run that is parked, or partly parked."""
        began = time.monotonic()
        deadline = began + RESUME_LIMIT
        freezing.go_on(run.processes)
        phases = {"continue": time.monotonic() - began}
        for pid in before.driver_pids:
            assert self._driver is not None
            while True:
                at = await self._driver.resume(pid, limit_seconds=max(1.0, deadline - time.monotonic()))
                phases["driver"] = time.monotonic() - began
                if at.verdict is Verdict.DONE or at.state is ProcessState.RUNNING:
                    break
                if at.verdict is Verdict.LOST or time.monotonic() >= deadline:
                    return Failed(at.why or "the driver does not restore it", lost=True)
        asking = time.monotonic()
        if why := await requests.resume_processes(run.folder, deadline):
            return Failed(why, lost=True)
        return Resumed((*phases.items(), ("resume", time.monotonic() - asking)))

    async def save(self, run: Target, state: ParkState, deadline: float) -> str:
        """Make a parked run save its checkpoint and exit. Return why it stays parked; empty: it exits, or has exited.

        Harmless to repeat: a checkpoint is not saved twice."""
        if state.rung is not Rung.COOPERATIVE or not state.saves:
            return "it cannot save while it is parked"
        freezing.go_on(run.processes)
        if not control.live(run.folder):
            return ""
        replies = await requests.ask(run.folder, control.SAVE, control.SAVED, deadline=deadline)
        if replies.why:
            if why := await freezing.stop(run.processes, time.monotonic() + 1.0):
                log.warning("parked processes are not stopped: %s", why)  # they sleep until asked to resume
            return replies.why
        requests.tell(run.folder, control.LEAVE)
        return ""

    async def _park_cooperatively(
        self,
        run: Target,
        patience: float,
        deadline: float,
        most_bytes: int,
        abandoned: Callable[[], bool],
        noted: Noted,
    ) -> Parked | Failed:
        try:
            if not control.live(run.folder):
                return Failed("no process of it can be asked to park (it has not imported PyTorch, or runs without the hook)")
        except OSError as error:
            return Failed(f"its control files cannot be read: {error}")
        if run.on_nodes > 1 and not run.number:
            return Failed(
                "its tasks are on several nodes, and the scheduler does not tell which park this is: it is older than the agent"
            )
        # On one node the agent chooses the step. Agents of several nodes do not talk to each other, so the ranks agree.
        together = run.on_nodes > 1
        noted(Rung.COOPERATIVE, ())
        asked = time.monotonic()
        replies = await requests.ask(
            run.folder,
            control.PARK_TOGETHER if together else control.PARK,
            control.PARKED,
            deadline=patience,
            at_step=run.number if together else run.at_step(),
            most_bytes=max(1, most_bytes),
            abandoned=abandoned,
        )
        why = f"{replies.why}, or those on other nodes have not" if together and replies.is_late else replies.why
        answered = time.monotonic()
        if not why and not replies.answers:
            why = "its processes have ended"
        if not why:
            why = await freezing.stop(run.processes, max(deadline, answered + 1.0))
        if why:
            late = replies.is_late or replies.is_abandoned or time.monotonic() >= deadline
            freezing.go_on(run.processes)
            stuck = await requests.resume_processes(run.folder, time.monotonic() + RESUME_LIMIT)
            return Failed(f"{why}; and it does not resume: {stuck}", lost=True) if stuck else Failed(why, late=late)
        answers = replies.answers.values()
        phases: dict[str, float] = {}
        for answer in answers:
            for name, seconds in answer.seconds.items():
                phases[name] = max(seconds, phases.get(name, 0.0))
        moving = sum(phases.values())
        stop = time.monotonic() - answered
        phases |= {"wait": max(0.0, answered - asked - moving), "stop": stop}
        size, residue = sum(answer.bytes for answer in answers), sum(answer.residue for answer in answers)
        saves = all(answer.saves for answer in answers)
        return Parked(Rung.COOPERATIVE, size, residue, tuple(phases.items()), moving + stop, saves)

    async def _park_by_stopping(self, run: Target, deadline: float, noted: Noted) -> "Parked | _Runs":
        """Stop a run that has nothing on a device. An earlier look may have missed what it has allocated since, so the devices
        are looked at again once its processes have stopped."""
        noted(Rung.STOPPED, ())
        stopping = time.monotonic()
        if why := await freezing.stop(run.processes, max(deadline, stopping + 1.0)):
            freezing.go_on(run.processes)
            return _Runs({}, why)
        stopped = time.monotonic()
        used = await _await_look(run, stopped, deadline)
        if used == {}:
            took = time.monotonic() - stopping
            return Parked(Rung.STOPPED, 0, 0, (("stop", stopped - stopping), ("look", took - (stopped - stopping))), took)
        freezing.go_on(run.processes)
        return _Runs(used, "")

    async def _park_by_driver(
        self,
        run: Target,
        used: Mapping[int, int] | None,
        before: tuple[int, ...],
        deadline: float,
        most_bytes: int,
        noted: Noted,
    ) -> Parked | Failed:
        """`before`: processes that an agent has asked the driver to suspend."""
        pids = before or tuple(sorted(used or {}))
        if self._driver is None:
            return Failed("the driver's checkpoint is not used on this node")
        if used is None and not before:
            return Failed("what it has on its devices is not known yet")
        if not run.alone or len(pids) != 1:
            return Failed(f"the driver checkpoints one process at a time, and the run has {len(pids)} with device memory")
        if why := reason_against(1, mig=False, mps=run.mps, machine=platform.machine()):
            return Failed(why)
        size = sum((used or {}).values()) * _MIB
        if size > most_bytes and not before:
            return Failed(f"{size // _MIB} MiB would be moved to host memory, and the limit is {most_bytes // _MIB} MiB")
        (pid,) = pids
        noted(Rung.DRIVER, pids)
        began = time.monotonic()
        left = max(1.0, deadline - began)
        outcome = await self._driver.suspend(pid, lock_seconds=min(_LOCK_LIMIT, left), limit_seconds=left)
        if outcome.verdict is not Verdict.DONE and outcome.state is not ProcessState.CHECKPOINTED:
            return Failed(outcome.why, outcome.verdict is Verdict.LOST)
        taken = time.monotonic()
        if why := await freezing.stop(run.processes, max(deadline, taken + 1.0)):
            freezing.go_on(run.processes)
            back = await self._driver.resume(pid, limit_seconds=RESUME_LIMIT)
            return Failed(why, lost=back.state is not ProcessState.RUNNING)
        took = time.monotonic() - began
        return Parked(Rung.DRIVER, size, 0, (("driver", taken - began), ("stop", time.monotonic() - taken)), took)


async def _await_look(run: Target, since: float, deadline: float) -> Mapping[int, int] | None:
    """Wait for a look at the devices that began since this time, and return the run's memory there; None: no look in time."""
    until = min(deadline, time.monotonic() + _LOOK_LIMIT)
    while (used := run.on_devices(since)) is None and time.monotonic() < until:
        await asyncio.sleep(_LOOK_PAUSE)
    return used
