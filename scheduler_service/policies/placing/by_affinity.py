"""On which idle devices a job starts: Gandiva's Algorithm 1, lines 1 to 10.

Servers are kept for jobs that ask for equally many devices (their affinity), so that other servers stay whole. As printed, line
5 skips servers in use, since the height of such a server is never below 1, while Figure 7 shows that they are meant. So line 5
is read as "a server of this affinity on which the job fits next to the others", and the least loaded of those is taken. A
server has no affinity once it is empty. Where the paper has the load decide between servers, those come first on which the
devices are closest to each other.
"""

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.messages import Place, Spot
from scheduler_service.core.model import Job
from scheduler_service.core.state.state import State
from scheduler_service.policies.placing.closest import nearest_of, pick_devices
from scheduler_service.policies.placing.first_fit import offered_to, place


def place_by_affinity(state: State, job: Job) -> Place | None:
    """Gangs, jobs without devices, and those that share devices because their users say so, go to the best nodes that have
    room. None: there is no room."""
    for one in job.in_each_configuration():
        if one.spec.gang or one.spec.shares or not one.spec.demand.devices:
            found = place(state, one)
        else:
            node = server_for(state, one)
            spots = () if node is None else (Spot(node, pick_devices(state, node, one.spec.demand.devices)),)
            found = Place(one.id, spots, configuration=one.configuration) if spots else None
        if found is not None:
            return found
    return None


def server_for(state: State, job: Job) -> int | None:
    """The server on which a job of one task, with devices, starts; None: no server has enough idle ones."""
    need, loads = job.spec.demand, state.loads()
    offered = offered_to(state, job)
    room = (offered[2] >= need.devices) & (offered[0] >= need.cpu_milli) & (offered[1] >= need.memory_mib)
    room[0] = False
    if job.avoid and (others := room & ~_mask_of_nodes(job.avoid, len(room))).any():
        room = others
    whole = state.free_resources.capacities()[2]
    beside = room & (loads.affinity == need.devices) & (loads.requested + need.devices <= whole)
    if beside.any():
        return _first_least(loads.requested / np.maximum(whole, 1), nearest_of(state, need.devices, beside))
    empty = room & (loads.affinity == 0)
    if empty.any():
        return _first_least(offered[2], nearest_of(state, need.devices, empty))
    return _first_least(offered[2], nearest_of(state, need.devices, room)) if room.any() else None


def _mask_of_nodes(nodes: tuple[int, ...], count: int) -> NDArray[np.bool_]:
    found = np.zeros(count, np.bool_)
    found[[node for node in nodes if node < count]] = True
    return found


def _first_least(of: NDArray[np.float64] | NDArray[np.int64], among: NDArray[np.bool_]) -> int:
    """The first of those with the least value."""
    ids = np.nonzero(among)[0]
    return int(ids[np.argmin(of[ids])])
