"""Work without devices on nodes that have some: it takes what goes with no device, which is no part of any cell.

So it is in nobody's way, and nobody has it leave; and for the same reason nobody is guaranteed it.
"""

import numpy as np

from scheduler_service.core.model import JobSpec
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.resources.free_resources import FreeResources
from scheduler_service.core.state.resources.packing import pack


def asks_no_cell(spec: JobSpec) -> bool:
    """Whether what goes with no device would do: nothing of it has devices, and it names nothing that only cells have."""
    cells = spec.cells
    named = cells.pool or cells.model or cells.pin or any(cells.levels) or any(within.required for within in cells.within)
    return not (spec.demand.devices or spec.device_memory_mib or named)


def place_host_only(spec: JobSpec, host: FreeResources, room: FreeResources) -> list[int] | None:
    """A node for each task, where what goes with no device is free."""
    offered = np.minimum(host.offered(), room.offered())
    return pack(spec.tasks(), offered)


def could_ever(spec: JobSpec, host: FreeResources) -> bool:
    tasks: tuple[Vector, ...] = spec.tasks()
    return host.could_ever_fit_all(tasks)
