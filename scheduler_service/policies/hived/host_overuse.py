"""Runs from other settings may hold more than goes with their devices; then the devices of others come with less.

Such are runs from before there were virtual clusters, or from when less of a node was for work without devices. A job that has
a right to the devices next to them has those leave that are not guaranteed, and starts once they have.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from scheduler_service.core.allocation.guarantee import leaves_in_time
from scheduler_service.core.messages import Plan, Reclaim, Spot, Wait
from scheduler_service.core.model import Job, Reason, Run, RunKey
from scheduler_service.core.model.values import Vector, add, fits, mask_of, times
from scheduler_service.core.state.holdings import first_of_each, holding, resources_released
from scheduler_service.core.state.state import State

InTheWay = Mapping[int, Sequence[RunKey]]
_NOBODY: InTheWay = MappingProxyType({})


class Lacking(NamedTuple):
    """A node on which a job asks for more than there is."""

    node: int
    want: Vector
    free: Vector
    """The free resources of the node once those have left that hold its devices."""


def overdrawn_nodes(state: State, job: Job, spots: Sequence[Spot], in_the_way: InTheWay = _NOBODY) -> list[Lacking]:
    """Nodes that have the devices, but not what should go with them. None, if everything began under these settings: this is
    asked at each placement, and so it costs little then."""
    if len(spots) == 1 and fits(job.spec.tasks()[0], state.free_resources.free(spots[0].node)):
        return []
    wanted: dict[int, Vector] = {}
    for (node, _), demand in zip(spots, job.spec.tasks(), strict=True):
        before = wanted.get(node)
        wanted[node] = demand if before is None else add(before, demand)
    found = []
    for node, want in wanted.items():
        if not fits(want, state.free_resources.free(node)):
            free = _once_left(state, node, spots, in_the_way.get(node, ()))
            if not fits(want, free):
                found.append(Lacking(node, want, free))
    return found


def _once_left(state: State, node: int, spots: Iterable[Spot], leaving: Iterable[RunKey]) -> Vector:
    """The free resources of the node once these have left, with what is kept of these devices."""
    free, mask = state.free_resources.free(node), 0
    for spot in spots:
        mask |= mask_of(spot.devices) if spot.node == node else 0
    free = add(free, resources_released(state, [state.runs.rows[key] for key in leaving]))
    for row in state.earmarks.rows.values():
        if row.node == node and row.mask & mask:
            free = add(free, row.kept)
    return free


def have_them_leave(state: State, job: Job, lacking: Iterable[Lacking], in_the_way: InTheWay) -> Plan | None:
    """Reclaim runs that hold what belongs to others; then the job is tried again. None: they have a right to what they hold."""
    leave: set[int] = set()
    for node, want, free in lacking:
        for run in _beyond_their_share(state, node):
            if fits(want, free):
                break
            if run.key not in in_the_way.get(node, ()):
                leave.add(run.job_id)
                free = add(free, holding(state, run))
        if not fits(want, free):
            return None
    told = [one for one in sorted(leave) if not all(leaves_in_time(state, run) for run in state.runs_of(one))]
    told = first_of_each(state, told)
    text = "CPUs or memory that go with its devices are held by runs from before the scheduler's settings were changed"
    return (*(Reclaim(one, job.id) for one in told), Wait(job.id, Reason.WAITING_FOR_VICTIMS, text))


def _beyond_their_share(state: State, node: int) -> list[Run]:
    """Runs that are not guaranteed and hold more than goes with their devices: first those that leave anyway, then those that
    began while there were no virtual clusters; of these the last that was submitted."""
    assert state.pools is not None
    share = state.pools.positions[node].share
    runs = (state.runs.rows[key] for key in state.runs_on.get(node, ()))
    beyond = [run for run in runs if not run.guaranteed and not fits(run.demand, times(share, len(run.devices)))]

    def order(run: Run) -> tuple[bool, bool, RunKey]:
        return run.phase.exits_soon, not state.serves(state.jobs.rows[run.job_id]), run.key

    return sorted(beyond, key=order, reverse=True)
