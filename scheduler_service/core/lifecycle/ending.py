"""The end of a task: either the other tasks of its job are told to stop, or the job has come to its end.

The first task that fails decides; what the others do when they are told to stop says nothing about the job.
"""

from typing import Any

from scheduler_service.core.allocation import vacating
from scheduler_service.core.allocation.transitions import any_task, end_job, requeue, show, stop_job, with_target
from scheduler_service.core.lifecycle.device_faults import fault_of
from scheduler_service.core.lifecycle.exits import is_stopped
from scheduler_service.core.lifecycle.gangs import all_started
from scheduler_service.core.lifecycle.node_health import praise, strike_by_user, strike_for_node
from scheduler_service.core.model import EventKind, Job, JobState, Reason, Run, StopReason
from scheduler_service.core.model.launch_time import parked_us, waited_us
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.saves import SaveOutcome, with_task
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.operations import history, migrating, parking, samples
from scheduler_service.core.operations.samples import memory_of, with_default_memory, with_sampled_memory
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

LONGEST_PAUSE: Micros = 300 * SECOND

_NONE, _EXITED, _SUCCEEDED = Reason.NONE, Reason.EXITED, JobState.SUCCEEDED

_STARVED = frozenset({Reason.OUT_OF_MEMORY, Reason.OUT_OF_DEVICE_MEMORY})
_MAYBE_THE_DEVICE = frozenset({Reason.EXITED, Reason.SIGNALLED, Reason.LAUNCH_FAILED, Reason.EXIT_UNKNOWN})
_FAILURES = _MAYBE_THE_DEVICE | _STARVED
_NODES_FAULT = frozenset({Reason.LAUNCH_FAILED, Reason.EXIT_UNKNOWN, Reason.DEVICE_FAULT})
"""Failures that say something of the node by themselves. The others follow from what the program did there."""
_LEFT = {
    StopReason.PREEMPTED: Reason.PREEMPTED,
    StopReason.REQUEUED: Reason.REQUEUED,
    StopReason.DRAINED: Reason.NODE_DRAINED,
    StopReason.RECLAIMED: Reason.RECLAIMED,
    StopReason.RESIZED: Reason.RESIZED,
    StopReason.SAMPLED: Reason.SAMPLED,
    StopReason.PARKED: Reason.PARKED,
    StopReason.MIGRATED: Reason.MIGRATED,
}
"""Why a job queues again, by the reason for which its run was stopped."""


def task_over(
    state: State,
    now: Micros,
    run: Run,
    how: Reason | None,
    detail: str = "",
    checkpoint: str = "",
    job_fault: bool = False,
) -> None:
    """The task `run` has ended. `how` is what it did (see `exits.meaning`), None if it did its work; `detail` is a sentence
    about it, and `checkpoint` is one about its job's checkpoint signal or command. `job_fault`: its launch failed because
    of what the job names, such as its command.

    Whatever a run does after it was told to stop is part of the stop and no failure: a task of a gang may die as others leave.
    """
    job = state.jobs.rows[run.job_id]
    if job.id in state.operation_of and job.id not in state.active and migrating.migration_of(state, job.id) is None:
        parking.task_over(state, now, job.id)
    codes: dict[str, Any] = {"exit_code": run.exit_code, "exit_signal": run.exit_signal}
    if state.operation_of and how not in (None, Reason.CHECKPOINT_AWAY) and migrating.did_not_start(state, run):
        how, detail = Reason.MIGRATED, _join_sentences("it did not begin at its destination", describe(run, how), detail)
    if how is None and job.launch_spec.gang and not job.rendezvous and run.stop_reason is None:
        how, detail = Reason.LAUNCH_FAILED, "a task was over before its gang began"
    if how is not None:
        # A failed launch is no reaction to a stop.
        told, decided = run.stop_reason is not None and how is not Reason.LAUNCH_FAILED, job.verdict is not Reason.NONE
        first = _decides(state, now, job, run, how, detail, job_fault) if not (told or decided) else {}
        facts = {"left": job.left or told} | first | ({} if decided else codes)
    else:
        facts = codes if job.verdict is _NONE and not job.left else {}
    if run.save is not None or job.last_save is not None:
        facts = facts | {"last_save": with_task(job.last_save, run.run, run.save)}
    if job.id not in state.active:  # it was the last
        began, ended = run.started_us, run.ended_us
        facts |= {"limit_us": None, "start_by_us": None}  # so are its limits
        if began is not None and ended is not None:
            facts |= _time_ran(job, ended - began - parked_us(run, ended) - waited_us(run, ended))
        _conclude(state, now, with_changes(job, **facts), run, detail, checkpoint)
        return
    job = with_changes(job, **facts)
    text = _join_sentences(f"task {run.task} {describe(run, how)}", detail if how is None else "", checkpoint)
    log_event(state, now, job.id, EventKind.TASK_ENDED, run=run.run, node=run.node, text=text, **codes)
    if job.verdict is not Reason.NONE and not any_task(state, job.id).phase.exits_soon:
        stop_job(state, now, job, StopReason.GANG, Reason.TASK_FAILED)
    else:
        show(state, all_started(state, job))
        if job.id in state.operation_of and migrating.migration_of(state, job.id) is None:
            parking.task_over(state, now, job.id)
        if state.vacating_of:
            vacating.end_if_started(state, now, job.id)


def _time_ran(job: Job, longer: Micros) -> dict[str, Any]:
    """How long the job's launches have run, including the one that has ended now."""
    if not job.spec.alternatives:
        return {"ran_us": job.ran_us + longer}
    before = job.ran_in or (0,) * (1 + len(job.spec.alternatives))
    here = job.configuration
    return {"ran_us": job.ran_us + longer, "ran_in": (*before[:here], before[here] + longer, *before[here + 1 :])}


def _decides(state: State, now: Micros, job: Job, run: Run, how: Reason, detail: str, job_fault: bool) -> dict[str, Any]:
    """The facts by which this task decides for its launch: what it did, and its node, which may be to blame."""
    if how in _MAYBE_THE_DEVICE and (fault := fault_of(state, run)):
        how, detail = Reason.DEVICE_FAULT, f"{describe(run, how)}; {fault}"
    facts: dict[str, Any] = {"verdict": how, "detail": detail}
    if how in (Reason.CHECKPOINT_AWAY, Reason.MIGRATED):
        facts |= {"avoid": (run.node,)}
    if how in _FAILURES or how is Reason.DEVICE_FAULT:
        facts |= {"failed_on": tuple(sorted({*job.failed_on, run.node})), "avoid": (run.node,)}
    if how in _NODES_FAULT and not job_fault:
        facts |= {"node_faults_on": tuple(sorted({*job.node_faults_on, run.node}))}
    if how is Reason.EXIT_UNKNOWN:
        strike_for_node(state, now, run.node, job.id, "vanished here")
    return facts


def _conclude(state: State, now: Micros, job: Job, last: Run, detail: str, checkpoint: str) -> None:
    """Decides what becomes of a job whose last task has ended; `detail` and `checkpoint` are sentences about that."""
    if state.operation_of:
        stopped = job.verdict is _NONE and job.left and not (job.cancel_requested or job.suspend_requested or is_over(job))
        migrating.concludes(state, now, job, last, stopped)
    if state.vacating_of:
        took = vacating.launch_over(state, now, job, goes_on=not (job.cancel_requested or job.suspend_requested))
        checkpoint = _join_sentences(checkpoint, took)
    if job.sampling is not None:
        sampled, job = job, with_changes(job, sampling=None)
        if job.verdict in _FAILURES and not job.cancel_requested and _sample_failed(state, now, sampled, last):
            return
    if job.spec.memory_left:
        job, said = with_sampled_memory(job)
        checkpoint = _join_sentences(checkpoint, said)
    if job.verdict is _NONE and not (job.left or job.cancel_requested):  # nearly always
        _end_succeeded(state, now, job, last, detail)
    elif job.cancel_requested:
        end_job(state, now, job, JobState.CANCELLED, Reason.CANCELLED, node=last.node)
    elif job.verdict is Reason.OUT_OF_MEMORY and (default := with_default_memory(job)) is not None:
        _queue_again(state, now, _blaming_no_node(default), last, Reason.RETRYING, detail=_more_than_sampled(default))
    elif job.verdict in _FAILURES or (job.verdict is Reason.DEVICE_FAULT and _is_to_blame(state, job)):
        _end_or_retry_failed(state, now, job, last)
    elif job.verdict is Reason.YIELDED:
        text = "it saved its work and left, though Ebb had not asked it to"
        pause = state.settings.retry_pause_us
        short = last.started_us is None or now - last.started_us < pause  # else it would start and leave without end
        _queue_again(state, now, job, last, Reason.YIELDED, detail=text, eligible_us=now + pause if short else None)
    elif job.verdict is Reason.CHECKPOINT_AWAY:
        _queue_again(state, now, job, last, job.verdict, detail=job.detail, eligible_us=now + state.settings.retry_pause_us)
    elif job.verdict is not Reason.NONE:  # its node was lost, or the gang did not come together
        _queue_again(state, now, job, last, job.verdict, detail=job.detail)
    elif job.suspend_requested:
        _suspend(state, now, job, last, checkpoint)
    elif last.stop_reason is StopReason.TIME_LIMIT or is_over(job):
        time_out(state, now, job, last.node, _join_sentences(_not_saved(job, last), checkpoint))
    elif last.stop_reason is StopReason.SUSPENDED:  # and resumed since
        _tell_left(state, now, job, last, checkpoint)
        requeue(state, now, with_target(job), Reason.RESUMED, node=last.node)
    else:
        _tell_left(state, now, job, last, checkpoint)
        if state.operation_of and migrating.begins_at_target(state, now, job, last):
            return
        why = _LEFT.get(last.stop_reason or StopReason.REQUEUED, Reason.REQUEUED)
        requeue(state, now, with_target(job), why, last.stop_for, node=last.node)


def _sample_failed(state: State, now: Micros, job: Job, last: Run) -> bool:
    """Queues a job whose sample has failed for its other configurations. False: it has none, or it is not known how the run
    ended, so that the failure is the job's."""
    if job.verdict is Reason.EXIT_UNKNOWN:
        return False
    text = describe(last, job.verdict) + (f"; {job.detail}" if job.detail else "")
    without = samples.without_failed_configuration(job, text)
    if without is None:
        return False
    log_event(state, now, job.id, EventKind.SAMPLED, run=last.run, node=last.node, text=samples.describe(without.estimates[-1]))
    # No node is to blame for a configuration that cannot work.
    _queue_again(state, now, with_changes(_blaming_no_node(without), sampling=None), last, Reason.SAMPLED, detail=text)
    return True


def _blaming_no_node(job: Job) -> Job:
    """The job as if its last launch had not failed where it did."""
    nodes, faults = (tuple(node for node in of if node not in job.avoid) for of in (job.failed_on, job.node_faults_on))
    return with_changes(job, failed_on=nodes, node_faults_on=faults, avoid=())


def _queue_again(state: State, now: Micros, job: Job, last: Run, reason: Reason, **facts: Any) -> None:
    """Queues the job, unless a user wanted it suspended before it failed, or it would have no time to run."""
    if job.suspend_requested:
        _suspend(state, now, job, last)
    elif is_over(job):
        time_out(state, now, job, last.node)
    else:
        requeue(state, now, with_target(job), reason, **facts, node=last.node)


def is_over(job: Job) -> bool:
    """Whether the job has used up its time limit: a start would only stop others for it, and then the job itself."""
    return 0 < job.time_limit_us <= job.ran_us


def time_out(state: State, now: Micros, job: Job, node: int = 0, checkpoint: str = "") -> None:
    text = _join_sentences(
        f"it ran for {job.ran_us / 1e6:.0f} s; its time limit is {job.time_limit_us / 1e6:.0f} s", checkpoint
    )
    end_job(state, now, job, JobState.TIMED_OUT, Reason.TIME_LIMIT, text, node=node)


def _join_sentences(*sentences: str) -> str:
    return "; ".join(filter(None, sentences))


def _tell_left(state: State, now: Micros, job: Job, last: Run, checkpoint: str) -> None:
    codes: dict[str, Any] = {"exit_code": last.exit_code, "exit_signal": last.exit_signal}
    facts: dict[str, Any] = {"run": last.run, "node": last.node, "cause_job": last.stop_for} | codes
    why = Reason.EXIT_UNKNOWN if _is_unknown(last) else _NONE  # else its 0 would be taken for an exit code
    other = "another task was stopped before its work was done" if last.done else ""
    text = _join_sentences(describe(_as_worst(job, last), Reason.YIELDED), other, checkpoint)
    log_event(state, now, job.id, EventKind.VACATED, reason=why, text=text, **facts)


def _suspend(state: State, now: Micros, job: Job, last: Run, checkpoint: str = "") -> None:
    aside = with_changes(
        with_target(job),
        state=JobState.SUSPENDED,
        reason=Reason.SUSPENDED,
        detail="",
        cause_job=0,
        requeued=True,
        verdict=Reason.NONE,
        left=False,
        rendezvous="",
    )
    state.put(state.jobs, job.id, aside)
    text = _join_sentences(describe(_as_worst(job, last), Reason.YIELDED), checkpoint)
    log_event(state, now, job.id, EventKind.SUSPENDED, run=last.run, node=last.node, reason=Reason.SUSPENDED, text=text)


def _as_worst(job: Job, last: Run) -> Run:
    """The last task of a launch, with the worst that is known of the saves of all of its tasks."""
    whole = job.last_save
    return last if whole is None or whole.run != last.run else with_changes(last, save=whole.worst)


def _not_saved(job: Job, last: Run) -> str:
    save = _as_worst(job, last).save
    return f"it {save}" if save is not None and save.outcome is SaveOutcome.NOT_SAVED else ""


def _end_succeeded(state: State, now: Micros, job: Job, last: Run, detail: str) -> None:
    """Ends a job that succeeded. If it had failed on other nodes, these may be at fault, or lack what only this job needs."""
    what = "failed here and succeeded elsewhere"
    for node_id in job.failed_on:
        if node_id == last.node:
            continue
        if node_id in job.node_faults_on:
            strike_for_node(state, now, node_id, job.id, what)
        else:
            strike_by_user(state, now, node_id, job, what)
    praise(state, last.node)
    history.keep(state, now, job, last)
    end_job(state, now, job, _SUCCEEDED, _EXITED, detail, node=last.node)


def _end_or_retry_failed(state: State, now: Micros, job: Job, last: Run) -> None:
    # The last task of a gang need not be the one that failed; the failed one's node is to be avoided.
    last = with_changes(last, node=job.avoid[0] if job.avoid else last.node)
    failed = with_changes(last, exit_code=job.exit_code, exit_signal=job.exit_signal, yielded=False, lost=False)
    text = describe(failed, job.verdict)
    if job.verdict is Reason.OUT_OF_DEVICE_MEMORY:
        text = f"{text} ({job.detail})"
    if job.verdict is not Reason.DEVICE_FAULT and not _is_retried(state, job):
        end_job(state, now, job, JobState.FAILED, job.verdict, job.detail, node=last.node)
    elif _is_to_blame(state, job):
        text = f"it failed on {len(job.failed_on)} nodes; the last time it {text}"
        end_job(state, now, job, JobState.FAILED, Reason.FAILED_ON_SEVERAL_NODES, text, node=last.node)
    else:
        pause = min(state.settings.retry_pause_us << min(job.retries, 20), LONGEST_PAUSE)
        text = f"run {job.run} {text}; retry {job.retries + 1} of {_retries(state, job)}"
        _queue_again(
            state, now, with_changes(job, retries=job.retries + 1), last, Reason.RETRYING, detail=text, eligible_us=now + pause
        )


def _more_than_sampled(job: Job) -> str:
    amount = memory_of(job, job.configuration)
    return f"it needs more memory than its sample was seen to use, and asks for {amount} MiB from now on, its default"


def _is_to_blame(state: State, job: Job) -> bool:
    """Whether the job failed on so many nodes that the fault is its own, even if devices broke under it."""
    return 0 < state.settings.blame_nodes <= len(job.failed_on)


def _retries(state: State, job: Job) -> int:
    """How many retries a job that failed like this one has in all. A run that vanished was hardly to blame."""
    own = job.spec.retry.limit
    return max(own, state.settings.fault_retries) if job.verdict is Reason.EXIT_UNKNOWN else own


def _is_retried(state: State, job: Job) -> bool:
    retry = job.spec.retry
    if job.retries >= _retries(state, job):
        return False
    if job.verdict is Reason.EXIT_UNKNOWN and job.retries < state.settings.fault_retries:
        return True  # it has neither code nor signal
    if not retry.exit_codes and not retry.exit_signals:
        return True
    return job.exit_code in retry.exit_codes or (job.exit_signal != 0 and job.exit_signal in retry.exit_signals)


def describe(run: Run, how: Reason | None) -> str:
    """Describe to people how a run ended."""
    if how is Reason.LAUNCH_FAILED:
        return "could not be launched"
    if how in (Reason.NODE_LOST, Reason.EXIT_UNKNOWN):
        return "is gone; nobody knows how it ended"
    if how is Reason.OUT_OF_MEMORY:
        return "was killed for want of memory"
    if how is Reason.OUT_OF_DEVICE_MEMORY:
        return "was killed: out of device memory"
    if run.started_us is None and run.stop_reason is not None and not run.lost:
        return "left before it began"
    save = run.save if run.stop_reason is not None else None
    if save is None or save.outcome is SaveOutcome.SAVED:
        at = "" if save is None or save.step < 0 else f" at step {save.step}"
        return f"saved its work{at} and left" if run.yielded else _exit(run)
    return f"{'left' if run.yielded else _exit(run)}, and {save}"


def _exit(run: Run) -> str:
    if _is_unknown(run):
        return "is gone; nobody knows how it ended"
    if is_stopped(run):
        return "exited with code 0 after the stop signal, without a word that its work is done: it was stopped"
    return f"ended by signal {run.exit_signal}" if run.exit_signal else f"left with exit code {run.exit_code}"


def _is_unknown(run: Run) -> bool:
    """Whether its exit status was not collected, as when its launcher was killed; it may have said that it saved its work."""
    return run.lost and run.exit_signal == 0 and run.exit_code == 0
