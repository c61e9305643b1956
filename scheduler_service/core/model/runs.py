"""Runs: the launches of jobs, task by task."""

from typing import NamedTuple

from scheduler_service.core.model.enums import StopReason
from scheduler_service.core.model.parking import Parking, PhaseTime
from scheduler_service.core.model.rows import dataclass, derived
from scheduler_service.core.model.run_phase import RunPhase
from scheduler_service.core.model.saves import SaveResult
from scheduler_service.core.model.values import WHOLE, Micros, Vector


class RunKey(NamedTuple):
    """Names one task of one launch; every message of an agent carries it, so a late one cannot be taken for the present
    run's."""

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
    """Those that it holds: none while it is parked. Where there are cells, and the node has no devices: the CPUs whose share of
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
    """The job that needs the room, or 0."""
    exit_code: int = 0
    exit_signal: int = 0
    yielded: bool = False
    """It saved its work and left because it was told to."""
    lost: bool = False
    """It ended with its node, or nobody knows how it ended."""
    task: int = 0
    ready_at: str = ""
    """Of a task of a gang, once it is ready: where it can be reached (host:port)."""
    guarded_us: Micros | None = None
    """Until then no trial may have it preempted."""
    vc: str = ""
    """Of its job."""
    guaranteed: bool = False
    """It holds cells of its virtual cluster; False: it holds devices as long as nobody has a right to them."""
    done: bool = False
    """It exited with 0, and that means that its work is done."""
    program: str = ""
    """The file that was executed, once it runs; empty if its node did not say."""
    generation: int = 1
    """Grows with each change of what is desired of this task on its node; see `core.lifecycle.desired`."""
    group: int = 0
    """The share group that holds its devices; 0: it holds them alone."""
    device_memory_mib: int = 0
    """Of a member of a share group: the most memory that it may use on each of its devices. 0: as much as a run may use."""
    parked_mib: int = 0
    """The memory of the node that takes what it has on its devices while it is parked: of a member of a share group that is not
    in all of its rows, and of a run that is to park or is parked."""
    shared: bool = False
    """It is or was a member of a share group: its node is told of the group's plan, and that there is none any more."""
    parking: Parking | None = None
    """None: it was never told to park."""
    phases: tuple[PhaseTime, ...] = ()
    """What the last phases of its operations took, the newest last."""
    part_ppm: int = 0
    """Of a member of a share group that asked for a part of a device: that part, in millionths. 0: whole devices."""
    awaits: bool = False
    """It is WARMING: it begins when the run before it, which is at another node, has ended."""
    began_from: str = ""
    """The checkpoint that its program loaded, once it has ended; empty: none, or the program did not say."""
    checkpoint: str = ""
    """The last checkpoint that its program saved, in the same way."""
    save: SaveResult | None = None
    """Whether what it had done was saved, once it has ended; None: there was nothing to save, or its agent did not say."""

    @property
    def charged(self) -> Vector:
        """What it takes of its node itself. The devices of a member of a share group are taken by the group."""
        if not self.group:
            return self.demand._replace(memory_mib=self.demand.memory_mib + self.parked_mib) if self.parked_mib else self.demand
        return Vector(self.demand.cpu_milli, self.demand.memory_mib + self.parked_mib)

    @property
    def is_parked(self) -> bool:
        """Whether it has no devices, though it has not ended: it is parked, or was when it was told to stop."""
        return self.parking is not None and bool(self.parking.devices)

    @property
    def placed_on(self) -> tuple[int, ...]:
        """The devices with which it began, and on which it resumes."""
        return self.parking.devices if self.parking is not None and self.parking.devices else self.devices

    @property
    def asked(self) -> Vector:
        """What it demands when it executes."""
        return self.demand._replace(devices=len(self.placed_on)) if self.is_parked else self.demand

    @property
    def used_devices_ppm(self) -> int:
        """What of devices it is charged with by policies that go by usage, in millionths of a device."""
        return self.part_ppm if self.part_ppm and self.group else self.demand.devices * WHOLE

    @property
    def given(self) -> tuple[int, ...]:
        """The devices that it is told to use. CPUs are counted, and nobody is told which are his."""
        return self.placed_on if self.asked.devices else ()

    @derived
    def key(self) -> RunKey:
        return tuple.__new__(RunKey, (self.job_id, self.run, self.task))
