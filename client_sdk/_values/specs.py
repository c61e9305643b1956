"""The specification of a job: command, resources, placement and retries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum

from client_sdk._values.enums import DependencyKind, Exit0AfterStop, Guarantee, JobClass, ShareMode
from client_sdk._values.virtual_clusters import CellRequest
from client_sdk.errors import InvalidArgument
from client_sdk.units import parse_memory


class Unnamed(IntEnum):
    """CPUs or memory that a user omitted for a task with devices: the scheduler gives it the devices' share of the node."""

    DEFAULT = 0


DEFAULT = Unnamed.DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources of a task or a node. `cpus` is a number of cores, exact to a thousandth.

    In a spec that is submitted, `DEFAULT` for `cpus` or `memory_mib` means the devices' share of the node."""

    cpus: float = 0.0
    memory_mib: int = 0
    devices: int = 0


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Identical tasks of a gang, such as `TaskGroup(4, devices=1, cpus=4, memory="8GiB")`.

    Each of the `count` tasks has these resources. By default, `cpus` and `memory` are the devices' share of the node
    (`DEFAULT`), or 1 and "1GiB" without devices. `memory` is written as in `Client.submit` and stored as a number of MiB.
    `command` replaces the job's command for these tasks. Ranks are numbered through the groups of a job in order. With a
    `level`, each task gets a whole cell of that level from its virtual cluster.
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
        """The resources of each task."""
        return Resources(cpus=self.cpus, memory_mib=parse_memory(self.memory), devices=self.devices)


def named_resources(cpus: float, memory: str | int, devices: int) -> tuple[float, int]:
    """Return the CPUs and the MiB of memory of a task. Without devices, DEFAULT is resolved here, not by the scheduler."""
    mib = parse_memory(memory)
    if devices:
        return cpus, mib
    return 1.0 if cpus is DEFAULT else cpus, 1024 if mib is DEFAULT else mib


@dataclass(frozen=True, slots=True)
class Retry:
    """Retries of a job: at most `limit`. Preemption, suspension and the loss of a node are not failures.

    Only failures with these exit codes or signals are retried; if none are given, every failure is.
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
    """An array: `size` jobs of one spec, which differ in EBB_ARRAY_INDEX (0 to `size` - 1)."""

    size: int
    at_once: int = 0
    """The maximum number of jobs that have started and not ended; 0 means any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest:
    """The nodes on which a job may run, on a site without virtual clusters."""

    names: tuple[str, ...] = ()
    """Nodes on which it may run; empty means any."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Labels that the nodes must have."""
    excluded: tuple[str, ...] = ()
    """Nodes on which it must not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One way in which a job can run, such as on a device model or on CPUs. An empty `command` means the job's;
    `environment` is added to the job's. The other fields have the same meaning as in `JobSpec`."""

    resources: Resources = Resources()
    task_groups: tuple[TaskGroup, ...] = ()
    cells: CellRequest = field(default_factory=CellRequest)
    device_memory_mib: int = 0
    nodes: NodeRequest = field(default_factory=NodeRequest)
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    estimate: timedelta | None = None

    def __str__(self) -> str:
        """Return, for example, "2 V100 and 4 CPUs" or "8 CPUs"."""
        groups = self.task_groups
        devices = sum(group.count * group.devices for group in groups) if groups else self.resources.devices
        cpus = sum(group.count * group.cpus for group in groups) if groups else self.resources.cpus
        model = self.cells.model or self.cells.pool or ("device" if devices == 1 else "devices")
        if any(group.cpus is DEFAULT for group in groups) or self.resources.cpus is DEFAULT:
            return f"{devices} {model}"
        return f"{devices} {model} and {cpus:g} CPUs" if devices else f"{cpus:g} CPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """The specification of a job.

    `command` is the program and its arguments, executed without a shell. `working_directory` is an absolute path on the
    node; None means the job's own directory there. `grace_period` is the time from the stop signal to the kill; None
    means the site's default, and zero that the job may be killed immediately and resume from its last checkpoint. A spec with
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
    """Jobs with a higher priority start first, and are not preempted for trials with a lower priority."""
    time_limit: timedelta | None = None
    """The maximum run time, over all of its runs."""
    estimate: timedelta | None = None
    """The expected run time, over all of its runs. Policies and start estimates use it."""
    retry: Retry = Retry()
    task_groups: tuple[TaskGroup, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    """The job waits in its queue until all of them are met."""
    array: Array | None = None
    virtual_cluster: str = ""
    """The virtual cluster of the job; empty on sites without virtual clusters."""
    guarantee: Guarantee = Guarantee.GUARANTEED
    cells: CellRequest = field(default_factory=CellRequest)
    exit_0_after_stop: Exit0AfterStop = Exit0AfterStop.STOPPED
    """Meaning of exit code 0 after a stop signal."""
    inherited: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Variables inherited from the process that submitted it (see `JobOptions.export`); `environment` overrides them."""
    device_memory_mib: int = 0
    """The minimum memory of each of its devices; 0 means any."""
    nodes: NodeRequest = field(default_factory=NodeRequest)
    alternatives: tuple[Configuration, ...] = ()
    """Other configurations in which the job can run. The fields above are configuration 0, and these are 1, 2, ..."""
    project: str = ""
    """The project that policies which order jobs by usage charge for the job; empty: none."""
    checkpoint_signal: str = ""
    """The signal that asks its program to save, such as "USR1" or "USR1@60"; empty: SIGTERM."""
    checkpoint_command: str = ""
    """The shell command (/bin/sh) that saves its program's work; empty: none."""
    snapshots: tuple[str, ...] = ()
    """Digests of the snapshots that its nodes unpack before it starts (see `JobOptions.snapshot`)."""
    min_tasks: int = 0
    """For an elastic job: the minimum number of tasks. 0: the number is fixed."""
    max_tasks: int = 0
    """For an elastic job: the maximum number of tasks. The count of its only group in `task_groups` is its current number,
    which `Client.resize` changes."""
    gpu_fraction_ppm: int = 0
    """The fraction of one device that it requests, in millionths; 0: whole devices, or in proportion to its memory."""
    gpu_memory_mib: int = 0
    """The most memory that it uses on a device that it shares; 0: in proportion to its fraction."""
    share: ShareMode = ShareMode.EXCLUSIVE
    """How it shares its devices."""
    redacted: tuple[str, ...] = ()
    """Fields that are hidden in another user's job: "environment", "command", "task_groups[0].command". Such a spec cannot be
    submitted."""

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """All configurations by number: the one in the spec's own fields, then the alternatives."""
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


def elastic_bounds(groups: tuple[TaskGroup, ...], least: int, most: int) -> tuple[int, int]:
    """Return the least and the greatest number of tasks of an elastic job; 0 is an omitted bound. Raises InvalidArgument."""
    if len(groups) != 1:
        raise InvalidArgument(
            "an elastic job has tasks that are alike: say how many it starts with (tasks=2, --tasks 2), and no other groups"
        )
    tasks = groups[0].count
    least, most = least or 1, most or tasks
    if not 1 <= least <= tasks <= most:
        raise InvalidArgument(
            f"min_tasks={least}, tasks={tasks} and max_tasks={most} are not in order: an elastic job needs "
            "1 <= min_tasks <= tasks <= max_tasks"
        )
    return least, most
