"""Nodes on which nothing new is placed: because an operator said so, or because they fail jobs again and again. And the
jobs that wait outside their queues until a node opens."""

from scheduler_service.core.allocation.earmarks import drop_earmarks
from scheduler_service.core.allocation.transitions import any_task, stop_job
from scheduler_service.core.errors import NotFound
from scheduler_service.core.messages import DrainRequested, NodeChanged, UndrainRequested
from scheduler_service.core.model import EventKind, Node, Reason, StopReason, present
from scheduler_service.core.model.jobs import Needs
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros
from scheduler_service.core.operations import migrating
from scheduler_service.core.state.resources.closed_nodes import why_closed
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event


def drain_requested(state: State, event: DrainRequested, now: Micros) -> NodeChanged:
    node = find_node(state, event.node)
    drain(state, now, node, event.reason, event.user)
    for key in sorted(state.runs_on.get(node.id, ())):
        if key in state.runs.rows and state.runs.rows[key].phase.awaits_source:
            migrating.target_over(state, now, state.runs.rows[key], f"node {node.name} is being drained")
    if event.evict:
        text = state.nodes.rows[node.id].drain_reason
        for job_id in sorted({key.job_id for key in state.runs_on.get(node.id, ())}):
            if not any_task(state, job_id).phase.exits_soon:
                job, why = state.jobs.rows[job_id], Reason.NODE_DRAINED
                log_event(state, now, job_id, EventKind.REQUEUE_REQUESTED, run=job.run, node=node.id, reason=why, text=text)
                stop_job(state, now, job, StopReason.DRAINED, why)
    return NodeChanged(node.id)


def undrain_requested(state: State, event: UndrainRequested, _now: Micros) -> NodeChanged:
    """Opens a node. Its strikes are forgotten: the user who opens it has dealt with what caused them."""
    node = find_node(state, event.node)
    if node.drained_us is not None or node.strikes:
        state.put(state.nodes, node.id, with_changes(node, drained_us=None, drain_reason="", drain_user="", strikes=0))
    return NodeChanged(node.id)


def find_node(state: State, name: str) -> Node:
    node_id = state.node_ids.get(name)
    if node_id is None:
        raise NotFound("NO_SUCH_NODE", f"there is no node {name}; `ebb node list` shows those there are", node=name)
    return state.nodes.rows[node_id]


def drain(state: State, now: Micros, node: Node, reason: str, user: str) -> None:
    """Drains a node. Trials do not wait for it any more: nothing is placed on what becomes free there. A user who drains it
    again without a reason, as to evict what still runs there, leaves the reason that it has."""
    if node.drained_us is None:
        state.put(state.nodes, node.id, with_changes(node, drained_us=now, drain_reason=reason, drain_user=user))
    elif reason:
        state.put(state.nodes, node.id, with_changes(node, drain_reason=reason, drain_user=user))
    drop_earmarks_on(state, node.id, now, "its node is being drained")


def drop_earmarks_on(state: State, node_id: int, now: Micros, why: str) -> None:
    """Drops the node's earmarks in order of ids: the order of the rows depends on what was undone before."""
    for earmark in sorted((row for row in state.earmarks.rows.values() if row.node == node_id), key=lambda row: row.id):
        drop_earmarks(state, now, earmark.job_id, why)


def strike(state: State, now: Micros, node_id: int, why: str) -> None:
    """Counts a failure that was the node's fault. With too many of these it is drained."""
    node = present(state.nodes.rows.get(node_id))
    if node is None:
        return
    node = with_changes(node, strikes=node.strikes + 1)
    state.put(state.nodes, node_id, node)
    limit = state.settings.bad_node_strikes
    if limit and node.strikes >= limit and node.drained_us is None:
        drain(state, now, node, f"{node.strikes} failures that were its fault; the last: {why}", "")


def praise(state: State, node_id: int) -> None:
    """Forgives a strike of a node on which a job went well."""
    node = state.nodes.rows[node_id]
    if node.strikes:
        state.put(state.nodes, node_id, with_changes(node, strikes=node.strikes - 1))


def review_closed_nodes(state: State) -> None:
    """Puts jobs that an open node could take now back into their old places, and notes for the others which nodes they wait
    for. Costs a look at each, after nodes have changed."""
    known: dict[Needs, str | None] = {}
    for job_id in sorted(state.beside[Reason.NODES_CLOSED]):
        job = state.jobs.rows[job_id]
        needs = job.needs()
        if needs not in known:
            waits = not state.could_take_now(job) and state.could_ever_take(job)
            known[needs] = why_closed(state, job) if waits else None
        why = known[needs]
        if why is None:
            state.put(state.jobs, job_id, with_changes(job, reason=Reason.NONE, detail="", cause_job=0))
        elif why != job.detail:
            state.put(state.jobs, job_id, with_changes(job, detail=why))
