"""Indices over jobs and earmarks."""

from collections.abc import Iterable

from scheduler_service.core.model import Earmark, Job, JobState
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.core.state.indices.deadlines import set_deadline
from scheduler_service.core.state.indices.nonempty import add_or_discard, set_or_drop
from scheduler_service.core.state.indices.queues import move_among_running, move_in_queue
from scheduler_service.core.state.indices.runs import hold_cells, refresh_candidate, set_idle_devices
from scheduler_service.core.state.queue_keys import DUE, NOT_DUE, Deadline, Due, deadlines_of
from scheduler_service.core.state.tables import Tables

QUEUED = JobState.QUEUED


def of_job(state: Tables, old: Job | None, new: Job | None) -> None:
    if old is None:
        if new is not None:
            move_in_queue(state, None, new)
            _comes_or_goes(state, new, there=True)
    elif new is None:
        move_in_queue(state, old, None)
        _comes_or_goes(state, old, there=False)
    else:
        if old.state is QUEUED or new.state is QUEUED:
            move_in_queue(state, old, new)
            if old.reason is not new.reason:
                if old.reason in state.beside:
                    state.beside[old.reason].discard(old.id)
                if new.reason in state.beside:
                    state.beside[new.reason].add(new.id)
        _changes(state, old, new)
    if state.keeps_order:
        move_among_running(state, old, new)


def _changes(state: Tables, old: Job, new: Job) -> None:
    if new.rendezvous and old.rendezvous != new.rendezvous:
        state.changed_runs[new.id] = None
    if (
        old.priority != new.priority
        or old.time_limit_us != new.time_limit_us
        or old.preempted_for_trial != new.preempted_for_trial
        or old.spec.grace_us != new.spec.grace_us
    ):
        state.pending.policies = True  # which runs a trial may preempt, and when there will be room, may have changed
        for key in state.active.get(new.id, ()):
            refresh_candidate(state, key)
    if (
        old.eligible_us != new.eligible_us
        or old.limit_us != new.limit_us
        or old.start_by_us != new.start_by_us
        or old.sampling is not new.sampling
        or old.set_aside != new.set_aside
    ):
        _set_due(state, new.id, deadlines_of(old), deadlines_of(new))
    if old.waits_for is not new.waits_for:
        before, after = ({dependency.job_id for dependency in job.waits_for} for job in (old, new))
        _depend(state, new.id, before - after, there=False)
        _depend(state, new.id, after - before, there=True)
    if old.set_aside != new.set_aside:
        (state.set_aside.add if new.set_aside else state.set_aside.discard)(new.id)


def _comes_or_goes(state: Tables, job: Job, there: bool) -> None:
    if job.reason in state.beside:  # it waits outside its queue
        (state.beside[job.reason].add if there else state.beside[job.reason].discard)(job.id)
    if there and job.rendezvous:
        state.changed_runs[job.id] = None
    if job.request_id:
        set_or_drop(state.requests, (job.user, job.request_id), job.id if there else None)
    if job.array_job:
        add_or_discard(state.elements_of, job.array_job, job.id, there)
    for key in state.active.get(job.id, ()):
        refresh_candidate(state, key)
    at = deadlines_of(job)
    if at != NOT_DUE:
        _set_due(state, job.id, *((NOT_DUE, at) if there else (at, NOT_DUE)))
    if job.set_aside:
        (state.set_aside.add if there else state.set_aside.discard)(job.id)
    if job.waits_for:
        _depend(state, job.id, {dependency.job_id for dependency in job.waits_for}, there)


def _set_due(state: Tables, job: int, before: Due, after: Due) -> None:
    for kind, was, now in zip(DUE, before, after, strict=True):
        if was != now:
            set_deadline(state, kind, (job,), was, now)


def _depend(state: Tables, job: int, on: Iterable[int], there: bool) -> None:
    for other in on:
        add_or_discard(state.dependents, other, job, there)


def of_earmark(state: Tables, old: Earmark | None, new: Earmark | None) -> None:
    for row, there in ((old, False), (new, True)):
        if row is None:
            continue
        (state.free_resources.take if there else state.free_resources.give)(row.node, row.kept)
        add_or_discard(state.earmarks_of, row.job_id, row.id, there)
        for key in row.victims:
            others = [i for i in state.promised_by.get(key, ()) if i != row.id]
            set_or_drop(state.promised_by, key, tuple(sorted(others + [row.id] * there)) or None)
    if (old is None or new is None) and (row := old or new) is not None and row.devices:
        _keep(state, row, new is not None)
    before, after = old.deadline_us if old else None, new.deadline_us if new else None
    if before != after:
        set_deadline(state, Deadline.EARMARK, ((old or new).id,), before, after)  # type: ignore[union-attr]  # one is there
    state.pending.policies = True


def _keep(state: Tables, earmark: Earmark, keeps: bool) -> None:
    """Marks the earmark's devices, whether they are idle yet or not, as kept for its job, or as no longer kept."""
    node, mask = earmark.node, earmark.mask
    kept, idle = state.kept_devices.get(node, 0), state.idle_devices.get(node, 0)
    neither = state.faulty_devices.get(node, 0) | state.held_devices.get(node, 0)
    kept, idle = (kept | mask, idle & ~mask) if keeps else (kept & ~mask, idle | mask & ~neither)
    if state.jobs.rows[earmark.job_id].spec.guarantee is Guarantee.OPPORTUNISTIC:
        for_opportunistic = state.kept_for_opportunistic.get(node, 0)
        set_or_drop(
            state.kept_for_opportunistic, node, (for_opportunistic | mask if keeps else for_opportunistic & ~mask) or None
        )
    set_or_drop(state.kept_devices, node, kept or None)
    set_idle_devices(state, node, idle)
    hold_cells(state, node)
