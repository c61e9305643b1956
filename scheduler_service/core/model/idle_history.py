"""How many cells of a kind a virtual cluster has had idle, for its proxy: the only thing it must know of the past."""

from scheduler_service.core.cells.pool_queries import unbound
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.shape import level_of
from scheduler_service.core.model.rows import changed, dataclass
from scheduler_service.core.model.values import Micros
from scheduler_service.core.model.virtual_clusters import Owner
from scheduler_service.core.state.exchange_index import Kind


@dataclass(frozen=True)
class IdleCells:
    """Cells of a kind that a virtual cluster has free, while its proxy is on."""

    vc: int
    pool: str
    level: str
    history: tuple[tuple[Micros, int], ...] = ()
    """(Since when, how many at least), both rising: cells have no names, so that many of them have been idle ever since."""
    due_us: Micros | None = None
    """When more of them will have been idle for as long as the proxy asks."""


def noted(row: IdleCells, count: int, now: Micros, after_us: Micros) -> IdleCells:
    """The row when so many are idle; what it says of times before the proxy looks at is left out."""
    history, since = list(row.history), now
    while history and history[-1][1] >= count:
        since = history.pop()[0]
    if history and history[-1][0] == since:
        history.pop()
    history.append((since, count))
    while len(history) > 1 and history[1][0] + after_us <= now:
        del history[0]
    due = next((at + after_us for at, _ in history if at + after_us > now), None)
    return changed(row, history=tuple(history), due_us=due)


def idle_cells(pools: Pools, kind: Kind) -> int:
    """The virtual cluster's cells that it could bind now; not those that are faulty, or not there."""
    vc, name, level_name = kind
    pool = pools.pools.get(name)
    level = None if pool is None else level_of(pool.shape, level_name)
    if pool is None or level is None:
        return 0
    owner = Owner(vc)
    return max(unbound(pool, owner, level) - pool.doomed(owner, level), 0)
