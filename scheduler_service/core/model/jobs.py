"""Jobs: what users submit, and what has become of it."""

from functools import lru_cache
from typing import NamedTuple

from scheduler_service.core.model.configurations import ANY_NODE, Configuration, NodeSelector, TaskGroup
from scheduler_service.core.model.enums import (
    DependencyKind,
    Exit0AfterStop,
    JobClass,
    JobState,
    Reason,
    ShareMode,
)
from scheduler_service.core.model.estimates import Estimate, SampledMemory, Sampling
from scheduler_service.core.model.profiles import Profile
from scheduler_service.core.model.rows import changed, dataclass
from scheduler_service.core.model.saves import LaunchSave
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest, Guarantee
from scheduler_service.core.model.values import Micros, Vector


class Dependency(NamedTuple):
    job_id: int
    kind: DependencyKind


class Retry(NamedTuple):
    """Which failed runs are followed by another."""

    limit: int = 0
    exit_codes: tuple[int, ...] = ()
    exit_signals: tuple[int, ...] = ()
    """With neither codes nor signals: every failure."""


class Array(NamedTuple):
    size: int
    at_once: int = 0
    """How many elements may be started and not ended; 0: any number."""


class Elements(NamedTuple):
    """How the elements of an array stand. Those from `begun` on have no row yet."""

    begun: int = 0
    live: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True)
class JobSpec:
    """What the user asked for. It never changes, but for the number of tasks of an elastic job and for the grace period; see
    `Job.tasks` and `Job.grace_now_us`."""

    command: tuple[str, ...]
    demand: Vector
    """Of all tasks together."""
    job_class: JobClass = JobClass.BEST_EFFORT
    grace_us: Micros = 0
    name: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    working_directory: str = ""
    priority: int = 0
    time_limit_us: Micros = 0
    """0: none."""
    estimate_us: Micros = 0
    """How long it is expected to run in all; 0: unknown."""
    retry: Retry = Retry()
    gang: tuple[TaskGroup, ...] = ()
    """Empty: one task."""
    dependencies: tuple[Dependency, ...] = ()
    array: Array | None = None
    vc: str = ""
    """The virtual cluster that it belongs to; empty where the site has none."""
    guarantee: Guarantee = Guarantee.GUARANTEED
    cells: CellRequest = CellRequest()
    exit_0_after_stop: Exit0AfterStop = Exit0AfterStop.STOPPED
    inherited: tuple[tuple[str, str], ...] = ()
    """What it takes over from the environment of whoever submitted it; `environment` wins over it."""
    device_memory_mib: int = 0
    """At least so much memory on each of its devices; 0: any."""
    nodes: NodeSelector = ANY_NODE
    alternatives: tuple[Configuration, ...] = ()
    """Other configurations in which it can run. That of the fields above is number 0, and these are 1, 2, ..."""
    project: str = ""
    """What its user works on; empty: none. Policies by usage charge the job to it."""
    checkpoint_signal: str = ""
    """By which its agent asks its program to save, such as USR1 or USR1@60; empty: SIGTERM."""
    checkpoint_command: str = ""
    """By which its agent saves the program's work, in the words of /bin/sh; empty: none."""
    snapshots: tuple[str, ...] = ()
    """What its nodes unpack before it starts, by digest."""
    min_tasks: int = 0
    """Of an elastic job: the least number of tasks. 0: the number of its tasks is fixed."""
    max_tasks: int = 0
    """Of an elastic job: the greatest number of tasks."""
    gpu_fraction_ppm: int = 0
    """The part of one device that it asks for, in millionths; 0: whole devices, or as much as its memory is."""
    gpu_memory_mib: int = 0
    """The most memory of one device that it uses; 0: what goes with the part that it asks for."""
    share: ShareMode = ShareMode.EXCLUSIVE
    """How it holds its devices. A job that shares asks for a part of one device, and has one task and no alternatives."""
    memory_left: tuple[int, ...] = ()
    """Of a job with alternatives: the configurations with one task whose user has named no memory. They have the default, until
    a sample has measured what they use."""

    @property
    def shares(self) -> bool:
        """Whether it asks for a part of a device."""
        return self.share is not ShareMode.EXCLUSIVE

    @property
    def elastic(self) -> bool:
        """Whether it may be resized. It is then a gang of one group, and has no alternatives."""
        return self.max_tasks > 0

    def resized(self, tasks: int) -> "JobSpec":
        """The same of an elastic job with so many tasks."""
        (group,) = self.gang
        demand = Vector(*(part * tasks for part in group.demand))
        return changed(self, gang=(group._replace(size=tasks),), demand=demand)

    def with_memory(self, configuration: int, memory_mib: int) -> "JobSpec":
        """The same with so much host memory for the one task of this configuration."""
        if configuration == 0:
            return changed(self, demand=self.demand._replace(memory_mib=memory_mib))
        others = list(self.alternatives)
        one = others[configuration - 1]
        others[configuration - 1] = one._replace(demand=one.demand._replace(memory_mib=memory_mib))
        return changed(self, alternatives=tuple(others))

    def tasks(self) -> tuple[Vector, ...]:
        """What each task needs, in the order of their ranks."""
        return _tasks(self.gang) if self.gang else (self.demand,)

    def needs(self) -> "Needs":
        """All that decides where it may run: jobs for which this is equal fit in the same places."""
        part = self.gpu_fraction_ppm, self.gpu_memory_mib, int(self.share)
        return self.demand, self.gang, self.cells, self.device_memory_mib, self.nodes, self.alternatives, part, ""

    def configured(self, number: int) -> "JobSpec":
        """What the user asked for in the configuration of this number, with no alternatives."""
        if not self.alternatives:
            return self
        if number == 0:
            return changed(self, alternatives=())
        other = self.alternatives[number - 1]
        return changed(
            self,
            demand=other.demand,
            gang=other.gang,
            cells=other.cells,
            device_memory_mib=other.device_memory_mib,
            nodes=other.nodes,
            command=other.command or self.command,
            environment=tuple(sorted((dict(self.environment) | dict(other.environment)).items())),
            estimate_us=other.estimate_us,
            alternatives=(),
        )

    def in_each_configuration(self) -> "tuple[JobSpec, ...]":
        """What the user asked for in each configuration, in the user's order."""
        if not self.alternatives:
            return (self,)
        return tuple(self.configured(number) for number in range(len(self.alternatives) + 1))


Needs = tuple[
    Vector, tuple[TaskGroup, ...], CellRequest, int, NodeSelector, tuple[Configuration, ...], tuple[int, int, int], str
]
"""The last one is the user, if only devices of the same user's jobs will do."""


@lru_cache(maxsize=1024)
def _tasks(gang: tuple[TaskGroup, ...]) -> tuple[Vector, ...]:
    """Asked for at every look at a gang that waits; there are few different ones."""
    return tuple(group.demand for group in gang for _ in range(group.size))


@dataclass(frozen=True)
class Job:
    id: int
    spec: JobSpec
    user: str
    request_id: str
    """Empty when the client gave none."""
    submitted_us: Micros
    state: JobState = JobState.QUEUED
    reason: Reason = Reason.NONE
    detail: str = ""
    cause_job: int = 0
    """The job behind the reason, or 0."""
    run: int = 0
    """The current or last launch, counted from 1."""
    requeued: bool = False
    """It has run before, and so stands before those that have not (FitGpp section 3: the top of the queue)."""
    preempted_for_trial: int = 0
    """PreemptionCount of Eqn 4: counts preemptions by trials, when the signal is decided."""
    cancel_requested: bool = False
    started_us: Micros | None = None
    ended_us: Micros | None = None
    exit_code: int = 0
    exit_signal: int = 0
    priority: int = 0
    time_limit_us: Micros = 0
    held: bool = False
    suspend_requested: bool = False
    retries: int = 0
    """Failed runs that were followed by another."""
    eligible_us: Micros | None = None
    """It does not start before; None: at once."""
    ran_us: Micros = 0
    """How long its launches have run, those that are over."""
    limit_us: Micros | None = None
    """When the time limit of the running launch is over."""
    start_by_us: Micros | None = None
    """When every task of the gang that is being started must run."""
    rendezvous: str = ""
    """Where the tasks of the launch meet (host:port), once all are ready."""
    task_nodes: tuple[int, ...] = ()
    """Of a gang: the node of each task of the current or last launch, by rank."""
    failed_on: tuple[int, ...] = ()
    """Nodes on which runs failed."""
    avoid: tuple[int, ...] = ()
    """Nodes that the next launch tries last: those where the last one failed, or did not come together."""
    verdict: Reason = Reason.NONE
    """What the first task that failed did, while other tasks are still there."""
    left: bool = False
    """Some task left because it was told to, while other tasks are still there."""
    waits_for: tuple[Dependency, ...] = ()
    """Of its dependencies, those that do not hold yet."""
    elements: Elements | None = None
    """For an array."""
    array_job: int = 0
    """For an element: its array, or 0."""
    array_index: int = 0
    configuration: int = 0
    """That of the current or last launch, by its number (see `JobSpec.alternatives`)."""
    ran_in: tuple[Micros, ...] = ()
    """Of a job with alternatives: how much of `ran_us` it ran in each configuration; empty before the first launch is over."""
    estimates: tuple[Estimate, ...] = ()
    """What a policy has noted of how long the job takes in its configurations, the user's word included; empty: nothing."""
    sampling: Sampling | None = None
    """Of a job whose current launch is a sample."""
    tasks: int = 0
    """Of an elastic job that was resized: the number of tasks in its spec. 0: as many as it was submitted with."""
    submitted_tasks: int = 0
    """Of an elastic job that was resized: the number of tasks with which it was submitted."""
    resize_to: int = 0
    """Of an elastic job that has active tasks: the number of tasks of its next launch. 0: as many as it has now."""
    beyond: int = 0
    """Of an elastic job that has active tasks: how many of its tasks (of its next launch, if `resize_to` is set), the last
    ones, are beyond its guarantee. Such tasks are opportunistic, and the job queues without them. Of one that waits: how many
    it has beside the tasks in its spec if there is room when it starts."""
    grace_follows: bool = False
    """Its user has given no grace period: it follows from what its saves take."""
    grace_wanted_us: Micros = 0
    """The longest grace period that its runs have asked for; 0: they have asked for none."""
    grace_now_us: Micros | None = None
    """The grace period in its spec, if it is another than at first. None: it is that of its submission."""
    submitted_grace_us: Micros = 0
    """Of a job whose grace period was changed: that of its submission."""
    share_now: ShareMode | None = None
    """How it holds its devices, if that was changed. None: as its submission says."""
    share_next: ShareMode | None = None
    """Of a job that has active tasks: how its next launch holds its devices. None: as now."""
    submitted_share: ShareMode = ShareMode.EXCLUSIVE
    """Of a job for which this was changed: what its submission said."""
    profile: Profile | None = None
    """How it runs while nobody else executes on its devices, if that was measured."""
    saved_on: int = 0
    """The node of its last launch, if other nodes can fetch its checkpoints there. 0: none, or unknown."""
    numbered: int = 0
    """The highest number that was given to a launch which did not begin: the next one has a higher one. 0: none was."""
    skip_steps: int = 0
    """How many steps, from its first one on, its next launches count without taking them. 0: none."""
    last_save: LaunchSave | None = None
    """Whether its last launch of which a task has ended had saved its work; None: nothing was to be saved, or no agent said."""
    set_aside: str = ""
    """Why the scheduler holds it, and does nothing more for it, until somebody releases it. Empty: it does not."""
    sampled_memory: tuple[SampledMemory, ...] = ()
    """Of configurations whose samples were seen to use less than the default: what they ask for now."""

    @property
    def next_run(self) -> int:
        """The number of its next launch."""
        return max(self.run, self.numbered) + 1

    def needs(self) -> Needs:
        """As `JobSpec.needs`. A packed job shares a device with jobs of its user."""
        needs = self.spec.needs()
        return (*needs[:-1], self.user) if self.spec.share is ShareMode.PACKED else needs

    @property
    def launch_spec(self) -> JobSpec:
        """What its current or last launch asks for."""
        return self.spec.configured(self.configuration) if self.spec.alternatives else self.spec

    def resized(self, tasks: int) -> "Job":
        """The job with so many tasks. It has no active task."""
        submitted = self.submitted_tasks or self.spec.gang[0].size
        return changed(self, spec=self.spec.resized(tasks), tasks=tasks, submitted_tasks=submitted, resize_to=0, beyond=0)

    @property
    def queued_tasks(self) -> int:
        """Of an elastic job: with how many tasks it queues when its launch is over."""
        return (self.resize_to or self.spec.gang[0].size) - self.beyond

    def with_grace(self, grace_us: Micros) -> "Job":
        """The job with this grace period, for every stop from now on."""
        submitted = self.spec.grace_us if self.grace_now_us is None else self.submitted_grace_us
        return changed(self, spec=changed(self.spec, grace_us=grace_us), grace_now_us=grace_us, submitted_grace_us=submitted)

    def with_share(self) -> "Job":
        """The job as it holds devices from its next launch on."""
        if self.share_next is None:
            return self
        submitted = self.spec.share if self.share_now is None else self.submitted_share
        spec = changed(self.spec, share=self.share_next)
        return changed(self, spec=spec, share_now=self.share_next, share_next=None, submitted_share=submitted)

    def as_submitted(self) -> JobSpec:
        """What the user asked for at first."""
        spec = self.spec.resized(self.submitted_tasks) if self.submitted_tasks else self.spec
        spec = spec if self.share_now is None else changed(spec, share=self.submitted_share)
        for one in self.sampled_memory:
            spec = spec.with_memory(one.configuration, one.default_mib)
        return spec if self.grace_now_us is None else changed(spec, grace_us=self.submitted_grace_us)

    def configured(self, number: int) -> "Job":
        """The job as if it had this configuration alone: what policies place. It is never a row of the state."""
        return changed(self, spec=self.spec.configured(number), configuration=number) if self.spec.alternatives else self

    def in_each_configuration(self) -> "tuple[Job, ...]":
        """The job as if it had one configuration alone, for each that it has, in the user's order."""
        if not self.spec.alternatives:
            return (self,)
        specs = self.spec.in_each_configuration()
        return tuple(changed(self, spec=spec, configuration=number) for number, spec in enumerate(specs))
