"""Queues of jobs and their order, which follow from jobs, memos, and the policies in use."""

from scheduler_service.core.model import Job
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.model.memo import Memo
from scheduler_service.core.state.indices.charges import charge_all
from scheduler_service.core.state.indices.deadlines import set_deadline
from scheduler_service.core.state.indices.nonempty import add_or_discard
from scheduler_service.core.state.queue import Queue
from scheduler_service.core.state.queue_keys import (
    ACTIVE,
    LANE,
    Deadline,
    is_in_queue,
    lanes_of,
    may_do_without_devices,
    queues_in,
)
from scheduler_service.core.state.queue_order import QueueKey, QueueOrder
from scheduler_service.core.state.tables import Tables


def move_in_queue(state: Tables, old: Job | None, new: Job | None) -> None:
    """Updates the queues for a job that joins a queue, moves in it, or leaves it."""
    row = new or old
    if row is None:
        return
    order = state.vc_orders.get(row.spec.vc, state.site_order)
    memo = state.memos.rows.get((order.policy, order.subject(row))) if order.policy else None
    was = order.key(old, memo, state.settings) if old is not None and is_in_queue(old) else None
    now = order.key(new, memo, state.settings) if new is not None and is_in_queue(new) else None
    spec = row.spec
    if not spec.vc and (may_do_without_devices(spec) or (old is not None and old.spec is not spec)):
        _count_without_devices(state, old if was is not None else None, new if now is not None else None)
    if was == now:
        if now is not None and old is not None and new is not None and old.spec is not new.spec:
            state.pending.policies = True  # it was resized, and may fit now, or let others pass
            if not row.spec.vc:
                state.site_kinds[LANE[row.spec.job_class]].note(row.id)
        return
    if was is not None:
        _dequeue(state, row, was)
        state.pending.policies = True
    if now is not None:
        if _enqueue(state, row, now):
            state.pending.queue_grew = True
        else:
            state.pending.policies = True


def _count_without_devices(state: Tables, old: Job | None, new: Job | None) -> None:
    """Updates `without_devices` for a job of the site's queues; None: it was not, or is not, in a queue."""
    before = old is not None and may_do_without_devices(old.spec)
    after = new is not None and may_do_without_devices(new.spec)
    if before is not after and (row := new or old) is not None:
        state.without_devices[LANE[row.spec.job_class]] += after - before


def _enqueue(state: Tables, job: Job, key: QueueKey) -> bool:
    """Adds the job to its queues; returns whether it is known to be behind another, which it can be only on a site without
    virtual clusters, where policies look at the first job of a queue."""
    vc = job.spec.vc
    if not vc:
        lane = LANE[job.spec.job_class]
        queue = state.site_queues[lane]
        queue.add(key)
        state.site_kinds[lane].note(job.id)
        return queue.first != key
    for lane in lanes_of(job):
        queues = state.queues.setdefault((vc, lane), {})
        for named in queues_in(lane, job):
            queues.setdefault(named, Queue()).add(key)
    return False


def _dequeue(state: Tables, job: Job, key: QueueKey) -> None:
    vc = job.spec.vc
    if not vc:
        lane = LANE[job.spec.job_class]
        state.site_queues[lane].remove(key)
        state.site_kinds[lane].note(job.id)
        return
    for lane in lanes_of(job):
        queues = state.queues[vc, lane]
        for named in queues_in(lane, job):
            queues[named].remove(key)
            if queues[named].first is None:
                del queues[named]
        if not queues:
            del state.queues[vc, lane]


# ---- orders that depend on memos, or that reorder running jobs ---------------------------------------------------------


def move_among_running(state: Tables, old: Job | None, new: Job | None) -> None:
    """Updates what an order needs besides its queue: which jobs a memo is about, which jobs started or stopped running, and
    the order of the running jobs."""
    row = new or old
    if row is None:
        return
    order = state.order_for(row)
    if order.policy:
        if old is None or new is None:
            add_or_discard(state.subjects, (order.policy, order.subject(row)), row.id, new is not None)
        if old is None or new is None or old.state is not new.state:
            state.pending.jobs.add(row.id)
            state.pending.policies = True
    if order.claim is Claim.REORDER:
        was = state.place_of(old) if old is not None and _runs(old) else None
        now = state.place_of(new) if new is not None and _runs(new) else None
        if was != now:
            _move_running(state, row.spec.vc, was, now)


def _runs(job: Job) -> bool:
    return job.state in ACTIVE and job.elements is None


def _move_running(state: Tables, vc: str, was: QueueKey | None, now: QueueKey | None) -> None:
    if was is not None:
        state.running[vc].remove(was)
        if state.running[vc].first is None:
            del state.running[vc]
    if now is not None:
        state.running.setdefault(vc, Queue()).add(now)


def of_memo(state: Tables, old: Memo | None, new: Memo | None) -> None:
    row = new or old
    if row is None:
        return
    at = row.policy, row.subject
    for job_id in sorted(state.subjects.get(at, ())):
        job = state.jobs.rows[job_id]
        order = state.order_for(job)
        was, now = order.key(job, old, state.settings), order.key(job, new, state.settings)
        if was == now:
            continue
        if is_in_queue(job):
            _dequeue(state, job, was)
            _enqueue(state, job, now)
        elif order.claim is Claim.REORDER and _runs(job):
            _move_running(state, job.spec.vc, was, now)
        state.pending.policies = True
    before, after = old.due_us if old else None, new.due_us if new else None
    if before != after:
        set_deadline(state, Deadline.MEMO, at, before, after)
    if row.job_id and (old is None or new is None):
        add_or_discard(state.memos_of, row.job_id, at, new is not None)
    if new is not None and new.due:
        state.due_memos.add(at)
        state.pending.policies = True
    else:
        state.due_memos.discard(at)


def set_order(state: Tables, vc: str, order: QueueOrder | None) -> None:
    """Changes the order of a virtual cluster's queues, which moves all of its jobs. Looks at all jobs, but policies seldom
    change."""
    jobs = [job for job in state.jobs.rows.values() if job.spec.vc == vc]
    for job in jobs:
        move_in_queue(state, job, None)
        move_among_running(state, job, None)
        charge_all(state, job, holds=False)
    if order is None:
        del state.vc_orders[vc]
    else:
        state.vc_orders[vc] = order
    state.keeps_order = keeps_order(state)
    if introspects(state) != state.introspects:
        state.introspects = not state.introspects
        state.pending.nodes = set(state.runs_on) if state.introspects else set()
        state.server_loads.stale.update(range(1, state.free_resources.count + 1))
    for job in jobs:
        move_in_queue(state, None, job)
        move_among_running(state, None, job)
        charge_all(state, job, holds=True)


def keeps_order(state: Tables) -> bool:
    """Whether some order in use needs more than its queues."""
    return any(order.policy or order.claim is Claim.REORDER for order in (state.site_order, *state.vc_orders.values()))


def introspects(state: Tables) -> bool:
    """Whether some policy in use introspects."""
    return any(order.introspects for order in (state.site_order, *state.vc_orders.values()))
