"""Runs: the launches of jobs, task by task, and the part of the time in which one that takes turns may compute."""

from typing import NamedTuple

from scheduler_service.core.model.enums import StopReason
from scheduler_service.core.model.parking import Parking, PhaseTime
from scheduler_service.core.model.rows import dataclass, derived
from scheduler_service.core.model.run_phase import RunPhase
from scheduler_service.core.model.saves import SaveResult
from scheduler_service.core.model.values import SECOND, WHOLE, Micros, Vector


class Turns(NamedTuple):
    """Turns of a run that takes turns on its devices, or once did."""

    part_ppm: int
    """The part of the time in which it may compute, in millionths."""
    since_us: Micros
    """Time since when that has been its part."""
    waited_us: Micros = 0
    """How long it had waited for its turns before that, since it started."""


OVERDUE_US: Micros = 60 * SECOND
"""Time from the end of a run's grace period until its node is told again to stop it, if it has not ended."""


class RunKey(NamedTuple):
    """The identity of one task of one launch. Every message of an agent carries it, so a late message cannot be mistaken for
    one about the current run."""

    job_id: int
    run: int
    task: int = 0
    """The rank within a gang; 0 for a job of one task."""

    def __str__(self) -> str:
        return f"{self.job_id}.{self.run}/{self.task}" if self.task else f"{self.job_id}.{self.run}"


@dataclass(frozen=True)
class Run:
    """One task of one launch of a job: what it holds on its node until it has ended."""

    job_id: int
    run: int
    node: int
    devices: tuple[int, ...]
    """Devices that it holds: none while it is parked. On a site with cells, if the node has no devices: the CPUs whose share of
    the node it holds."""
    demand: Vector
    phase: RunPhase
    placed_us: Micros
    started_us: Micros | None = None
    ended_us: Micros | None = None
    log_path: str = ""
    stop_reason: StopReason | None = None
    stop_grace_us: Micros = 0
    stop_us: Micros | None = None
    """When it was told to stop."""
    stop_for: int = 0
    """The job that needs its resources, or 0."""
    exit_code: int = 0
    exit_signal: int = 0
    yielded: bool = False
    """It saved its work and exited because it was told to stop."""
    lost: bool = False
    """It ended with its node, or it is unknown how it ended."""
    task: int = 0
    ready_at: str = ""
    """Address (host:port) of a task of a gang, once it is ready."""
    guarded_us: Micros | None = None
    """Time until which no trial may preempt it."""
    vc: str = ""
    """The virtual cluster of its job."""
    guaranteed: bool = False
    """It holds cells of its virtual cluster; False: it keeps its devices only until a job with a right to them needs them."""
    done: bool = False
    """It exited with 0, which counts as its work being done."""
    program: str = ""
    """The file that was executed, once it runs; empty if its node did not say."""
    generation: int = 1
    """Grows with each change of what is desired of this task on its node; see `core.lifecycle.desired`."""
    group: int = 0
    """The share group that holds its devices; 0: it holds them alone."""
    device_memory_mib: int = 0
    """Maximum memory that a member of a share group may use on each of its devices; 0: as much as any run may use."""
    parked_mib: int = 0
    """Memory of the node for what it has on its devices while it is parked. Set for a member of a share group that is not in
    all of its rows, and for a run that is to park or is parked."""
    shared: bool = False
    """It is or was a member of a share group: its node is sent the group's plan, or that the plan no longer exists."""
    parking: Parking | None = None
    """None: it was never told to park."""
    phases: tuple[PhaseTime, ...] = ()
    """Durations of the last phases of its operations, the newest last."""
    part_ppm: int = 0
    """Part of a device that a member of a share group requested, in millionths; 0: whole devices."""
    awaits: bool = False
    """It is WARMING: it begins when the run before it, which is at another node, has ended."""
    began_from: str = ""
    """The checkpoint that its program loaded, once it has ended; empty: none, or the program did not say."""
    checkpoint: str = ""
    """The last checkpoint that its program saved; empty as for `began_from`."""
    save: SaveResult | None = None
    """Whether its work was saved, once it has ended; None: it had nothing to save, or its agent did not say."""
    turns: Turns | None = None
    """None: it never took turns with others, and may compute all the time."""
    overdue_us: Micros | None = None
    """When its node is told again to stop it, if it was told to stop and has not ended in time; None: see `due_us`."""

    @property
    def due_us(self) -> Micros | None:
        """When its node is told again to stop the run, if it has not ended by then; None: it was not told to stop."""
        if self.stop_us is None:
            return None
        return self.overdue_us or self.stop_us + self.stop_grace_us + OVERDUE_US

    @property
    def charged(self) -> Vector:
        """Resources of its node that the run itself takes. The devices of a member of a share group are taken by the group."""
        if not self.group:
            return self.demand._replace(memory_mib=self.demand.memory_mib + self.parked_mib) if self.parked_mib else self.demand
        return Vector(self.demand.cpu_milli, self.demand.memory_mib + self.parked_mib)

    @property
    def is_parked(self) -> bool:
        """Whether the run has no devices, though it has not ended: it is parked, or was when it was told to stop."""
        return self.parking is not None and bool(self.parking.devices)

    @property
    def placed_on(self) -> tuple[int, ...]:
        """The devices with which the run began, and on which it resumes."""
        return self.parking.devices if self.parking is not None and self.parking.devices else self.devices

    @property
    def asked(self) -> Vector:
        """Resources that the run needs while it executes."""
        return self.demand._replace(devices=len(self.placed_on)) if self.is_parked else self.demand

    @property
    def used_devices_ppm(self) -> int:
        """Devices that usage-based policies charge the run for, in millionths of a device."""
        return self.part_ppm if self.part_ppm and self.group else self.demand.devices * WHOLE

    @property
    def given(self) -> tuple[int, ...]:
        """The devices that the run is told to use. CPUs are only counted: no run is told which ones to use."""
        return self.placed_on if self.asked.devices else ()

    @derived
    def key(self) -> RunKey:
        return tuple.__new__(RunKey, (self.job_id, self.run, self.task))
