"""The state of the fake cluster. `_lifecycle` changes it, and `_handlers` serves the requests of users.

Not thread-safe by itself; the server and the test synchronize by its `changed`.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ebb.v1 import cluster_pb2, job_pb2, scheduler_pb2
from google.protobuf.duration_pb2 import Duration

from client_sdk.errors import FailedPrecondition, NotFound
from client_sdk.models import ENDED, Dependency, Job, JobClass, JobEventKind, JobReason, JobState, Resources
from client_sdk.testing._output import Output, output

ACTIVE = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ends."""

    exit_code: int = 0
    exit_signal: int = 0
    """The signal that ended it, or 0."""
    done: bool = False
    """It reported in EBB_DONE_FILE that its work is done: with exit code 0 it has finished, even after a stop signal."""
    launch_error: str = ""
    """Why the command could not be executed; empty if it was."""
    output: str = ""
    """Its output, for `Client.logs`."""


Script = Callable[[Job], Outcome | None]
"""Called with each job when a run starts; returns how the run ends, or None to leave it running. It must not call the
cluster."""


@dataclass
class State:
    nodes: Mapping[str, Resources]
    script: Script
    by_hand: bool
    user: str
    folder: Path
    changed: threading.Condition = field(default_factory=threading.Condition)
    jobs: dict[int, job_pb2.Job] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)
    waits_for: dict[int, tuple[Dependency, ...]] = field(default_factory=dict)
    """Dependencies of the jobs that wait for other jobs, by job."""
    first_graces: dict[int, Duration] = field(default_factory=dict)
    """Submitted grace periods of the jobs whose grace period was changed, by job."""
    drains: dict[str, cluster_pb2.NodeDrain] = field(default_factory=dict)
    unsaved: set[int] = field(default_factory=set)
    """Jobs that lose their work if they are stopped."""
    observations: dict[str, cluster_pb2.NodeObservations] = field(default_factory=dict)
    """Observations, by node."""
    shares: scheduler_pb2.SharesResponse | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    """Snapshots, by digest."""
    results: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """Results of runs, by job and run."""
    runs: dict[int, list[job_pb2.Run]] = field(default_factory=dict)
    """Runs by job, in the order in which they started."""
    commit_no: int = 0
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    _commits: dict[int, int] = field(default_factory=dict)
    _story: dict[int, list[job_pb2.JobEvent]] = field(default_factory=dict)

    # ---- changes -------------------------------------------------------------------------------------------------------

    def add(self, spec: job_pb2.JobSpec) -> job_pb2.Job:
        """A job that is queued, in no story yet."""
        job = job_pb2.Job(id=len(self.jobs) + 1, spec=spec, user=self.user, state=job_pb2.JOB_STATE_QUEUED)
        job.priority = spec.priority
        if spec.HasField("time_limit"):
            job.time_limit.CopyFrom(spec.time_limit)
        if spec.HasField("array"):
            job.array.size = job.array.pending = spec.array.size
        set_now(job.submit_time)
        self.jobs[job.id] = job
        return job

    def show(self, job: job_pb2.Job, state: JobState, reason: JobReason = JobReason.UNSPECIFIED, cause: int = 0) -> None:
        job.state, job.reason, job.cause_job_id = int(state), int(reason), cause  # type: ignore[assignment]

    def show_queued(self, job: job_pb2.Job) -> None:
        """With the reason that goes with what it waits for, other than room."""
        waits = self.waits_for.get(job.id)
        if job.held:
            self.show(job, JobState.QUEUED, JobReason.HELD)
        elif waits:
            self.show(job, JobState.QUEUED, JobReason.DEPENDENCY, waits[0].job_id)
        else:
            self.show(job, JobState.QUEUED)

    def tell(self, job: job_pb2.Job, kind: JobEventKind, **facts: Any) -> None:
        """Add an event of the job, as a commit that its watchers receive."""
        self.touch(job)
        event = job_pb2.JobEvent(job_id=job.id, kind=int(kind), commit_no=self.commit_no, **facts)  # type: ignore[arg-type]
        set_now(event.time)
        self._story.setdefault(job.id, []).append(event)

    def touch(self, job: job_pb2.Job) -> None:
        self.commit_no += 1
        self._commits[job.id] = self.commit_no
        self.changed.notify_all()

    # ---- what is asked about -------------------------------------------------------------------------------------------

    def known(self, job_id: int) -> job_pb2.Job:
        if job_id not in self.jobs:
            raise NotFound(
                f"there is no job {job_id}; `ebb list --all` shows those there are",
                reason="NO_SUCH_JOB",
                metadata={"job_id": str(job_id)},
            )
        return self.jobs[job_id]

    def require(self, job: job_pb2.Job, *states: JobState) -> None:
        """For what a test does."""
        if state_of(job) not in states:
            wanted = " or ".join(state.name for state in states)
            raise FailedPrecondition(f"job {job.id} is {state_of(job).name}; for this it must be {wanted}")

    def find(self, job_id: int) -> job_pb2.Job:
        """The job as it is shown: those behind the first of their queue wait for it. Raises NotFound."""
        shown = job_pb2.Job()
        shown.CopyFrom(self.known(job_id))
        if state_of(shown) == JobState.QUEUED and not shown.reason and not self.by_hand:
            first = next(self.queue(class_of(shown)), None)
            if at_limit(shown):
                shown.reason = job_pb2.JOB_REASON_ARRAY_LIMIT
            elif first is not None and first.id != job_id:
                shown.reason, shown.cause_job_id = job_pb2.JOB_REASON_BEHIND, first.id
            else:
                shown.reason = job_pb2.JOB_REASON_NO_ROOM
        return shown

    def queue(self, job_class: JobClass) -> Iterator[job_pb2.Job]:
        """Return the queue, sorted by priority, then jobs that have run before, then submission."""
        queued = (job for job in self.jobs.values() if class_of(job) == job_class and self._stands_in_queue(job))
        return iter(sorted(queued, key=lambda job: (-job.priority, job.run == 0, job.id)))

    def _stands_in_queue(self, job: job_pb2.Job) -> bool:
        if state_of(job) != JobState.QUEUED or job.held or self.waits_for.get(job.id):
            return False
        return not job.HasField("array") or (job.array.pending > 0 and not at_limit(job))

    def story(self, job_id: int) -> list[job_pb2.JobEvent]:
        return self._story[self.known(job_id).id]

    def page(self, request: scheduler_pb2.ListRequest) -> scheduler_pb2.ListResponse:
        before, size = int(request.page_token or 2**63), request.page_size or 100
        wanted = {JobState(state) for state in request.states if state}
        if of := request.virtual_cluster:  # no fake cluster has any, nor jobs of them
            raise NotFound(f"there is no virtual cluster {of!r}; there are: none", reason="NO_SUCH_VC", metadata={"vc": of})
        older = [i for i in self.jobs if i < before]
        theirs = [i for i in older if request.user in ("", self.jobs[i].user) and request.name in ("", self.jobs[i].spec.name)]
        found = [i for i in sorted(theirs, reverse=True) if not wanted or state_of(self.jobs[i]) in wanted]
        more = len(found) - size
        return scheduler_pb2.ListResponse(
            jobs=[self.find(i) for i in found[:size]],
            next_page_token=str(found[size - 1]) if more > 0 else "",
            more=max(more, 0) if request.count_more else 0,
        )

    def since(self, commit_no: int, job_id: int) -> tuple[bool, list[job_pb2.Job]]:
        """For a watch: the jobs that changed after a commit, or (True) everything, where there is no such commit."""
        if 0 < commit_no <= self.commit_no:
            return False, [self.find(i) for i, at in sorted(self._commits.items()) if at > commit_no and job_id in (0, i)]
        live = [i for i, job in self.jobs.items() if i == job_id or (not job_id and state_of(job) not in ENDED)]
        return True, [self.find(i) for i in live]

    def output(self, request: scheduler_pb2.LogsRequest) -> Output:
        return output(self.find(request.job_id), request, self.folder)


def state_of(job: job_pb2.Job) -> JobState:
    return JobState(job.state)


def at_limit(job: job_pb2.Job) -> bool:
    """Whether the maximum number of an array's elements is running."""
    most = job.spec.array.at_once
    return bool(most) and job.array.live >= most


def class_of(job: job_pb2.Job) -> JobClass:
    return JobClass(job.spec.job_class)


def set_now(field: Any) -> None:
    field.FromDatetime(datetime.now(UTC))


def set_tasks(spec: job_pb2.JobSpec, tasks: int) -> None:
    """Gives an elastic job so many tasks."""
    (group,) = spec.task_groups
    group.count = tasks
    for name in ("cpu_milli", "memory_mib", "devices"):
        setattr(spec.resources, name, tasks * getattr(group.resources, name))
