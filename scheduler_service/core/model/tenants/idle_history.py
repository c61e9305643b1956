"""How many cells of a kind a virtual cluster has had idle, for its proxy: the only thing it must know of the past."""

from scheduler_service.core.model.rows import changed, dataclass
from scheduler_service.core.model.values import Micros


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
