"""A user, or a policy, changes the number of tasks of an elastic job.

A launch keeps its tasks: what changes is the next launch. So a job that runs is stopped and starts again, as after a requeue.
"""

from scheduler_service.core.allocation.earmarks import drop_earmarks
from scheduler_service.core.allocation.guarantee import guaranteed_in_part
from scheduler_service.core.allocation.transitions import stop_job
from scheduler_service.core.errors import FailedPrecondition, PlanRefused, Refused, require
from scheduler_service.core.handlers.admission import check_in_cells
from scheduler_service.core.handlers.jobs import leaves, live, refusal
from scheduler_service.core.handlers.submit import check_can_ever_run
from scheduler_service.core.messages import Accepted, Resize, ResizeRequested
from scheduler_service.core.model import EventKind, Job, JobState, Reason, StopReason
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.queue_keys import ACTIVE
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event


def resize_requested(state: State, event: ResizeRequested, now: Micros) -> Accepted:
    """A waiting job has the new size immediately. A job that is being stopped already, for whatever reason, has it when it
    starts again. Raises FailedPrecondition for a size that is out of bounds or could never run, and NotFound if no node has
    what the job names."""
    _resize(state, live(state, event.job_id), event.tasks, now)
    return Accepted(event.job_id)


def resize(state: State, action: Resize, now: Micros) -> None:
    """Resizes a running or queued job for a policy."""
    job = state.jobs.rows.get(action.job_id)
    if job is None or job.state not in (JobState.RUNNING, JobState.QUEUED):
        raise PlanRefused(f"job {action.job_id} neither runs nor is queued")
    require(job.resize_to != action.tasks != job.spec.gang[0].size, f"job {job.id} has or gets {action.tasks} tasks already")
    try:
        _resize(state, job, action.tasks, now, action.why, action.beyond)
    except Refused as refusal:
        raise PlanRefused(str(refusal)) from refusal


def _resize(state: State, job: Job, tasks: int, now: Micros, why: str = "", beyond: int = 0) -> None:
    """`beyond`: see `messages.Resize`. A size that a user asks for is all within the guarantee."""
    _check_size(job, tasks)
    now_has = job.spec.gang[0].size
    if tasks == (job.resize_to or now_has):
        return
    if job.elements is not None:
        raise refusal(job, "resized", "it is an array, whose elements are jobs: resize those")
    if job.cancel_requested or leaves(state, job, StopReason.TIME_LIMIT):
        raise refusal(job, "resized", "it is ending")
    if job.id in state.operation_of:
        raise refusal(job, "resized", "an operation on it is under way, such as a park: resume it first")
    if beyond and (job.state not in ACTIVE or state.pools is None):
        raise refusal(job, "resized", "only a running job of a virtual cluster has tasks beyond its guarantee")
    wanted = job.spec.with_tasks(tasks - beyond)
    if tasks - beyond != now_has or guaranteed_in_part(state.runs_of(job.id)):
        if state.pools is None:
            check_can_ever_run(state, wanted)
        else:
            check_in_cells(state, state.pools, wanted)
    text = f"tasks {job.resize_to or now_has} -> {tasks}" + (f": {why}" if why else "")
    log_event(state, now, job.id, EventKind.UPDATED, run=job.run, reason=Reason.RESIZED, text=text)
    if job.state not in ACTIVE:
        drop_earmarks(state, now, job.id, "the job is resized")
        job = job.with_tasks(tasks)
        beside = job.reason in state.beside  # outside its queue, where it would not be looked at again
        state.put(state.jobs, job.id, with_changes(job, reason=Reason.NONE, detail="", cause_job=0) if beside else job)
        return
    job = with_changes(job, resize_to=0 if tasks == now_has else tasks, beyond=beyond)
    if leaves(state, job):
        state.put(state.jobs, job.id, job)
    else:
        stop_job(state, now, job, StopReason.RESIZED, Reason.RESIZED)


def _check_size(job: Job, tasks: int) -> None:
    spec = job.spec
    facts = {"job_id": str(job.id), "min_tasks": str(spec.min_tasks), "max_tasks": str(spec.max_tasks)}
    if not spec.elastic:
        text = f"job {job.id} is not elastic, so the number of its tasks is fixed; submit it with --min-tasks and --max-tasks"
        raise FailedPrecondition("NOT_ELASTIC", text, **facts)
    if not spec.min_tasks <= tasks <= spec.max_tasks:
        text = (
            f"job {job.id} has {spec.min_tasks} to {spec.max_tasks} tasks, and not {tasks}; take a number within these bounds"
        )
        raise FailedPrecondition("TASKS_OUT_OF_BOUNDS", text, **facts)
