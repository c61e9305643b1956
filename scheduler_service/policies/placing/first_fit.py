"""Places a job where it fits: plain vector fitting, on the nodes and devices that are closest (`closest`)."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Place, Spot, Wait
from scheduler_service.core.model import EarmarkPhase, Job, Reason, ShareMode
from scheduler_service.core.model.values import add, fits
from scheduler_service.core.state.queue_keys import Lane
from scheduler_service.core.state.resources.closed_nodes import why_closed
from scheduler_service.core.state.resources.suitable_nodes import describe, node_requirements
from scheduler_service.core.state.state import State
from scheduler_service.policies.placing.closest import best_of, closest_node, devices_for, pack_closely, pick_devices
from scheduler_service.policies.placing.joining import join

_NO_ROOM, _TOO_LARGE, _NODES_CLOSED = Reason.NO_ROOM, Reason.TOO_LARGE, Reason.NODES_CLOSED


def place(state: State, job: Job) -> Place | None:
    """Puts the job on the best nodes that have room, counting what is kept for it there, in the first of its configurations
    that has room. None: there is no room.

    Nodes that it is to avoid come last. A job that asks for a part of a device joins others before it takes another device.
    """
    if job.spec.share is not ShareMode.EXCLUSIVE and (joined := join(state, job, avoid=job.avoid)) is not None:
        return joined
    if not (job.spec.gang or job.avoid or job.spec.alternatives):  # nearly always
        node = _first_node(state, job)
        if node is None:
            return None
        return Place(job.id, (Spot(node, pick_devices(state, node, job.spec.demand.devices)),), configuration=job.configuration)
    places = (_place_configured(state, one) for one in job.in_each_configuration())
    return next((place for place in places if place is not None), None)


def place_on_first_node(state: State, job: Job) -> Place | None:
    """As `place`, and a job of one task on the first node that has room, however close its devices are there: so does the
    simulator of the FitGpp paper, as far as its figures tell."""
    spec = job.spec
    if spec.gang or job.avoid or spec.alternatives or spec.share is not ShareMode.EXCLUSIVE:
        return place(state, job)
    node = state.free_resources.first_fit(spec.demand, state.suitable_for(spec))
    for other in _nodes_with_earmarks(state, job):
        node = other if node is None else min(node, other)
    if node is None:
        return None
    return Place(job.id, (Spot(node, pick_devices(state, node, spec.demand.devices)),), configuration=job.configuration)


def _place_configured(state: State, job: Job) -> Place | None:
    offered = offered_to(state, job)
    nodes = None
    if job.avoid:
        without = offered.copy()
        without[:, list(job.avoid)] = -1
        nodes = pack_closely(state, job.spec.tasks(), without)
        if nodes is None and (joined := join(state, job)) is not None:
            return joined
    nodes = nodes or pack_closely(state, job.spec.tasks(), offered)
    return None if nodes is None else place_on(state, job, nodes)


def place_on_earmarks(state: State, job: Job) -> Place:
    """Puts the job where everything is kept for it."""
    earmarks = [state.earmarks.rows[earmark_id] for earmark_id in state.earmarks_of[job.id]]
    job = job.in_configuration(earmarks[0].configuration)
    nodes = [0] * len(job.spec.tasks())
    for earmark in earmarks:
        for rank in earmark.tasks:
            nodes[rank] = earmark.node
    return place_on(state, job, nodes)


def start_on_earmarks(state: State, place: Callable[[State, Job], Place]) -> Proposals:
    """Start jobs for which everything is kept that they need. They take nothing from other jobs, so those before them in the
    queue, which may wait for that very room, do not hold them up. Every policy begins with them: what is kept may have been so
    by the policy that was there before."""
    for job_id in sorted(state.earmarks_of, key=lambda job_id: min(state.earmarks_of[job_id])):
        earmarks = [state.earmarks.rows[i] for i in state.earmarks_of[job_id]]
        if all(earmark.phase is EarmarkPhase.READY for earmark in earmarks):
            yield (place(state, state.jobs.rows[job_id]),)


def place_on(state: State, job: Job, nodes: list[int]) -> Place:
    """With devices for each task, a node of which is given."""
    spots = tuple(map(Spot, nodes, devices_for(state, nodes, job.spec.tasks())))
    return Place(job.id, spots, configuration=job.configuration)


def offered_to(state: State, job: Job) -> NDArray[np.int64]:
    """(3, nodes + 1): what each node has for the job, with what is kept there for it; a copy."""
    offered = state.free_resources.offered_resources(state.suitable_for(job.spec)).copy()
    for earmark_id in state.earmarks_of.get(job.id, ()):
        earmark = state.earmarks.rows[earmark_id]
        if state.is_usable(job.spec, earmark.node):
            offered[:, earmark.node] += earmark.kept
    return offered


def take_promised(state: State, job: Job, offered: NDArray[np.int64]) -> None:
    """Takes off what others' earmarks still miss: what their victims release goes there first."""
    for earmark in state.earmarks.rows.values():
        if earmark.job_id != job.id and state.free_resources.is_open(earmark.node):
            offered[:, earmark.node] -= np.array(earmark.want) - np.array(earmark.kept)


def _first_node(state: State, job: Job) -> int | None:
    need = job.spec.demand
    node = closest_node(state, need, state.suitable_for(job.spec))
    if job.id in state.earmarks_of:  # it has more there than others have
        nodes = 0 if node is None else 1 << node
        for other in _nodes_with_earmarks(state, job):
            nodes |= 1 << other
        return best_of(state, need.devices, nodes)
    return node


def _nodes_with_earmarks(state: State, job: Job) -> Iterator[int]:
    """The nodes on which the job of one task has room with what is kept for it there."""
    for earmark_id in state.earmarks_of.get(job.id, ()):
        earmark = state.earmarks.rows[earmark_id]
        here = add(state.free_resources.free(earmark.node), earmark.kept)
        if state.is_usable(job.spec, earmark.node) and fits(job.spec.demand, here):
            yield earmark.node


def queued_job(state: State, lane: Lane, skip: int) -> Job | None:
    """The job behind `skip` others in its lane, on a site without virtual clusters."""
    key = state.site_queues[lane].key_behind(skip)
    return None if key is None else state.jobs.rows[key[-1]]


def no_room(state: State, job: Job) -> Wait:
    """Why the first of a queue waits. If no node could ever take it, or none that is open, it is told so and leaves the queue
    (`leaves_queue`). If no node is open at all, it stays: no job behind it could start."""
    if state.could_take_now(job):
        return Wait(job.id, _NO_ROOM)
    if state.node_ids and not state.could_ever_take(job):
        return Wait(job.id, Reason.TOO_LARGE, why_too_large(state, job))
    return Wait(job.id, Reason.NODES_CLOSED, why_closed(state, job)) if state.open_nodes.any() else Wait(job.id, _NO_ROOM)


def leaves_queue(wait: Wait) -> bool:
    """Whether a job that is told so leaves the queue, out of others' way, until a node joins or opens that can take it."""
    return wait.reason is _TOO_LARGE or wait.reason is _NODES_CLOSED


def why_too_large(state: State, job: Job) -> str:
    """Why none of the job's configurations would fit on the nodes as they are, all of them empty."""
    if job.spec.alternatives:
        return "; ".join(
            f"configuration {one.configuration}: {_why_too_large(state, one)}" for one in job.in_each_configuration()
        )
    return _why_too_large(state, job)


def _why_too_large(state: State, job: Job) -> str:
    room, gang, among = state.free_resources, job.spec.gang, state.suitable_for(job.spec)
    kind = "no node of the cluster"
    if among is not None and (asks := node_requirements(job.spec)) is not None:
        kind = f"no node that {describe(asks)}"
        if not among.bits:
            return f"there is {kind}"
    if gang and all(room.could_ever_fit(group.demand, among) for group in gang):
        return "its tasks would not fit on the cluster at once, even when it is empty"
    return f"{kind} is large enough, even when empty"
