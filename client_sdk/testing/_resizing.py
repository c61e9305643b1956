"""Elastic jobs of the fake cluster: what a resize does."""

from ebb.v1 import job_pb2, scheduler_pb2

from client_sdk.errors import FailedPrecondition
from client_sdk.models import JobEventKind, JobReason, JobState
from client_sdk.testing import _nodes
from client_sdk.testing._handlers import live, refusal, told_to_leave
from client_sdk.testing._lifecycle import go_on
from client_sdk.testing._state import ACTIVE, State, set_tasks, state_of


def resize(state: State, request: scheduler_pb2.ResizeRequest) -> job_pb2.Job:
    job = live(state, request.job_id)
    _check_size(job, request.tasks)
    has = job.spec.task_groups[0].count
    if request.tasks == (job.resize_to or has):
        return state.find(job.id)
    if job.HasField("array"):
        raise refusal(job, "resized", "it is an array, whose elements are jobs: resize those")
    if job.cancel_requested:
        raise refusal(job, "resized", "it is ending")
    wanted = job_pb2.JobSpec()
    wanted.CopyFrom(job.spec)
    set_tasks(wanted, request.tasks)
    _nodes.check_can_ever_run(state, wanted)
    text = f"tasks {job.resize_to or has} -> {request.tasks}"
    state.tell(job, JobEventKind.UPDATED, run=job.run, reason=JobReason.RESIZED, text=text)
    if state_of(job) in ACTIVE:
        job.resize_to = 0 if request.tasks == has else request.tasks
        if state_of(job) is not JobState.STOPPING:
            return told_to_leave(state, job, JobReason.RESIZED)
        state.touch(job)
        return state.find(job.id)
    set_tasks(job.spec, request.tasks)
    state.touch(job)
    found = state.find(job.id)
    go_on(state)
    return found


def _check_size(job: job_pb2.Job, tasks: int) -> None:
    least, most = job.spec.min_tasks, job.spec.max_tasks
    facts = {"job_id": str(job.id), "min_tasks": str(least), "max_tasks": str(most)}
    if not most:
        said = f"job {job.id} is not elastic, so the number of its tasks is fixed; submit it with --min-tasks and --max-tasks"
        raise FailedPrecondition(said, reason="NOT_ELASTIC", metadata=facts)
    if not least <= tasks <= most:
        said = f"job {job.id} has {least} to {most} tasks, and not {tasks}; take a number within these bounds"
        raise FailedPrecondition(said, reason="TASKS_OUT_OF_BOUNDS", metadata=facts)
