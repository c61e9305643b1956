"""A job's life in the fake cluster, as the service gives it, without processes or time."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ebb.v1 import job_pb2

from client_sdk._protobuf import convert
from client_sdk.errors import FailedPrecondition
from client_sdk.models import DependencyKind, JobClass, JobEventKind, JobReason, JobState
from client_sdk.testing import _parking, _runs
from client_sdk.testing._files import call_function, calls_function
from client_sdk.testing._nodes import Placed, place
from client_sdk.testing._output import log_file
from client_sdk.testing._state import ACTIVE, Outcome, State, at_limit, class_of, set_now, set_tasks, state_of

LEAVES = (JobReason.PREEMPTED, JobReason.SUSPENDED, JobReason.REQUEUED, JobReason.NODE_DRAINED, JobReason.RESIZED)
"""Reasons for which a job is told to stop but runs again later."""
TOLD = Outcome(exit_signal=15)
"""How a run ends after its stop signal."""


# ---- what the test says ------------------------------------------------------------------------------------------------


def start(state: State, job_id: int) -> job_pb2.Job:
    """Returns the job that started: of an array, its next element."""
    job = state.known(job_id)
    state.require(job, JobState.QUEUED)
    if job.held or state.waits_for.get(job_id):
        raise FailedPrecondition(f"job {job_id} waits for something else than room: {JobReason(job.reason).name}")
    if job.HasField("array") and at_limit(job):
        raise FailedPrecondition(f"array {job_id} has as many elements under way as it may: finish one first")
    placed = place(state, job.spec)
    if placed is None:
        raise FailedPrecondition(f"job {job_id} fits on no node now: finish another first")
    return begin(state, job, placed)


def finish(state: State, job_id: int, outcome: Outcome) -> None:
    job = state.known(job_id)
    if state_of(job) == JobState.QUEUED:
        job = start(state, job_id)
    state.require(job, *sorted(ACTIVE))
    _finish(state, job, outcome)
    go_on(state)


def preempt(state: State, job_id: int, trial_id: int, outcome: Outcome | None) -> None:
    job, trial = state.known(job_id), state.known(trial_id)
    state.require(job, JobState.STARTING, JobState.RUNNING)
    if class_of(job) != JobClass.BEST_EFFORT or class_of(trial) != JobClass.TRIAL:
        raise FailedPrecondition("only best-effort jobs are preempted, and only for trials")
    job.preempted_for_trial += 1
    state.show(job, JobState.STOPPING, JobReason.PREEMPTED, trial_id)
    facts = {"run": job.run, "node": job.node, "reason": JobReason.PREEMPTED, "cause_job_id": trial_id}
    state.tell(job, JobEventKind.PREEMPTED, **facts)
    if outcome is not None:
        finish(state, job_id, outcome)


# ---- by itself ---------------------------------------------------------------------------------------------------------


def go_on(state: State) -> None:
    """Starts what can start, and ends what the script ends."""
    _parking.go_on(state)
    while not state.by_hand and (found := _startable(state)) is not None:
        job = begin(state, *found)
        outcome = state.script(convert.job(job))
        if outcome is not None:
            _finish(state, job, outcome)


def _startable(state: State) -> tuple[job_pb2.Job, Placed] | None:
    for job_class in (JobClass.TRIAL, JobClass.BEST_EFFORT):
        first = next(state.queue(job_class), None)
        if first is not None and (placed := place(state, first.spec)) is not None:
            return first, placed
    return None


def leave(state: State, job: job_pb2.Job, reason: JobReason) -> None:
    """Tells a job that runs to leave, which it does at once, unless the test has everything in its hands."""
    _runs.stopping(state, job, reason)
    state.show(job, JobState.STOPPING, reason)
    state.touch(job)


def begin(state: State, job: job_pb2.Job, placed: Placed) -> job_pb2.Job:
    """Its next run starts there."""
    if job.HasField("array"):
        job = _next_element(state, job)
    job.run += 1
    job.configuration, tasks = placed
    node = tasks[0].node
    state.show(job, JobState.STARTING)
    job.log_path = ""
    job.node, job.devices[:] = node, tasks[0].devices
    del job.tasks[:]
    job.tasks.extend(tasks)
    state.tell(job, JobEventKind.PLACED, run=job.run, node=node)
    log = log_file(state.folder, job.id, job.run)
    log.touch()
    job.log_path = job.tasks[0].log_path = str(log)
    for task, command in zip(job.tasks, _commands(job.spec), strict=True):
        task.program = command[0]
    if not job.HasField("start_time"):
        set_now(job.start_time)
    state.show(job, JobState.RUNNING)
    _runs.begin(state, job)
    state.tell(job, JobEventKind.STARTED, run=job.run, node=node)
    _runs.resized(state, job)
    return job


def _commands(spec: job_pb2.JobSpec) -> Iterator[Sequence[str]]:
    """That of each task."""
    groups = spec.task_groups or [job_pb2.TaskGroup(count=1)]
    return (group.command or spec.command for group in groups for _ in range(group.count))


def _next_element(state: State, array: job_pb2.Job) -> job_pb2.Job:
    """The array's next element, as a job of its own."""
    spec = job_pb2.JobSpec()
    spec.CopyFrom(array.spec)
    spec.ClearField("array")
    del spec.dependencies[:]
    element = state.add(spec)
    element.priority, element.array_job_id = array.priority, array.id
    element.array_index = array.array.size - array.array.pending
    array.array.pending -= 1
    array.array.live += 1
    if not array.HasField("start_time"):
        set_now(array.start_time)
    if not array.array.pending:
        state.show(array, JobState.RUNNING)
    state.touch(array)
    text = f"element {element.array_index} of array {array.id}"
    state.tell(element, JobEventKind.SUBMITTED, cause_job_id=array.id, text=text)
    return element


def _finish(state: State, job: job_pb2.Job, outcome: Outcome) -> None:
    """Update the job after the end of its run. A function is called, unless its run ends with a failure."""
    if calls_function(job) and outcome == Outcome(output=outcome.output, done=outcome.done):
        outcome = replace(outcome, exit_code=call_function(state, job), done=True)
    with Path(job.log_path).open("a", encoding="utf-8") as log:
        log.write(outcome.output)
    job.exit_code, job.exit_signal = outcome.exit_code, outcome.exit_signal
    _runs.end(state, job, outcome)
    told = JobReason(job.reason) if state_of(job) == JobState.STOPPING else JobReason.UNSPECIFIED
    failed = bool(outcome.exit_code or outcome.exit_signal or outcome.launch_error)
    if job.cancel_requested:
        end(state, job, JobState.CANCELLED, JobReason.CANCELLED, outcome)
    elif told in LEAVES and not outcome.launch_error and (failed or not _is_done(job, outcome)):
        _left(state, job, told)
    elif failed and _is_retried(job):
        job.retries += 1
        _queue_again(state, job, JobReason.RETRYING)
    elif outcome.launch_error:
        end(state, job, JobState.FAILED, JobReason.LAUNCH_FAILED, outcome)
    elif outcome.exit_signal:
        end(state, job, JobState.FAILED, JobReason.SIGNALLED, outcome)
    else:
        end(state, job, JobState.FAILED if failed else JobState.SUCCEEDED, JobReason.EXITED, outcome)


def _is_done(job: job_pb2.Job, outcome: Outcome) -> bool:
    """Whether an exit with 0 after a stop signal means that the job is done."""
    return outcome.done or job.spec.exit_0_after_stop == job_pb2.EXIT0_AFTER_STOP_DONE


def _is_retried(job: job_pb2.Job) -> bool:
    retry = job.spec.retry
    if job.retries >= retry.limit:
        return False
    every = not retry.exit_codes and not retry.exit_signals
    return every or job.exit_code in retry.exit_codes or job.exit_signal in retry.exit_signals


def _left(state: State, job: job_pb2.Job, told: JobReason) -> None:
    facts = {"run": job.run, "node": job.node}
    if job.share_next:
        job.spec.share, job.share_next = job.share_next, job_pb2.SHARE_MODE_UNSPECIFIED
    if job.resize_to:
        set_tasks(job.spec, job.resize_to)
        job.resize_to = 0
    if told is JobReason.SUSPENDED and job.suspend_requested:
        state.show(job, JobState.SUSPENDED, JobReason.SUSPENDED)
        state.tell(job, JobEventKind.SUSPENDED, reason=JobReason.SUSPENDED, **facts)
        return
    state.tell(job, JobEventKind.VACATED, cause_job_id=job.cause_job_id, **facts)
    _queue_again(state, job, JobReason.RESUMED if told is JobReason.SUSPENDED else told, job.cause_job_id)


def _queue_again(state: State, job: job_pb2.Job, reason: JobReason, cause: int = 0) -> None:
    state.show(job, JobState.QUEUED, reason, cause)
    codes: dict[str, Any] = {"exit_code": job.exit_code, "exit_signal": job.exit_signal}
    facts: dict[str, Any] = {"run": job.run, "node": job.node, "reason": reason, "cause_job_id": cause}
    state.tell(job, JobEventKind.REQUEUED, **facts, **codes)


# ---- ends --------------------------------------------------------------------------------------------------------------


def end(state: State, job: job_pb2.Job, to: JobState, reason: JobReason, outcome: Outcome, cause: int = 0) -> None:
    """Gives the job its one end, and with it to those that waited for it, and to its array."""
    set_now(job.end_time)
    job.ClearField("operation")
    job.reason_detail = outcome.launch_error
    state.waits_for.pop(job.id, None)
    state.show(job, to, reason, cause)
    if job.HasField("array"):
        job.array.pending = 0
    codes = {"exit_code": outcome.exit_code, "exit_signal": outcome.exit_signal, "text": outcome.launch_error}
    state.tell(job, JobEventKind.ENDED, run=job.run, node=job.node, reason=reason, cause_job_id=cause, **codes)
    for waiting_id in list(state.waits_for):
        waits = state.waits_for.get(waiting_id, ())  # it may have ended with another
        mine = [d for d in waits if d.job_id == job.id]
        if not all(holds(d.kind, to) for d in mine):
            end(state, state.jobs[waiting_id], JobState.CANCELLED, JobReason.DEPENDENCY_NEVER, Outcome(), job.id)
        elif mine:
            state.waits_for[waiting_id] = tuple(d for d in waits if d.job_id != job.id)
            state.show_queued(state.jobs[waiting_id])
            state.touch(state.jobs[waiting_id])
    if job.array_job_id:
        _count(state, state.jobs[job.array_job_id], to is JobState.SUCCEEDED)


def holds(kind: DependencyKind, ended: JobState) -> bool:
    """Whether a job that ended so is what the dependency asked for."""
    return kind is DependencyKind.AFTER_ANY or (ended is JobState.SUCCEEDED) == (kind is DependencyKind.AFTER_OK)


def _count(state: State, array: job_pb2.Job, good: bool) -> None:
    """An element has ended, and with the last one its array does."""
    stands = array.array
    stands.live -= 1
    stands.succeeded += good
    stands.failed += not good
    if stands.live or (stands.pending and not array.cancel_requested):
        state.touch(array)
    elif array.cancel_requested:
        end(state, array, JobState.CANCELLED, JobReason.CANCELLED, Outcome())
    elif stands.failed:
        end(state, array, JobState.FAILED, JobReason.ELEMENTS_FAILED, Outcome())
    else:
        end(state, array, JobState.SUCCEEDED, JobReason.EXITED, Outcome())
