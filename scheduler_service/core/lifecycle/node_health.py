"""Nodes on which nothing new is placed: because an operator said so, or because they fail jobs again and again. And the
jobs that wait outside their queues until a node opens."""

from scheduler_service.core.allocation.earmarks import drop_earmarks
from scheduler_service.core.allocation.transitions import any_task, stop_job
from scheduler_service.core.errors import NotFound
from scheduler_service.core.messages import DrainRequested, NodeChanged, UndrainRequested
from scheduler_service.core.model import EventKind, Job, Node, Reason, StopReason, Strike, present
from scheduler_service.core.model.jobs import Needs
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros
from scheduler_service.core.operations import migrating
from scheduler_service.core.state.resources.closed_nodes import why_closed
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

OWN_FAULTS_KEPT = 16
"""Number of strikes of which the cause is kept if the fault was the node's own."""
STRIKES_SHOWN = 8
"""Number of strikes in the reason of a drain."""


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
        opened = with_changes(node, drained_us=None, drain_reason="", drain_user="", strikes=0, strike_causes=())
        state.put(state.nodes, node.id, opened)
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


def strike_for_node(state: State, now: Micros, node_id: int, job_id: int, what: str) -> None:
    """Counts a failure that was the node's own fault. With too many strikes the node is drained."""
    _strike(state, now, node_id, Strike(job_id, None, what))


def strike_by_user(state: State, now: Micros, node_id: int, job: Job, what: str) -> None:
    """Counts a failure that was caused by what the job did on the node, and not elsewhere: by its command, or its data. Such
    failures are one strike for each user. Several users hardly make the same mistake, and one user's jobs often do."""
    _strike(state, now, node_id, Strike(job.id, job.user, what))


def _strike(state: State, now: Micros, node_id: int, cause: Strike) -> None:
    node = present(state.nodes.rows.get(node_id))
    if node is None:
        return
    others = tuple(each for each in node.strike_causes if cause.user is None or each.user != cause.user)
    is_known = len(others) < len(node.strike_causes)
    node = with_changes(node, strikes=node.strikes + (not is_known), strike_causes=_without_old_ones((*others, cause)))
    state.put(state.nodes, node_id, node)
    limit = state.settings.bad_node_strikes
    if limit and node.strikes >= limit and node.drained_us is None:
        drain(state, now, node, describe_strikes(node), "")


def _without_old_ones(causes: tuple[Strike, ...]) -> tuple[Strike, ...]:
    """Return the causes without the oldest of the node's own faults if there are many. Those of users are all needed."""
    own = [at for at, cause in enumerate(causes) if cause.user is None]
    return causes if len(own) <= OWN_FAULTS_KEPT else (*causes[: own[0]], *causes[own[0] + 1 :])


def describe_strikes(node: Node) -> str:
    """Return how many strikes a node has, and for which jobs: "2 strikes: job 4 of ann failed here ...; job 7 of ..."."""
    shown = node.strike_causes[-STRIKES_SHOWN:]
    last = " the last" if len(shown) < node.strikes else ""
    jobs = (f"job {each.job_id}{'' if each.user is None else f' of {each.user}'} {each.what}" for each in shown)
    return f"{node.strikes} strike{'' if node.strikes == 1 else 's'}{',' if last else ''}{last}: {'; '.join(jobs)}"


def praise(state: State, node_id: int) -> None:
    """Forgives the oldest strike of a node on which a job went well."""
    node = state.nodes.rows[node_id]
    if node.strikes:
        left = node.strikes - 1
        causes = node.strike_causes[max(len(node.strike_causes) - left, 0) :]
        state.put(state.nodes, node_id, with_changes(node, strikes=left, strike_causes=causes))


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
