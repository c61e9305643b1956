"""Indices over the rows of the cell exchange, updated as the rows change."""

from collections.abc import Iterator

from scheduler_service.core.model.tenants.exchange import Exchange, ExchangeState, Kind, Posting, exchange_due, posting_due
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.queue_keys import Deadline


class ExchangeIndex:
    """Indices over live postings and exchanges."""

    def __init__(self) -> None:
        self.of: dict[int, set[int]] = {}
        """Virtual cluster -> the exchanges in which it gives or takes."""
        self.in_force: dict[Kind, int] = {}
        """Cells that open windows add to quotas; negative for givers."""
        self.posted: dict[tuple[int, str], int] = {}
        """(virtual cluster, request_id) -> its posting."""
        self.accepted: dict[tuple[int, str], int] = {}
        """(virtual cluster, request_id) -> the exchange that it made by accepting a posting."""

    def posting(self, old: Posting | None, new: Posting | None) -> None:
        for row, there in ((old, False), (new, True)):
            if row is not None and row.request_id:
                _note(self.posted, (row.vc, row.request_id), row.id, there)

    def exchange(self, old: Exchange | None, new: Exchange | None) -> list[Kind]:
        """Update the indices; return the kinds of cells for which a quota in force has changed."""
        kinds: dict[Kind, None] = {}
        for row, there in ((old, False), (new, True)):
            if row is None:
                continue
            for vc in (row.giver, row.taker):
                mine = self.of.setdefault(vc, set())
                mine.add(row.id) if there else mine.discard(row.id)
                if not mine:
                    del self.of[vc]
            if row.request_id:
                _note(self.accepted, (accepted_by(row), row.request_id), row.id, there)
            if row.state is ExchangeState.ACTIVE:
                for kind, count in quotas_of(row):
                    total = self.in_force.pop(kind, 0) + (count if there else -count)
                    kinds[kind] = None
                    if total:
                        self.in_force[kind] = total
        return list(kinds)

    def snapshot(self) -> dict[str, object]:
        """Return everything as plain comparable values, for tests."""
        return {
            "of": {vc: set(ids) for vc, ids in self.of.items()},
            "in_force": dict(self.in_force),
            "posted": dict(self.posted),
            "accepted": dict(self.accepted),
        }


def accepted_by(exchange: Exchange) -> int:
    """Return the virtual cluster that accepted an offer or a request; the taker if the arbiter matched the exchange."""
    return exchange.giver if exchange.request and not exchange.offer else exchange.taker


def quotas_of(exchange: Exchange) -> Iterator[tuple[Kind, int]]:
    """Yield the cells that the exchange adds to quotas while its window is open."""
    lot = exchange.lot
    yield (exchange.taker, lot.pool, lot.level), lot.count
    yield (exchange.giver, lot.pool, lot.level), -lot.count


def posting_deadlines(posting: Posting | None) -> tuple[tuple[Deadline, Micros | None], ...]:
    expires, begins = (None, None) if posting is None else (posting_due(posting), posting.begins_us)
    return (Deadline.POSTING_EXPIRES, expires), (Deadline.POSTING_BEGINS, begins)


def exchange_deadlines(exchange: Exchange | None) -> tuple[tuple[Deadline, Micros | None], ...]:
    return ((Deadline.WINDOW, None if exchange is None else exchange_due(exchange)),)


def _note(index: dict[tuple[int, str], int], key: tuple[int, str], row: int, there: bool) -> None:
    if there:
        index[key] = row
    elif index.get(key) == row:
        del index[key]
