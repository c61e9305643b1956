"""Parks in the fake cluster. They succeed at once, as no process has anything on a device."""

from ebb.v1 import job_pb2, scheduler_pb2

from client_sdk.errors import FailedPrecondition
from client_sdk.models import JobEventKind, JobReason, JobState
from client_sdk.testing import _nodes
from client_sdk.testing._runs import note_phase
from client_sdk.testing._state import State, set_now, state_of


def park(state: State, job: job_pb2.Job, request: scheduler_pb2.SuspendRequest) -> str:
    """Parks a running job. Returns why it cannot be parked; empty: it is. Raises FailedPrecondition if it is to be parked or
    left running."""
    why = _why_not(job)
    if why:
        if request.park_only:
            text = f"job {job.id} cannot be parked: {why}; suspend it without --park-only to have it save and leave"
            raise FailedPrecondition(text, reason="CANNOT_PARK", metadata={"job_id": str(job.id)})
        return f"not parked: {why}; it saves its work and leaves"
    job.suspend_requested = job.parked = True
    state.tell(job, JobEventKind.SUSPEND_REQUESTED, run=job.run, reason=int(JobReason.PARKED), text="by a park")
    _comes_to(state, job, job_pb2.OPERATION_PHASE_PARKED)
    state.show(job, JobState.SUSPENDED, JobReason.PARKED)
    text = "parked in 0.00 s: fake, 0 MiB, residue 0 MiB"
    state.tell(job, JobEventKind.PARKED, run=job.run, node=job.node, reason=int(JobReason.PARKED), text=text)
    return ""


def _why_not(job: job_pb2.Job) -> str:
    if state_of(job) is not JobState.RUNNING:
        return f"run {job.id}.{job.run} is {state_of(job).name}: only a running one can be parked"
    without = next((task for task in job.tasks if not task.devices), None)
    return "" if without is None else f"run {job.id}.{job.run} has no devices that others could use meanwhile"


def _comes_to(state: State, job: job_pb2.Job, phase: job_pb2.OperationPhase) -> None:
    operation = job.operation
    if job.HasField("operation"):
        note_phase(state, job)
    else:
        operation.kind = job_pb2.OPERATION_KIND_PARK
        set_now(operation.begin_time)
    operation.phase = phase
    set_now(operation.phase_time)


def resume(state: State, job: job_pb2.Job) -> None:
    """Resume a parked job as soon as its devices are idle."""
    job.suspend_requested = False
    state.show(job, JobState.SUSPENDED, JobReason.RESUMED)
    _comes_to(state, job, job_pb2.OPERATION_PHASE_WAITING)
    state.tell(job, JobEventKind.RESUMED, run=job.run)
    go_on(state)


def go_on(state: State) -> None:
    """Resume the parked jobs that wait to resume and whose devices are idle."""
    for job in state.jobs.values():
        if job.parked and job.operation.phase == job_pb2.OPERATION_PHASE_WAITING and _has_room(state, job):
            end(state, job)
            state.show(job, JobState.RUNNING)
            state.tell(job, JobEventKind.UNPARKED, run=job.run, node=job.node, text="resumed in place in 0.00 s")


def _has_room(state: State, job: job_pb2.Job) -> bool:
    return all(
        task.node not in state.drains and set(task.devices) <= set(_nodes.idle_devices(state, task.node)) for task in job.tasks
    )


def end(state: State, job: job_pb2.Job) -> None:
    """The job is parked no more."""
    note_phase(state, job)
    job.parked = False
    job.ClearField("operation")
