"""Indices over virtual clusters, their cells, and the cell exchange."""

from scheduler_service.core.cells.queries import lacks
from scheduler_service.core.model.tenants.exchange import Exchange, Posting
from scheduler_service.core.model.tenants.idle_history import IdleCells
from scheduler_service.core.model.tenants.virtual_clusters import Binding, VirtualCluster
from scheduler_service.core.state.exchange_index import exchange_deadlines, posting_deadlines
from scheduler_service.core.state.indices.deadlines import set_deadline, set_deadlines
from scheduler_service.core.state.indices.nonempty import add_or_discard, set_or_drop
from scheduler_service.core.state.indices.queues import set_order
from scheduler_service.core.state.queue_keys import Deadline
from scheduler_service.core.state.tables import Tables


def of_vc(state: Tables, old: VirtualCluster | None, new: VirtualCluster | None) -> None:
    row = new or old
    if row is None or state.pools is None:
        return
    if old is None or new is None:
        set_or_drop(state.vc_ids, row.name, row.id if new else None)
    order = None if new is None else state.order_of(new.policy)
    if order != state.vc_orders.get(row.name):
        set_order(state, row.name, order)
    state.pools.set_vc(row.id, new)
    state.pending.policies = state.pending.market = True


def of_binding(state: Tables, old: Binding | None, new: Binding | None) -> None:
    row = new or old
    if row is None or state.pools is None:
        return
    proxies = bool(state.idle.rows)
    lacking = proxies and lacks(state.pools, row.pool)
    state.pools.set_binding(old, new)
    if proxies:
        state.pending.vcs.update(binding.vc for binding in (old, new) if binding is not None)
        if lacking or lacks(state.pools, row.pool):
            state.pending.market = True  # the idle cells of a virtual cluster that lacks cells change as another binds some
    state.pending.policies = True


def of_posting(state: Tables, old: Posting | None, new: Posting | None) -> None:
    state.exchange_index.posting(old, new)
    row = new or old
    if row is not None:
        set_deadlines(state, (row.id,), posting_deadlines(old), posting_deadlines(new))
    state.pending.policies = state.pending.market = True


def of_exchange(state: Tables, old: Exchange | None, new: Exchange | None) -> None:
    kinds, row = state.exchange_index.exchange(old, new), new or old
    if row is not None:
        set_deadlines(state, (row.id,), exchange_deadlines(old), exchange_deadlines(new))
    for kind in kinds:
        if state.pools is not None:
            state.pools.set_exchanged(*kind, state.exchange_index.in_force.get(kind, 0))
    state.pending.policies = state.pending.market = True


def of_idle(state: Tables, old: IdleCells | None, new: IdleCells | None) -> None:
    before, after = old.due_us if old else None, new.due_us if new else None
    row = new or old
    if row is None:
        return
    if old is None or new is None:
        add_or_discard(state.idle_of, row.vc, (row.vc, row.pool, row.level), new is not None)
    if before != after:
        set_deadline(state, Deadline.IDLE, (row.vc, row.pool, row.level), before, after)
    state.pending.policies = True
