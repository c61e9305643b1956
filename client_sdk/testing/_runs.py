"""The runs of the jobs of the fake cluster, as `Client.runs` tells them."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from ebb.v1 import job_pb2, scheduler_pb2

from client_sdk.models import ENDED, JobEventKind, JobReason, JobState
from client_sdk.testing._state import Outcome, State, set_now, state_of

_VACATING = {
    JobReason.SUSPENDED: job_pb2.OPERATION_KIND_VACATE,
    JobReason.RESIZED: job_pb2.OPERATION_KIND_RESIZE,
}
_SHOWN = {
    JobState.STARTING: job_pb2.RUN_PHASE_STARTING,
    JobState.RUNNING: job_pb2.RUN_PHASE_RUNNING,
    JobState.STOPPING: job_pb2.RUN_PHASE_STOPPING,
    JobState.SUSPENDED: job_pb2.RUN_PHASE_PARKED,
}


def begin(state: State, job: job_pb2.Job) -> None:
    """A run of the job has started."""
    for task in job.tasks:
        run = job_pb2.Run(run=job.run, task=task.rank, node=task.node, devices=task.devices, resources=task.resources)
        run.log_path, run.guaranteed = task.log_path, task.guaranteed
        set_now(run.place_time)
        set_now(run.start_time)
        state.runs.setdefault(job.id, []).append(run)


def at_risk(state: State, request: Any) -> list[job_pb2.JobAtRisk]:
    """The job of a request that stops it, if it loses its work. Parked, it loses nothing."""
    if getattr(request, "park", False) or getattr(request, "park_only", False):
        return []
    return of_unsaved(state, [request.job_id])


def of_unsaved(state: State, jobs: Iterable[int]) -> list[job_pb2.JobAtRisk]:
    """Those of these jobs that run and lose their work if they are stopped."""
    found = [state.find(job_id) for job_id in jobs if job_id in state.unsaved]
    running = [job for job in found if state_of(job) is JobState.RUNNING]
    return [job_pb2.JobAtRisk(job_id=job.id, user=job.user, name=job.spec.name) for job in running]


def stopping(state: State, job: job_pb2.Job, reason: JobReason) -> None:
    """The job's run is about to be stopped. A suspension and a resize are operations; they end what was done before."""
    kind = _VACATING.get(reason)
    if job.operation.kind in _VACATING.values():
        if job.operation.kind == kind:
            return  # suspended, resumed and suspended again: it has been saving since the first time
        note_phase(state, job)
        job.ClearField("operation")
    if kind is not None:
        job.operation.kind = kind
        set_now(job.operation.begin_time)
        _comes_to(job, job_pb2.OPERATION_PHASE_SAVING)


def resized(state: State, job: job_pb2.Job) -> None:
    """The next run of the job has started, with its new size if it was resized."""
    operation = job.operation
    if operation.kind != job_pb2.OPERATION_KIND_RESIZE or operation.phase != job_pb2.OPERATION_PHASE_WAITING:
        return
    note_phase(state, job)
    _comes_to(job, job_pb2.OPERATION_PHASE_STARTING)
    note_phase(state, job)
    job.ClearField("operation")
    size = len(job.tasks)
    text = f"it has {size} task{'' if size == 1 else 's'} now: stopped in 0.00 s, queued for 0.00 s, started in 0.00 s"
    state.tell(job, JobEventKind.RESIZED, run=job.run, node=job.node, reason=int(JobReason.RESIZED), text=text)


def _comes_to(job: job_pb2.Job, phase: job_pb2.OperationPhase) -> None:
    job.operation.phase = phase
    set_now(job.operation.phase_time)


def end(state: State, job: job_pb2.Job, outcome: Outcome) -> None:
    """The job's run has ended."""
    if job.operation.phase == job_pb2.OPERATION_PHASE_SAVING:
        note_phase(state, job)
        if job.operation.kind == job_pb2.OPERATION_KIND_RESIZE:
            _comes_to(job, job_pb2.OPERATION_PHASE_WAITING)
        else:
            job.ClearField("operation")
    for run in _current(state, job):
        run.phase, run.exit_code, run.exit_signal = job_pb2.RUN_PHASE_ENDED, outcome.exit_code, outcome.exit_signal
        if state_of(job) is JobState.STOPPING:
            run.stop_reason = job.reason
        set_now(run.end_time)


def note_phase(state: State, job: job_pb2.Job) -> None:
    """Record the duration of the phase of the job's operation that has just ended."""
    operation = job.operation
    now = datetime.now(UTC)
    for run in _current(state, job):
        took = run.operations.add(kind=operation.kind, phase=operation.phase, begin_time=operation.phase_time)
        took.duration.FromTimedelta(now - operation.phase_time.ToDatetime(UTC))
        if operation.phase == job_pb2.OPERATION_PHASE_PARKED:
            run.parks += 1


def _current(state: State, job: job_pb2.Job) -> list[job_pb2.Run]:
    return [run for run in state.runs.get(job.id, ()) if run.run == job.run and not run.HasField("end_time")]


def list_runs(state: State, request: scheduler_pb2.ListRunsRequest) -> scheduler_pb2.ListRunsResponse:
    """A page; the token says after which run and task it begins. Raises NotFound."""
    job = state.known(request.job_id)
    found = sorted(state.runs.get(job.id, ()), key=lambda run: (-run.run, run.task))
    if request.page_token:
        last, task = map(int, request.page_token.split("."))
        found = [run for run in found if (-run.run, run.task) > (-last, task)]
    size = request.page_size or 100
    page = found[:size]
    for run in page:
        if not run.HasField("end_time") and state_of(job) not in ENDED:
            run.phase = _SHOWN.get(state_of(job), job_pb2.RUN_PHASE_RUNNING)
            run.rung = "fake" if JobReason(job.reason) is JobReason.PARKED else ""
    more = f"{page[-1].run}.{page[-1].task}" if len(found) > size else ""
    return scheduler_pb2.ListRunsResponse(runs=page, next_page_token=more)
