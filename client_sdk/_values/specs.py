"""What a user asks to be run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum

from client_sdk._values.enums import DependencyKind, Exit0AfterStop, Guarantee, JobClass, ShareMode
from client_sdk._values.virtual_clusters import CellRequest
from client_sdk.units import parse_memory


class Unnamed(IntEnum):
    """CPUs or memory of a task with devices that its user has not named: the scheduler gives it what goes with the devices."""

    DEFAULT = 0


DEFAULT = Unnamed.DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a task occupies, or a node offers. `cpus` counts cores and is exact to a thousandth of one.

    In a spec that is submitted, `DEFAULT` for `cpus` or `memory_mib` means what goes with the devices."""

    cpus: float = 0.0
    memory_mib: int = 0
    devices: int = 0


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Tasks of a gang that are alike, such as `TaskGroup(4, devices=1, cpus=4, memory="8GiB")`.

    Each of the `count` tasks has these resources. Left out, `cpus` and `memory` are what goes with the devices (`DEFAULT`), and
    1 and "1GiB" without any. `memory` is written as in `Client.submit`, and kept as a number of MiB.
    `command` is theirs where it differs from the job's. Ranks count through the groups of a job in order. With a `level` each
    task has a whole cell of that level of its virtual cluster's.
    """

    count: int
    devices: int = 0
    cpus: float = DEFAULT
    memory: str | int = DEFAULT
    command: Sequence[str] | None = None
    level: str = ""

    def __post_init__(self) -> None:
        cpus, mib = named_resources(self.cpus, self.memory, self.devices)
        object.__setattr__(self, "cpus", cpus)
        object.__setattr__(self, "memory", mib)
        object.__setattr__(self, "command", tuple(self.command) if self.command else None)

    @property
    def resources(self) -> Resources:
        """Of each task."""
        return Resources(cpus=self.cpus, memory_mib=parse_memory(self.memory), devices=self.devices)


def named_resources(cpus: float, memory: str | int, devices: int) -> tuple[float, int]:
    """CPUs, and memory in MiB, of a task with so many devices. Without devices nothing is left to the scheduler."""
    mib = parse_memory(memory)
    if devices:
        return cpus, mib
    return 1.0 if cpus is DEFAULT else cpus, 1024 if mib is DEFAULT else mib


@dataclass(frozen=True, slots=True)
class Retry:
    """What happens when a run fails: `limit` more runs. Preemption, suspension and the loss of a node are no failures.

    Only failures with these exit codes or signals count; with neither, every failure does.
    """

    limit: int = 0
    exit_codes: tuple[int, ...] = ()
    exit_signals: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Dependency:
    """A job that another waits for, and how it must end."""

    job_id: int
    kind: DependencyKind = DependencyKind.AFTER_OK


@dataclass(frozen=True, slots=True)
class Array:
    """Many jobs of one spec, told apart by EBB_ARRAY_INDEX: 0 to `size` - 1."""

    size: int
    at_once: int = 0
    """How many may be started and not ended at once; 0 means any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest:
    """The nodes on which a job may run, on a site without virtual clusters."""

    names: tuple[str, ...] = ()
    """One of these nodes; empty means any."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Nodes that have all of these labels."""
    excluded: tuple[str, ...] = ()
    """None of these nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One way in which a job can run, such as on a model of device or on CPUs. An empty `command` means the job's;
    `environment` is added to the job's. The other fields mean what those of `JobSpec` with their names mean."""

    resources: Resources = Resources()
    task_groups: tuple[TaskGroup, ...] = ()
    cells: CellRequest = field(default_factory=CellRequest)
    device_memory_mib: int = 0
    nodes: NodeRequest = field(default_factory=NodeRequest)
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    estimate: timedelta | None = None

    def __str__(self) -> str:
        """Such as "2 V100 and 4 CPUs" or "8 CPUs"."""
        groups = self.task_groups
        devices = sum(group.count * group.devices for group in groups) if groups else self.resources.devices
        cpus = sum(group.count * group.cpus for group in groups) if groups else self.resources.cpus
        model = self.cells.model or self.cells.pool or ("device" if devices == 1 else "devices")
        if any(group.cpus is DEFAULT for group in groups) or self.resources.cpus is DEFAULT:
            return f"{devices} {model}"
        return f"{devices} {model} and {cpus:g} CPUs" if devices else f"{cpus:g} CPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What a user asks to be run.

    `command` is the program and its arguments; no shell stands between. `working_directory` is an absolute path on the
    node; None means the job's own directory there. `grace_period` is the time from the stop signal to the kill; None
    means the site's default, and zero that the job may be killed at once and go on from its last checkpoint. A spec with
    `task_groups` is a gang: `resources` are then those of all its tasks together.
    """

    command: tuple[str, ...]
    resources: Resources
    name: str = ""
    job_class: JobClass = JobClass.BEST_EFFORT
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    working_directory: str | None = None
    grace_period: timedelta | None = None
    priority: int = 0
    """Jobs of higher priority stand before others in their queue, and are not preempted for trials of lower priority."""
    time_limit: timedelta | None = None
    """The longest that it may run, over all of its runs."""
    estimate: timedelta | None = None
    """How long it is expected to run, over all of its runs: policies and estimates read it."""
    retry: Retry = Retry()
    task_groups: tuple[TaskGroup, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    """It waits in its queue until each of them holds."""
    array: Array | None = None
    virtual_cluster: str = ""
    """To which it belongs; empty where the site has none."""
    guarantee: Guarantee = Guarantee.GUARANTEED
    cells: CellRequest = field(default_factory=CellRequest)
    exit_0_after_stop: Exit0AfterStop = Exit0AfterStop.STOPPED
    """What an exit with 0 means after a stop signal."""
    inherited: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What it takes over from the shell or program that submitted it (see `JobOptions.export`); `environment` wins over it."""
    device_memory_mib: int = 0
    """At least so much memory on each of its devices; 0 means any."""
    nodes: NodeRequest = field(default_factory=NodeRequest)
    alternatives: tuple[Configuration, ...] = ()
    """Other configurations in which the job can run. The fields above are configuration 0, and these are 1, 2, ..."""
    project: str = ""
    """What its user works on; empty: none. Policies that order jobs by usage charge the job to this project."""
    checkpoint_signal: str = ""
    """The signal that asks its program to save, such as "USR1" or "USR1@60"; empty: SIGTERM."""
    checkpoint_command: str = ""
    """The command that saves its program's work, for /bin/sh; empty: none."""
    snapshots: tuple[str, ...] = ()
    """What its nodes unpack before it starts, by digest (see `JobOptions.snapshot`)."""
    min_tasks: int = 0
    """Of an elastic job: the least number of tasks. 0: the number is fixed."""
    max_tasks: int = 0
    """Of an elastic job: the greatest number of tasks. The count of its one group in `task_groups` is the number that it has
    now, which `Client.resize` changes."""
    gpu_fraction_ppm: int = 0
    """The part of one device that it asks for, in millionths; 0: whole devices, or as much as its memory is."""
    gpu_memory_mib: int = 0
    """The most memory of one device that it uses, if it shares the device; 0: what goes with its fraction."""
    share: ShareMode = ShareMode.EXCLUSIVE
    """How it holds its devices."""
    redacted: tuple[str, ...] = ()
    """What of somebody else's job is not shown to you: "environment", "command", "task_groups[0].command". Such a spec cannot
    be submitted."""

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """All of them, by number: that of the spec's own fields, and the alternatives."""
        own = Configuration(
            resources=self.resources,
            task_groups=self.task_groups,
            cells=self.cells,
            device_memory_mib=self.device_memory_mib,
            nodes=self.nodes,
            command=self.command,
            environment=self.environment,
            estimate=self.estimate,
        )
        return own, *self.alternatives
