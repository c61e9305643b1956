"""Windows of time: which cells a lot has when, and what exchanges add to quotas at each time."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate

from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.exchange import Exchange, ExchangeState, Lot
from scheduler_service.core.model.values import Micros


def covers(whole: Lot, part: Lot) -> bool:
    """Whether the part can be taken out of the whole."""
    return (
        (whole.pool, whole.level) == (part.pool, part.level)
        and whole.count >= part.count
        and whole.begin_us <= part.begin_us
        and part.end_us <= whole.end_us
    )


def from_now(lot: Lot, now: Micros) -> Lot:
    """The lot from now on, if its window has begun."""
    return with_changes(lot, begin_us=now) if lot.begin_us < now else lot


def is_empty(lot: Lot) -> bool:
    return lot.count <= 0 or lot.end_us <= lot.begin_us


def cells_used(lots: Iterable[Lot], begin_us: Micros, end_us: Micros) -> list[int]:
    """How many cells the lots take together, from each moment on at which that changes in the window."""
    return _sums(((lot, lot.count) for lot in lots), begin_us, end_us)


def balance(exchanges: Iterable[Exchange], vc: int, begin_us: Micros, end_us: Micros) -> list[int]:
    """As `cells_used`: what exchanges of one kind of cells add to those of a virtual cluster; negative where it gives more.

    This is `granted_cells` at all `moments` of the window, in one pass over them.
    """
    there = (x for x in exchanges if x.state is not ExchangeState.RETURNED)
    return _sums(((x.lot, x.lot.count * ((x.taker == vc) - (x.giver == vc))) for x in there), begin_us, end_us)


def _sums(counts: Iterable[tuple[Lot, int]], begin_us: Micros, end_us: Micros) -> list[int]:
    change = defaultdict(int, {begin_us: 0})
    for lot, count in counts:
        if lot.begin_us < end_us and begin_us < lot.end_us:
            change[max(lot.begin_us, begin_us)] += count
            change[lot.end_us] -= count
    return list(accumulate(change[at] for at in sorted(change) if at < end_us))


def granted_cells(exchanges: Iterable[Exchange], at_us: Micros) -> dict[tuple[int, str, str], int]:
    """Cells that exchanges add to the quota of (VC, pool, level) at a time, now or in the future; negative for givers.

    At the present time it equals `in_force`, once all due deadlines have been acted on.
    """
    there = (x for x in exchanges if x.state is not ExchangeState.RETURNED and x.lot.begin_us <= at_us < x.lot.end_us)
    return _quotas(there)


def in_force(exchanges: Iterable[Exchange]) -> dict[tuple[int, str, str], int]:
    """As `granted_cells`, but for the windows that were opened and not closed: the quotas as they are, whatever the clock
    says."""
    return _quotas(x for x in exchanges if x.state is ExchangeState.ACTIVE)


def _quotas(exchanges: Iterable[Exchange]) -> dict[tuple[int, str, str], int]:
    change: dict[tuple[int, str, str], int] = defaultdict(int)
    for exchange in exchanges:
        lot = exchange.lot
        change[exchange.taker, lot.pool, lot.level] += lot.count
        change[exchange.giver, lot.pool, lot.level] -= lot.count
    return {key: count for key, count in change.items() if count}


def moments(exchanges: Iterable[Exchange], begin_us: Micros, end_us: Micros) -> list[Micros]:
    """When `granted_cells` may change within a window, its begin included: where a check over the window has to look."""
    times = {at for x in exchanges if x.state is not ExchangeState.RETURNED for at in (x.lot.begin_us, x.lot.end_us)}
    return [begin_us, *sorted(at for at in times if begin_us < at < end_us)]
