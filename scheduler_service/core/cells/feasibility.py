"""Whether a virtual cluster could ever meet a request: it is tried in a cluster of just its cells, with nothing running."""

from functools import lru_cache

from scheduler_service.core.cells.guaranteed_search import never_fits
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.request import RequestedCells
from scheduler_service.core.cells.shape import Shape
from scheduler_service.core.model.tenants.virtual_clusters import Owner

_ME = Owner(1)


@lru_cache(maxsize=1024)
def why_never(wanted: RequestedCells, shape: Shape, cells: tuple[int, ...]) -> str:
    """Why a virtual cluster that owns this many cells of each level could never have this; empty if it could."""
    pool = _private(shape, cells)
    if not never_fits(pool, _ME, wanted):
        return ""
    owned = ", ".join(f"{count} of level {shape.levels[level]}" for level, count in enumerate(cells) if count)
    return f"its cells ({owned or 'none'}) would not do even with nothing else running"


@lru_cache(maxsize=64)
def _private(shape: Shape, cells: tuple[int, ...]) -> Pool:
    """A pool of just these cells, all free; each in a highest cell of its own."""
    pool = Pool(shape, "")
    nodes = shape.size(shape.top) // shape.devices
    root = 0
    for level, count in enumerate(cells):
        pool.set_quota(_ME, level, count)
        for _ in range(count):
            first = root * nodes
            for slot in range(first, first + max(shape.size(level) // shape.devices, 1)):
                size = min(shape.size(level), shape.devices)
                pool.set_node(slot, (1 << size) - 1)
            root += 1
    return pool
