"""Idle cells of virtual clusters over time: the only history that a virtual cluster's proxy needs."""

from scheduler_service.core.model.rows import dataclass, with_changes
from scheduler_service.core.model.values import Micros


@dataclass(frozen=True)
class IdleCells:
    """Cells of a kind that a virtual cluster has free, while its proxy is on."""

    vc: int
    pool: str
    level: str
    history: tuple[tuple[Micros, int], ...] = ()
    """(since when, at least how many), both increasing: cells have no names, so this many have been idle since then."""
    due_us: Micros | None = None
    """When more of them will have been idle for as long as the proxy asks."""


def with_idle_count(row: IdleCells, count: int, now: Micros, after_us: Micros) -> IdleCells:
    """Return the row with `count` cells idle now, without times so far back that the proxy does not look at them."""
    history, since = list(row.history), now
    while history and history[-1][1] >= count:
        since = history.pop()[0]
    if history and history[-1][0] == since:
        history.pop()
    history.append((since, count))
    while len(history) > 1 and history[1][0] + after_us <= now:
        del history[0]
    due = next((at + after_us for at, _ in history if at + after_us > now), None)
    return with_changes(row, history=tuple(history), due_us=due)
