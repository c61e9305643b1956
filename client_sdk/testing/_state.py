"""What the fake cluster holds and how that changes: the life of a job as the service gives it, without processes or time.

Not safe for several threads by itself; the server and the test take turns by its `changed`.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ebb.v1 import cluster_pb2, job_pb2, scheduler_pb2

from client_sdk import _convert
from client_sdk.errors import AlreadyExists, FailedPrecondition, NotFound
from client_sdk.models import ENDED, Job, JobClass, JobEventKind, JobReason, JobState, Resources
from client_sdk.testing._output import Output, log_file, output

ACTIVE = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ends."""

    exit_code: int = 0
    exit_signal: int = 0
    """The signal that ended it, or 0."""
    launch_error: str = ""
    """Why the command could not be executed, where it could not."""
    output: str = ""
    """What it wrote, for `Client.logs`."""


Script = Callable[[Job], Outcome | None]
"""Told of each run as it starts, it says how that ends; None leaves it running. It must not call the cluster."""


class State:
    def __init__(self, nodes: Mapping[str, Resources], script: Script, by_hand: bool, user: str, folder: Path) -> None:
        self.changed = threading.Condition()
        self.jobs: dict[int, job_pb2.Job] = {}
        self.commit_no = 0
        self._commits: dict[int, int] = {}
        self._story: dict[int, list[job_pb2.JobEvent]] = {}
        self._requests: dict[str, int] = {}
        self._nodes = dict(nodes)
        self._script = script
        self._by_hand = by_hand
        self._user = user
        self._folder = folder
        self._began = datetime.now(UTC)

    # ---- what users ask ------------------------------------------------------------------------------------------------

    def submit(self, request: scheduler_pb2.SubmitRequest) -> job_pb2.Job:
        spec = job_pb2.JobSpec()
        spec.CopyFrom(request.spec)
        spec.job_class = spec.job_class or job_pb2.JOB_CLASS_BEST_EFFORT
        if not spec.HasField("grace_period"):
            spec.grace_period.seconds = 30
        if (known := self._requests.get(request.request_id)) is not None:
            if self.jobs[known].spec != spec:
                raise AlreadyExists(
                    f"request_id {request.request_id!r} was already used for job {known}, which asks for something else; "
                    "take a new request_id for a new job",
                    reason="REQUEST_ID_REUSED",
                    metadata={"job_id": str(known)},
                )
            return self.find(known)
        demand = _convert.resources(spec.resources)
        if self._nodes and not any(_fits(demand, capacity) for capacity in self._nodes.values()):
            raise FailedPrecondition(
                f"no node of this cluster has {demand.devices} devices, {demand.cpus:g} CPUs and {demand.memory_mib} MiB, "
                "even when it is empty; ask for less, or see `ebb node list` for what there is",
                reason="NO_NODE_LARGE_ENOUGH",
            )
        job = job_pb2.Job(id=len(self.jobs) + 1, spec=spec, user=self._user, state=job_pb2.JOB_STATE_QUEUED)
        if request.request_id:
            self._requests[request.request_id] = job.id
        self.jobs[job.id] = job
        _set_now(job.submit_time)
        self._tell(job, JobEventKind.SUBMITTED)
        accepted = self.find(job.id)
        self._go_on()
        return accepted

    def cancel(self, job_id: int) -> job_pb2.Job:
        job = self._known(job_id)
        if job.cancel_requested or _state(job) in ENDED:
            return self.find(job_id)
        job.cancel_requested = True
        self._tell(job, JobEventKind.CANCEL_REQUESTED, run=job.run)
        if _state(job) == JobState.QUEUED:
            self._end(job, JobState.CANCELLED, JobReason.CANCELLED, Outcome())
            return self.find(job_id)
        self._show(job, JobState.STOPPING, JobReason.CANCELLED)
        told = self.find(job_id)
        if not self._by_hand:
            self.finish(job_id, Outcome(exit_signal=15))
        return told

    def find(self, job_id: int) -> job_pb2.Job:
        """The job as it is shown: those behind the first of their queue wait for it. Raises NotFound."""
        shown = job_pb2.Job()
        shown.CopyFrom(self._known(job_id))
        if _state(shown) == JobState.QUEUED and not shown.reason and not self._by_hand:
            first = next(self._queue(_class(shown)))
            if first.id == job_id:
                shown.reason = job_pb2.JOB_REASON_NO_ROOM
            else:
                shown.reason, shown.cause_job_id = job_pb2.JOB_REASON_BEHIND, first.id
        return shown

    def story(self, job_id: int) -> list[job_pb2.JobEvent]:
        return self._story[self._known(job_id).id]

    def page(self, request: scheduler_pb2.ListRequest) -> tuple[list[job_pb2.Job], str]:
        before, size = int(request.page_token or 2**63), request.page_size or 100
        wanted = {JobState(state) for state in request.states if state}
        found = [i for i in sorted(self.jobs, reverse=True) if i < before and (not wanted or _state(self.jobs[i]) in wanted)]
        return [self.find(i) for i in found[:size]], str(found[size - 1]) if len(found) > size else ""

    def since(self, commit_no: int, job_id: int) -> tuple[bool, list[job_pb2.Job]]:
        """For a watch: the jobs that changed after a commit, or (True) everything, where there is no such commit."""
        if 0 < commit_no <= self.commit_no:
            return False, [self.find(i) for i, at in sorted(self._commits.items()) if at > commit_no and job_id in (0, i)]
        return True, [self.find(i) for i, job in self.jobs.items() if i == job_id or (not job_id and _state(job) not in ENDED)]

    def output(self, request: scheduler_pb2.LogsRequest) -> Output:
        return output(self.find(request.job_id), request, self._folder)

    def nodes(self) -> Iterator[cluster_pb2.Node]:
        for name, capacity in self._nodes.items():
            groups = [
                cluster_pb2.ShareGroup(device=index, job_ids=[job.id])
                for job in self._on(name)
                for index in sorted(job.devices)
            ]
            yield cluster_pb2.Node(
                name=name,
                state=cluster_pb2.NODE_STATE_UP,
                capacity=_convert.resources_message(capacity),
                free=_convert.resources_message(self._free(name)),
                earmarked=job_pb2.Resources(),
                devices=[cluster_pb2.Device(index=i, uuid=f"{name}-{i}", model="Fake") for i in range(capacity.devices)],
                share_groups=groups,
                address="in-process",
                agent_version="fake",
                state_time=self._began,
            )

    # ---- what the test says --------------------------------------------------------------------------------------------

    def start(self, job_id: int) -> None:
        job = self._known(job_id)
        self._require(job, JobState.QUEUED)
        node = self._node_for(job)
        if node is None:
            raise FailedPrecondition(f"job {job_id} fits on no node now: finish another first")
        self._start(job, node)

    def finish(self, job_id: int, outcome: Outcome) -> None:
        job = self._known(job_id)
        if _state(job) == JobState.QUEUED:
            self.start(job_id)
        self._require(job, *sorted(ACTIVE))
        self._finish(job, outcome)
        self._go_on()

    def preempt(self, job_id: int, trial_id: int, outcome: Outcome | None) -> None:
        job, trial = self._known(job_id), self._known(trial_id)
        self._require(job, JobState.STARTING, JobState.RUNNING)
        if _class(job) != JobClass.BEST_EFFORT or _class(trial) != JobClass.TRIAL:
            raise FailedPrecondition("only best-effort jobs are preempted, and only for trials")
        job.preempted_for_trial += 1
        self._show(job, JobState.STOPPING, JobReason.PREEMPTED, trial_id)
        facts = {"run": job.run, "node": job.node, "reason": JobReason.PREEMPTED, "cause_job_id": trial_id}
        self._tell(job, JobEventKind.PREEMPTED, **facts)
        if outcome is not None:
            self.finish(job_id, outcome)

    # ---- a job's life --------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Starts what can start, and ends what the script ends."""
        while not self._by_hand and (found := self._startable()) is not None:
            job, node = found
            self._start(job, node)
            outcome = self._script(_convert.job(job))
            if outcome is not None:
                self._finish(job, outcome)

    def _startable(self) -> tuple[job_pb2.Job, str] | None:
        for job_class in (JobClass.TRIAL, JobClass.BEST_EFFORT):
            first = next(self._queue(job_class), None)
            if first is not None and (node := self._node_for(first)) is not None:
                return first, node
        return None

    def _queue(self, job_class: JobClass) -> Iterator[job_pb2.Job]:
        """Those that have run before stand first."""
        queued = (job for job in self.jobs.values() if _state(job) == JobState.QUEUED and _class(job) == job_class)
        return iter(sorted(queued, key=lambda job: (job.run == 0, job.id)))

    def _start(self, job: job_pb2.Job, node: str) -> None:
        taken = {index for other in self._on(node) for index in other.devices}
        idle = [index for index in range(self._nodes[node].devices) if index not in taken]
        job.run += 1
        job.node = node
        job.devices[:] = idle[: job.spec.resources.devices]
        job.log_path = ""
        self._show(job, JobState.STARTING)
        self._tell(job, JobEventKind.PLACED, run=job.run, node=node)
        log = log_file(self._folder, job.id, job.run)
        log.touch()
        job.log_path = str(log)
        if not job.HasField("start_time"):
            _set_now(job.start_time)
        self._show(job, JobState.RUNNING)
        self._tell(job, JobEventKind.STARTED, run=job.run, node=node)

    def _finish(self, job: job_pb2.Job, outcome: Outcome) -> None:
        """What the end of a run means for its job."""
        with Path(job.log_path).open("a", encoding="utf-8") as log:
            log.write(outcome.output)
        job.exit_code, job.exit_signal = outcome.exit_code, outcome.exit_signal
        told_to_leave = _state(job) == JobState.STOPPING and JobReason(job.reason) == JobReason.PREEMPTED
        if job.cancel_requested:
            self._end(job, JobState.CANCELLED, JobReason.CANCELLED, outcome)
        elif outcome.launch_error:
            self._end(job, JobState.FAILED, JobReason.LAUNCH_FAILED, outcome)
        elif told_to_leave and (outcome.exit_code or outcome.exit_signal):
            facts = {"run": job.run, "node": job.node, "cause_job_id": job.cause_job_id}
            self._tell(job, JobEventKind.VACATED, **facts)
            self._show(job, JobState.QUEUED, JobReason.PREEMPTED, job.cause_job_id)
            codes = {"exit_code": job.exit_code, "exit_signal": job.exit_signal}
            self._tell(job, JobEventKind.REQUEUED, reason=JobReason.PREEMPTED, **facts, **codes)
        elif outcome.exit_signal:
            self._end(job, JobState.FAILED, JobReason.SIGNALLED, outcome)
        else:
            self._end(job, JobState.FAILED if outcome.exit_code else JobState.SUCCEEDED, JobReason.EXITED, outcome)

    def _end(self, job: job_pb2.Job, to: JobState, reason: JobReason, outcome: Outcome) -> None:
        _set_now(job.end_time)
        job.reason_detail = outcome.launch_error
        self._show(job, to, reason)
        codes = {"exit_code": outcome.exit_code, "exit_signal": outcome.exit_signal, "text": outcome.launch_error}
        self._tell(job, JobEventKind.ENDED, run=job.run, node=job.node, reason=reason, **codes)

    @staticmethod
    def _show(job: job_pb2.Job, state: JobState, reason: JobReason = JobReason.UNSPECIFIED, cause: int = 0) -> None:
        job.state, job.reason, job.cause_job_id = int(state), int(reason), cause  # type: ignore[assignment]

    def _tell(self, job: job_pb2.Job, kind: JobEventKind, **facts: Any) -> None:
        """A line of the job's story, which is a commit: whoever watches the job is told."""
        self.commit_no += 1
        self._commits[job.id] = self.commit_no
        event = job_pb2.JobEvent(job_id=job.id, kind=int(kind), commit_no=self.commit_no, **facts)  # type: ignore[arg-type]
        _set_now(event.time)
        self._story.setdefault(job.id, []).append(event)
        self.changed.notify_all()

    # ---- lookups -------------------------------------------------------------------------------------------------------

    def _known(self, job_id: int) -> job_pb2.Job:
        if job_id not in self.jobs:
            raise NotFound(
                f"there is no job {job_id}; `ebb list --all` shows those there are",
                reason="NO_SUCH_JOB",
                metadata={"job_id": str(job_id)},
            )
        return self.jobs[job_id]

    @staticmethod
    def _require(job: job_pb2.Job, *states: JobState) -> None:
        if _state(job) not in states:
            wanted = " or ".join(state.name for state in states)
            raise FailedPrecondition(f"job {job.id} is {_state(job).name}; for this it must be {wanted}")

    def _on(self, node: str) -> list[job_pb2.Job]:
        return [job for job in self.jobs.values() if job.node == node and _state(job) in ACTIVE]

    def _free(self, node: str) -> Resources:
        free = _convert.resources_message(self._nodes[node])
        for job in self._on(node):
            free.cpu_milli -= job.spec.resources.cpu_milli
            free.memory_mib -= job.spec.resources.memory_mib
            free.devices -= job.spec.resources.devices
        return _convert.resources(free)

    def _node_for(self, job: job_pb2.Job) -> str | None:
        demand = _convert.resources(job.spec.resources)
        return next((name for name in self._nodes if _fits(demand, self._free(name))), None)


def _state(job: job_pb2.Job) -> JobState:
    return JobState(job.state)


def _class(job: job_pb2.Job) -> JobClass:
    return JobClass(job.spec.job_class)


def _fits(demand: Resources, free: Resources) -> bool:
    return demand.cpus <= free.cpus and demand.memory_mib <= free.memory_mib and demand.devices <= free.devices


def _set_now(field: Any) -> None:
    field.FromDatetime(datetime.now(UTC))
