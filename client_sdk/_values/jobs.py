"""Jobs, their tasks, updates, events and preemption decisions."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from client_sdk._values.enums import JobState, ShareMode, TurnState
from client_sdk._values.estimates import ConfigurationEstimate
from client_sdk._values.job_event_kinds import JobEventKind
from client_sdk._values.job_reasons import JobReason
from client_sdk._values.runs import Operation, SaveResult
from client_sdk._values.specs import JobSpec, Resources
from client_sdk._values.steps import MiniBatch, Profile, RunSteps


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task of a job's current or last run; a job that is not a gang has one task, of rank 0."""

    rank: int
    node: str
    devices: tuple[int, ...]
    """Indices of its devices on that node."""
    resources: Resources
    log_path: str | None = None
    guaranteed: bool = False
    """It holds cells of its virtual cluster; if not, its devices can be reclaimed."""
    program: str | None = None
    """The file that its node executed for the first word of the command; None until the task runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closeness:
    """How close the devices of a job are to each other."""

    devices: int
    """The number of devices, on all `nodes` together."""
    nodes: int
    within: str
    """The smallest part of a node that contains all of the job's devices there: the name of a level of its device tree, such as
    "switch", or "node". On several nodes: the largest such part of any of them."""
    nvlink: bool = False
    """On each node, all of the job's devices are in one NVLink domain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """A page of the jobs of a list, newest first."""

    jobs: tuple["Job", ...]
    next_page_token: str
    """The token of the next page; empty on the last one."""
    more: int = 0
    """The number of jobs after this page; at most 1,000,000 are counted. 0 if counting was not requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayStatus:
    """The number of an array's elements in each state. From its first start on, each element is a job."""

    size: int
    pending: int
    """Not yet started."""
    live: int
    """Started and not ended, including preempted ones."""
    succeeded: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job, in its state at the time of the scheduler's answer."""

    id: int
    spec: JobSpec
    user: str = ""
    state: JobState = JobState.UNSPECIFIED
    reason: JobReason = JobReason.UNSPECIFIED
    reason_detail: str = ""
    """A sentence for people, if the reason alone is not sufficient."""
    cause_job_id: int | None = None
    """The job behind the reason: the one that is ahead, for example, or for which it was preempted."""
    run: int = 0
    """The number of launches so far, which is the number of the current or last run."""
    node: str | None = None
    """The node of the current or last run."""
    devices: tuple[int, ...] = ()
    """Indices of its devices on that node."""
    submit_time: datetime | None = None
    start_time: datetime | None = None
    """When the first run's process began."""
    end_time: datetime | None = None
    exit_code: int = 0
    """The exit code of the last run that ended. `exit_signal` is the signal that ended it, or 0. Both are 0 if unknown."""
    exit_signal: int = 0
    preempted_for_trial: int = 0
    """The number of preemptions for trials."""
    cancel_requested: bool = False
    log_path: str | None = None
    """Standard output and error of the current or last run, as a path on its node."""
    priority: int = 0
    """The current priority; `spec` has the submitted one. The same holds for `time_limit`."""
    time_limit: timedelta | None = None
    run_time: timedelta = timedelta(0)
    """The total run time of its ended runs."""
    executed_time: timedelta = timedelta(0)
    """The total time that its runs have executed, without the time in which they were parked or waited for their turns, until
    `executing_since`, if that is set (see `executed`). Not set for an array."""
    executing_since: datetime | None = None
    executing_part_ppm: int = 0
    """For a job that takes turns: the part of the time since then in which it may execute, in millionths. 0: all of it."""
    turn: TurnState = TurnState.UNSPECIFIED
    """For a job that takes turns: whether it has its devices now. Set by `Client.get` and `Client.list`."""
    held: bool = False
    set_aside: str = ""
    """Why the scheduler holds the job, and does nothing with it, until a user releases it. Empty: it does not hold the job."""
    suspend_requested: bool = False
    retries: int = 0
    """The number of failed runs that were retried."""
    eligible_time: datetime | None = None
    """The earliest time at which a retry starts."""
    tasks: tuple[Task, ...] = ()
    """Every task of the current or last run; `node`, `devices` and `log_path` above are those of rank 0."""
    array_job_id: int | None = None
    """For an element of an array: the ID of the array; `array_index` is its index there."""
    array_index: int | None = None
    array: ArrayStatus | None = None
    """For an array: the states of its elements."""
    guaranteed: bool = False
    """The current or last run holds cells of its virtual cluster."""
    configuration: int = 0
    """The configuration of the current or last run, by its number in `spec.configurations`."""
    resize_to: int = 0
    """For an elastic job that is being resized: the number of tasks of its next run. 0: the number in `spec`."""
    steps: tuple[RunSteps, ...] = ()
    """The progress of running tasks that count their steps, by rank. Set by `Client.get` only. Empty if the node is silent or a
    standby answers."""
    estimates: tuple[ConfigurationEstimate, ...] = ()
    """The expected run time in each configuration, as far as it is known. Empty if only the user has given estimates."""
    sampling: bool = False
    """The current run is a sample: it is stopped once its configuration has been measured."""
    grace_follows: bool = False
    """The grace period is adapted to how long the job's saves take, up to the site's limit. `spec` has the current one."""
    skip_steps: int = 0
    """The number of steps, from its first one, that its next launches count without executing them (see `Client.update`)."""
    grace_wanted: timedelta | None = None
    """The longest grace period that a run of the job has requested; None: none has requested more than the job had."""
    share_next: ShareMode | None = None
    """Sharing mode of its next run, if it differs from the current one."""
    profile: Profile | None = None
    """Its profile when it runs alone on its devices; None: it was not measured, or the policy does not use profiles."""
    operation: Operation | None = None
    """The operation on its run that is in progress."""
    parked: bool = False
    """Its run is parked: its process is in the memory of its node, and its devices are free for others."""
    closeness: Closeness | None = None
    """How close the devices of its run are to each other. Set by `Client.get` and `Client.explain` only; None if it has fewer
    than two devices, or if a standby answers."""
    mini_batches: tuple[MiniBatch, ...] = ()
    """The mini-batch times of its tasks for which a source knows it, by rank. Set by `Client.get` only, like `steps`."""
    began_from: str | None = None
    """The checkpoint from which its last run (task 0) started, if the program reports it. Set by `Client.get` only."""
    checkpoint: str | None = None
    """The last checkpoint that this run has saved, if the program reports it. Set by `Client.get` only."""
    last_save: SaveResult | None = None
    """Whether the last launch that ended saved its work; for a gang, the worst result of its tasks. None: none has ended, there
    was nothing to save, or its agent does not report it."""

    def executed(self, now: datetime) -> timedelta:
        """Return the time that its runs have executed until now, without the time in which they were parked or waited."""
        if self.executing_since is None:
            return self.executed_time
        return self.executed_time + (now - self.executing_since) * (self.executing_part_ppm or 1_000_000) / 1_000_000

    @property
    def ended(self) -> bool:
        """Whether the job is in an end state."""
        return self.state.ended


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUpdate:
    """One message of a watch. A snapshot replaces everything known so far; any other update adds to it."""

    snapshot: bool
    jobs: tuple[Job, ...]
    commit_no: int
    """The commit from which a later watch can continue; 0 if more updates of the same snapshot or change follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One run that a preemption decision considered, with its numbers in FitGpp's Eqns 1-3."""

    job_id: int
    run: int
    node: str
    demand: Resources
    node_free: Resources
    """The unallocated resources of its node at the time of the decision."""
    size: float
    """Eqn 1: the norm of its demand, with each resource as a fraction of its node's capacity."""
    grace_period: timedelta
    score: float
    """Eqn 3: among the eligible candidates, the one with the lowest score is chosen."""
    preempted_for_trial: int
    """The number of earlier preemptions of its job for trials."""
    sufficient: bool
    """The trial would fit on its node without this run (Eqn 2)."""
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Why these runs were preempted: FitGpp's Eqns 1-4 with their numbers."""

    trial_job_id: int
    node: str
    demand: Resources
    rule: str
    """"fitgpp" when Eqn 4 chose one run, "random" when no single run was sufficient."""
    s: float
    """The weight of the grace period relative to the size (Eqn 3)."""
    cap: int
    """P: a job that was preempted for trials this many times is spared (Eqn 4)."""
    max_size: float
    """The largest size of those considered, by which Eqn 3 divides."""
    max_grace_period: timedelta
    """The longest grace period of those considered, by which Eqn 3 divides."""
    considered: int
    """The number of runs considered; `candidates` are those with the lowest scores."""
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """An event of a job."""

    job_id: int
    time: datetime | None
    kind: JobEventKind
    run: int = 0
    node: str | None = None
    reason: JobReason = JobReason.UNSPECIFIED
    cause_job_id: int | None = None
    exit_code: int = 0
    """0, like `exit_signal`, if the run continues, or if it is unknown (the reason may then be EXIT_UNKNOWN)."""
    exit_signal: int = 0
    text: str = ""
    decision: Decision | None = None
    commit_no: int = 0
    """The number of the commit that made it durable; orders events across jobs."""
