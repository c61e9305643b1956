"""Jobs as they stand, what changes in them, and what happened to them."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from client_sdk._values.enums import JobEventKind, JobReason, JobState, ShareMode, TurnState
from client_sdk._values.estimates import ConfigurationEstimate
from client_sdk._values.profiles import Profile
from client_sdk._values.runs import Operation, SaveResult
from client_sdk._values.specs import JobSpec, Resources
from client_sdk._values.steps import MiniBatch, RunSteps


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task of a job's current or last run; a job that is no gang has one, of rank 0."""

    rank: int
    node: str
    devices: tuple[int, ...]
    """Indices of its devices on that node."""
    resources: Resources
    log_path: str | None = None
    guaranteed: bool = False
    """It holds cells of its virtual cluster; else it goes when somebody has a right to its devices."""
    program: str | None = None
    """The file that its node executed for the first word of the command; None until it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closeness:
    """How close the devices of a job are to each other."""

    devices: int
    """All of them, on so many `nodes`."""
    nodes: int
    within: str
    """The smallest part of a node that has all of those on it: the name of a level of its device tree, such as "switch", or
    "node". If they are on several nodes: the largest such part of any of them."""
    nvlink: bool = False
    """On each node, one NVLink domain has all of those on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """Some of the jobs that were asked for, newest first."""

    jobs: tuple["Job", ...]
    next_page_token: str
    """Gives the next page; empty on the last one."""
    more: int = 0
    """How many jobs follow this page; at most 1,000,000 are counted. 0 if they were not to be counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayStatus:
    """How the elements of an array stand. Each is a job of its own from its first start on."""

    size: int
    pending: int
    """Not started yet."""
    live: int
    """Started and not ended; preempted ones count."""
    succeeded: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it stood when the scheduler answered."""

    id: int
    spec: JobSpec
    user: str = ""
    state: JobState = JobState.UNSPECIFIED
    reason: JobReason = JobReason.UNSPECIFIED
    reason_detail: str = ""
    """A sentence for people where the reason alone does not say all."""
    cause_job_id: int | None = None
    """The job behind the reason: who is ahead, or for whom it was preempted."""
    run: int = 0
    """Launches so far, and the number of the current or last one."""
    node: str | None = None
    """Where the current or last run is."""
    devices: tuple[int, ...] = ()
    """Indices of its devices on that node."""
    submit_time: datetime | None = None
    start_time: datetime | None = None
    """When the first run's process began."""
    end_time: datetime | None = None
    exit_code: int = 0
    """Of the last run that ended; so is `exit_signal`, which is 0 unless a signal ended it. 0, too, where nobody knows."""
    exit_signal: int = 0
    preempted_for_trial: int = 0
    """How often it was preempted for a trial."""
    cancel_requested: bool = False
    log_path: str | None = None
    """Standard output and error of the current or last run, as a path on its node."""
    priority: int = 0
    """Now; `spec` says what was asked for at first. So it is with `time_limit`."""
    time_limit: timedelta | None = None
    run_time: timedelta = timedelta(0)
    """How long its runs have run, those that are over."""
    executed_time: timedelta = timedelta(0)
    """How long its runs have executed, without the time in which they were parked or waited for their turns: this, and what
    has passed since `executing_since` if that is set (see `executed`). Not set for an array."""
    executing_since: datetime | None = None
    executing_part_ppm: int = 0
    """Of a job that takes turns: the part of the time since then in which it may compute, in millionths. 0: all of it."""
    turn: TurnState = TurnState.UNSPECIFIED
    """Set by `Client.get` and `Client.list`: of a job that takes turns, whether it has its devices now."""
    held: bool = False
    set_aside: str = ""
    """Why the scheduler holds it, and does nothing more for it, until somebody releases it. Empty: it does not."""
    suspend_requested: bool = False
    retries: int = 0
    """Failed runs that were followed by another."""
    eligible_time: datetime | None = None
    """A retry starts no sooner."""
    tasks: tuple[Task, ...] = ()
    """Every task of the current or last run; `node`, `devices` and `log_path` above are those of rank 0."""
    array_job_id: int | None = None
    """For an element of an array: the array, and in `array_index` which of them it is."""
    array_index: int | None = None
    array: ArrayStatus | None = None
    """For an array: how its elements stand."""
    guaranteed: bool = False
    """The current or last run holds cells of its virtual cluster."""
    configuration: int = 0
    """That of the current or last run, by its number in `spec.configurations`."""
    resize_to: int = 0
    """Of an elastic job that is being resized: the number of tasks of its next run. 0: as many as `spec` says."""
    steps: tuple[RunSteps, ...] = ()
    """Set by `Client.get` only: the tasks that run and count their steps, by rank. Empty if the node is silent or a standby
    answers."""
    estimates: tuple[ConfigurationEstimate, ...] = ()
    """How long the job takes in each of its configurations, as far as it is known. Empty if only the user has said it."""
    sampling: bool = False
    """The current run is a sample: it is stopped when its configuration has been measured."""
    grace_follows: bool = False
    """The grace period follows from what the saves of the job take, up to the site's limit. `spec` has the present one."""
    skip_steps: int = 0
    """How many steps, from its first one on, its next launches count without taking them (see `Client.update`)."""
    grace_wanted: timedelta | None = None
    """The longest grace period that a run of the job has asked for; None: none has asked for more than the job had."""
    share_next: ShareMode | None = None
    """How its next run holds its device, if that is otherwise than now."""
    profile: Profile | None = None
    """How it runs while nobody else executes on its devices; None: that was not measured, or the policy does not go by it."""
    operation: Operation | None = None
    """What is being done to its run."""
    parked: bool = False
    """Its run is parked: its process is in the memory of its node, and its devices are free for others."""
    closeness: Closeness | None = None
    """Set by `Client.get` and `Client.explain` only: how close the devices of its run are to each other; None if it has fewer
    than two, and if a standby answers."""
    mini_batches: tuple[MiniBatch, ...] = ()
    """Set by `Client.get` only, like `steps`: the tasks of which a source knows the mini-batch time, by rank."""
    began_from: str | None = None
    """Set by `Client.get` only: the name of the checkpoint from which its last run (task 0) began, if the program says so."""
    checkpoint: str | None = None
    """Set by `Client.get` only: the name of the last checkpoint that this run has saved, if the program says so."""
    last_save: SaveResult | None = None
    """Whether the last launch that has ended had saved what it had done: of a gang, what is worst of its tasks. None: none has
    ended, there was nothing to save, or its agent does not say."""

    def executed(self, now: datetime) -> timedelta:
        """How long its runs have executed until now, without the time in which they were parked or waited for their turns, or
        the job queued."""
        if self.executing_since is None:
            return self.executed_time
        return self.executed_time + (now - self.executing_since) * (self.executing_part_ppm or 1_000_000) / 1_000_000

    @property
    def ended(self) -> bool:
        """Whether the job has its end state."""
        return self.state.ended


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUpdate:
    """One message of a watch. A snapshot replaces everything that was known; any other adds to it."""

    snapshot: bool
    jobs: tuple[Job, ...]
    commit_no: int
    """Where a later watch can go on from; 0 where more of the same follows, as many jobs come in several updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One run that a preemption decision considered, with its numbers in FitGpp's Eqns 1-3."""

    job_id: int
    run: int
    node: str
    demand: Resources
    node_free: Resources
    """Unallocated on its node when the decision was taken."""
    size: float
    """Eqn 1: the length of its demand, each resource in shares of its node's capacity."""
    grace_period: timedelta
    score: float
    """Eqn 3: the lowest of those that may go is chosen."""
    preempted_for_trial: int
    """How often its job was preempted for trials before."""
    sufficient: bool
    """With this run gone, the trial fits on its node (Eqn 2)."""
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
    """How much a grace period weighs beside the size (Eqn 3)."""
    cap: int
    """P: a job that was preempted for trials so often is spared (Eqn 4)."""
    max_size: float
    """The largest size of those considered, by which Eqn 3 divides."""
    max_grace_period: timedelta
    """The longest grace period of those considered, by which Eqn 3 divides."""
    considered: int
    """How many runs were considered; `candidates` are those of lowest score."""
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """A line of a job's story."""

    job_id: int
    time: datetime | None
    kind: JobEventKind
    run: int = 0
    node: str | None = None
    reason: JobReason = JobReason.UNSPECIFIED
    cause_job_id: int | None = None
    exit_code: int = 0
    """So is `exit_signal`: 0 where the run went on, or where nobody knows (then the reason may be EXIT_UNKNOWN)."""
    exit_signal: int = 0
    text: str = ""
    decision: Decision | None = None
    commit_no: int = 0
    """The commit that made it durable; orders events across jobs."""
