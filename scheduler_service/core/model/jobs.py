"""Jobs: what users submit, and what became of it."""

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
from scheduler_service.core.model.rows import dataclass, with_changes
from scheduler_service.core.model.saves import LaunchSave
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest, Guarantee
from scheduler_service.core.model.values import Micros, Vector


class Dependency(NamedTuple):
    job_id: int
    kind: DependencyKind


class Retry(NamedTuple):
    """Which failed runs are retried, and how many times."""

    limit: int = 0
    exit_codes: tuple[int, ...] = ()
    exit_signals: tuple[int, ...] = ()
    """With neither codes nor signals: every failure."""


class Array(NamedTuple):
    size: int
    at_once: int = 0
    """How many elements may be active at the same time; 0: any number."""


class Elements(NamedTuple):
    """Progress of an array's elements. Elements from `begun` on have no row yet."""

    begun: int = 0
    live: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True)
class JobSpec:
    """The request of a user. Only its number of tasks, grace period, share mode and host memory ever change;
    `Job.as_submitted` restores the original values."""

    command: tuple[str, ...]
    demand: Vector
    """Resources of all tasks together."""
    job_class: JobClass = JobClass.BEST_EFFORT
    grace_us: Micros = 0
    name: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    working_directory: str = ""
    priority: int = 0
    time_limit_us: Micros = 0
    """0: no limit."""
    estimate_us: Micros = 0
    """Expected total run time; 0: unknown."""
    retry: Retry = Retry()
    gang: tuple[TaskGroup, ...] = ()
    """Empty: one task."""
    dependencies: tuple[Dependency, ...] = ()
    array: Array | None = None
    vc: str = ""
    """The virtual cluster that it belongs to; empty on a site without virtual clusters."""
    guarantee: Guarantee = Guarantee.GUARANTEED
    cells: CellRequest = CellRequest()
    exit_0_after_stop: Exit0AfterStop = Exit0AfterStop.STOPPED
    inherited: tuple[tuple[str, str], ...] = ()
    """Variables inherited from the environment of the submitting user; `environment` overrides them."""
    device_memory_mib: int = 0
    """Minimum memory of each of its devices; 0: any."""
    nodes: NodeSelector = ANY_NODE
    alternatives: tuple[Configuration, ...] = ()
    """Other configurations in which it can run, numbered 1, 2, ...; the fields above are configuration 0."""
    project: str = ""
    """The project to which usage-based policies charge the job; empty: none."""
    checkpoint_signal: str = ""
    """The signal by which its agent asks its program to save, such as USR1 or USR1@60; empty: SIGTERM."""
    checkpoint_command: str = ""
    """The /bin/sh command by which its agent saves the program's work; empty: none."""
    snapshots: tuple[str, ...] = ()
    """Digests of the snapshots that its nodes unpack before it starts."""
    min_tasks: int = 0
    """Minimum number of tasks of an elastic job; 0: the number of tasks is fixed."""
    max_tasks: int = 0
    """Maximum number of tasks of an elastic job; 0: the number of tasks is fixed."""
    gpu_fraction_ppm: int = 0
    """Part of one device that it requests, in millionths; 0: whole devices, or the part that matches `gpu_memory_mib`."""
    gpu_memory_mib: int = 0
    """Maximum memory of one device that it uses; 0: the amount that matches the part that it requests."""
    share: ShareMode = ShareMode.EXCLUSIVE
    """How it holds its devices. A job that shares requests a part of one device, and has one task and no alternatives."""
    memory_left: tuple[int, ...] = ()
    """Configurations with one task, of a job with alternatives, for which the user specified no memory. They get the default
    until a sample has measured their use."""

    @property
    def shares(self) -> bool:
        """Whether it requests a part of a device."""
        return self.share is not ShareMode.EXCLUSIVE

    @property
    def elastic(self) -> bool:
        """Whether it may be resized. If so, it is a gang of one group and has no alternatives."""
        return self.max_tasks > 0

    def with_tasks(self, tasks: int) -> "JobSpec":
        """Return the spec of this elastic job with the given number of tasks."""
        (group,) = self.gang
        demand = Vector(*(part * tasks for part in group.demand))
        return with_changes(self, gang=(group._replace(size=tasks),), demand=demand)

    def with_memory(self, configuration: int, memory_mib: int) -> "JobSpec":
        """Return the spec with the given host memory for the one task of this configuration."""
        if configuration == 0:
            return with_changes(self, demand=self.demand._replace(memory_mib=memory_mib))
        others = list(self.alternatives)
        one = others[configuration - 1]
        others[configuration - 1] = one._replace(demand=one.demand._replace(memory_mib=memory_mib))
        return with_changes(self, alternatives=tuple(others))

    def tasks(self) -> tuple[Vector, ...]:
        """Return the resources that each task needs, in rank order."""
        return _tasks(self.gang) if self.gang else (self.demand,)

    def needs(self) -> "Needs":
        """Return everything that decides where the job may run: jobs with equal needs fit in the same places."""
        part = self.gpu_fraction_ppm, self.gpu_memory_mib, int(self.share)
        return self.demand, self.gang, self.cells, self.device_memory_mib, self.nodes, self.alternatives, part, ""

    def in_configuration(self, number: int) -> "JobSpec":
        """Return the user's request in the configuration with this number, without alternatives."""
        if not self.alternatives:
            return self
        if number == 0:
            return with_changes(self, alternatives=())
        other = self.alternatives[number - 1]
        return with_changes(
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
        """Return the user's request in each configuration, in the user's order."""
        if not self.alternatives:
            return (self,)
        return tuple(self.in_configuration(number) for number in range(len(self.alternatives) + 1))


Needs = tuple[
    Vector, tuple[TaskGroup, ...], CellRequest, int, NodeSelector, tuple[Configuration, ...], tuple[int, int, int], str
]
"""The last element is the user, if the job shares devices only with jobs of the same user; else empty."""


@lru_cache(maxsize=1024)
def _tasks(gang: tuple[TaskGroup, ...]) -> tuple[Vector, ...]:
    """Cached, because it is called on every look at a waiting gang and few gangs differ."""
    return tuple(group.demand for group in gang for _ in range(group.size))


@dataclass(frozen=True)
class Job:
    id: int
    spec: JobSpec
    user: str
    request_id: str
    """Empty if the client gave none."""
    submitted_us: Micros
    state: JobState = JobState.QUEUED
    reason: Reason = Reason.NONE
    detail: str = ""
    cause_job: int = 0
    """The job behind the reason, or 0."""
    run: int = 0
    """The current or last launch, counted from 1."""
    requeued: bool = False
    """It has run before, so it queues ahead of jobs that have not (FitGpp section 3: the top of the queue)."""
    preempted_for_trial: int = 0
    """PreemptionCount of Eqn 4: preemptions by trials, counted when the signal is decided."""
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
    """Failed runs that were retried."""
    eligible_us: Micros | None = None
    """Earliest time at which it may start; None: now."""
    ran_us: Micros = 0
    """Total run time of its launches that have ended."""
    limit_us: Micros | None = None
    """When the running launch reaches its time limit."""
    start_by_us: Micros | None = None
    """Time by which every task of the gang that is being started must run."""
    rendezvous: str = ""
    """Address (host:port) at which the tasks of the launch meet, once all are ready."""
    task_nodes: tuple[int, ...] = ()
    """Node of each task of a gang's current or last launch, by rank."""
    failed_on: tuple[int, ...] = ()
    """Nodes on which runs failed."""
    avoid: tuple[int, ...] = ()
    """Nodes that the next launch tries last: those where the last one failed, or where its gang did not assemble in time."""
    verdict: Reason = Reason.NONE
    """How the first task that failed ended, while other tasks have not ended."""
    left: bool = False
    """Some task exited because it was told to stop, while other tasks have not ended."""
    waits_for: tuple[Dependency, ...] = ()
    """Its dependencies that are not satisfied yet."""
    elements: Elements | None = None
    """Progress of its elements; None: it is not an array."""
    array_job: int = 0
    """The array that it is an element of, or 0."""
    array_index: int = 0
    configuration: int = 0
    """Configuration of the current or last launch, by number (see `JobSpec.alternatives`)."""
    ran_in: tuple[Micros, ...] = ()
    """The part of `ran_us` in each configuration of a job with alternatives; empty until the first launch has ended."""
    estimates: tuple[Estimate, ...] = ()
    """Estimates of its run time in its configurations that a policy has noted, including the user's; empty: none."""
    sampling: Sampling | None = None
    """The sample that its current launch is; None: it is not a sample."""
    tasks: int = 0
    """Number of tasks in the spec of an elastic job that was resized; 0: as many as it was submitted with."""
    submitted_tasks: int = 0
    """Number of tasks with which an elastic job that was resized was submitted."""
    resize_to: int = 0
    """Number of tasks of the next launch of an elastic job that has active tasks; 0: as many as it has now."""
    beyond: int = 0
    """Number of tasks of an elastic job beyond its guarantee: they are opportunistic, and the job queues without them. With
    active tasks: the last ones of its tasks, or of its next launch if `resize_to` is set. While it waits: tasks that it gets in
    addition to those in its spec if there is room when it starts."""
    grace_follows: bool = False
    """Its user gave no grace period: it follows from how long its saves take."""
    grace_wanted_us: Micros = 0
    """Longest grace period that its runs have requested; 0: none."""
    grace_now_us: Micros | None = None
    """Grace period in its spec, if it was changed since its submission; None: it was not."""
    submitted_grace_us: Micros = 0
    """Grace period at submission, if it was changed since."""
    share_now: ShareMode | None = None
    """Share mode in its spec, if it was changed since its submission; None: it was not."""
    share_next: ShareMode | None = None
    """Share mode of the next launch of a job that has active tasks; None: the current one."""
    submitted_share: ShareMode = ShareMode.EXCLUSIVE
    """Share mode at submission, if it was changed since."""
    profile: Profile | None = None
    """How it runs while no other job executes on its devices, if that was measured."""
    saved_on: int = 0
    """The node of its last launch, if other nodes can fetch its checkpoints there; 0: none, or unknown."""
    numbered: int = 0
    """Highest number that was given to a launch that did not begin (the next launch gets a higher one); 0: none."""
    skip_steps: int = 0
    """Number of its first training steps that its next launches skip, counting them as done; 0: none."""
    last_save: LaunchSave | None = None
    """Whether the last launch of which a task has ended saved its work; None: it had nothing to save, or no agent said."""
    set_aside: str = ""
    """Why the scheduler holds it, and does nothing more for it, until a user releases it; empty: it is not set aside."""
    sampled_memory: tuple[SampledMemory, ...] = ()
    """Current memory requests of configurations whose samples were seen to use less than the default."""
    node_faults_on: tuple[int, ...] = ()
    """Nodes of `failed_on` on which a failure was the node's own fault, and not that of what the job did there."""

    @property
    def next_run(self) -> int:
        """The number of the job's next launch."""
        return max(self.run, self.numbered) + 1

    def needs(self) -> Needs:
        """Return `JobSpec.needs`, with the user if the job is packed: it shares a device with jobs of its user."""
        needs = self.spec.needs()
        return (*needs[:-1], self.user) if self.spec.share is ShareMode.PACKED else needs

    @property
    def launch_spec(self) -> JobSpec:
        """The spec of the job's current or last launch, in its configuration."""
        return self.spec.in_configuration(self.configuration) if self.spec.alternatives else self.spec

    def with_tasks(self, tasks: int) -> "Job":
        """Return the job with the given number of tasks. It must have no active task."""
        submitted = self.submitted_tasks or self.spec.gang[0].size
        return with_changes(
            self, spec=self.spec.with_tasks(tasks), tasks=tasks, submitted_tasks=submitted, resize_to=0, beyond=0
        )

    @property
    def queued_tasks(self) -> int:
        """The number of tasks with which an elastic job queues when its launch has ended."""
        return (self.resize_to or self.spec.gang[0].size) - self.beyond

    def with_grace(self, grace_us: Micros) -> "Job":
        """Return the job with this grace period, for every stop from now on."""
        submitted = self.spec.grace_us if self.grace_now_us is None else self.submitted_grace_us
        return with_changes(
            self, spec=with_changes(self.spec, grace_us=grace_us), grace_now_us=grace_us, submitted_grace_us=submitted
        )

    def with_share(self) -> "Job":
        """Return the job with the share mode of its next launch."""
        if self.share_next is None:
            return self
        submitted = self.spec.share if self.share_now is None else self.submitted_share
        spec = with_changes(self.spec, share=self.share_next)
        return with_changes(self, spec=spec, share_now=self.share_next, share_next=None, submitted_share=submitted)

    def as_submitted(self) -> JobSpec:
        """Return the spec that the user submitted."""
        spec = self.spec.with_tasks(self.submitted_tasks) if self.submitted_tasks else self.spec
        spec = spec if self.share_now is None else with_changes(spec, share=self.submitted_share)
        for one in self.sampled_memory:
            spec = spec.with_memory(one.configuration, one.default_mib)
        return spec if self.grace_now_us is None else with_changes(spec, grace_us=self.submitted_grace_us)

    def in_configuration(self, number: int) -> "Job":
        """Return the job as if it had only this configuration. Policies place it; it is never a row of the state."""
        if not self.spec.alternatives:
            return self
        return with_changes(self, spec=self.spec.in_configuration(number), configuration=number)

    def in_each_configuration(self) -> "tuple[Job, ...]":
        """Return the job once for each configuration, as if it had only that one, in the user's order."""
        if not self.spec.alternatives:
            return (self,)
        specs = self.spec.in_each_configuration()
        return tuple(with_changes(self, spec=spec, configuration=number) for number, spec in enumerate(specs))
