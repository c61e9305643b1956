"""Warm runs at one node while the run before them is still at another: how they take their place.

They hold their devices, CPUs and memory from the start, but are no part of the job's launch before they begin: they are never
preempted, nothing waits for them, and no task of the launch has their number.
"""

from scheduler_service.core.allocation.placing import start_sharing, start_task
from scheduler_service.core.errors import require
from scheduler_service.core.messages import Share, Spot
from scheduler_service.core.model import Job, NodeState
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State


def warm(state: State, now: Micros, job: Job, spots: tuple[Spot, ...], guaranteed: bool, share: Share | None = None) -> int:
    """Gives the next launch of a running job its place, and a number that no other launch gets. Raises PlanRefused."""
    spec = job.launch_spec
    tasks = spec.tasks()
    require(len(spots) == len(tasks), f"job {job.id} has {len(tasks)} tasks, and {len(spots)} places were named")
    among = state.suitable_for(spec)
    for spot in spots:
        node = state.nodes.rows.get(spot.node)
        require(node is not None and node.state is not NodeState.DELETED, f"there is no node {spot.node}")
        assert node is not None  # as has just been required
        require(node.state is NodeState.UP, f"node {node.name} is silent")
        require(node.drained_us is None, f"node {node.name} is being drained")
        require(state.free_resources.is_open(spot.node), f"node {node.name} takes nothing new")
        usable = among is None or bool(among.bits >> spot.node & 1)
        require(usable, f"node {node.name} is none of those that job {job.id} asks for")
    number = job.next_run
    following = with_changes(job, run=number)
    state.put(state.jobs, job.id, with_changes(job, numbered=number))
    if share is not None:
        start_sharing(state, now, following, spots, guaranteed, share, awaits=True)
        return number
    for rank, (spot, demand) in enumerate(zip(spots, tasks, strict=True)):
        start_task(state, now, following, rank, spot, demand, guaranteed, awaits=True)
    return number
