"""Jobs without devices on nodes that have devices: they take resources that belong to no device, and so to no cell.

So they block no other job and are never preempted; for the same reason these resources are guaranteed to no job.
"""

import numpy as np

from scheduler_service.core.model import JobSpec
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.resources.free_resources import FreeResources
from scheduler_service.core.state.resources.packing import pack


def asks_no_cell(spec: JobSpec) -> bool:
    """Whether the job can run without cells: it needs no devices, and names nothing that only cells have."""
    cells = spec.cells
    named = cells.pool or cells.model or cells.pin or any(cells.levels) or any(within.required for within in cells.within)
    return not (spec.demand.devices or spec.device_memory_mib or named)


def place_host_only(spec: JobSpec, host: FreeResources, room: FreeResources) -> list[int] | None:
    """Return a node for each task that has enough free resources that belong to no device; None if one finds no node."""
    offered = np.minimum(host.offered_resources(), room.offered_resources())
    return pack(spec.tasks(), offered)


def could_ever(spec: JobSpec, host: FreeResources) -> bool:
    tasks: tuple[Vector, ...] = spec.tasks()
    return host.could_ever_fit_all(tasks)
