"""Virtual clusters that exchange cells, in the engine; times in hours from the beginning."""

from operator import le
from typing import Any

from scheduler_service.core.cells.queries import cells_of
from scheduler_service.core.errors import Refused
from scheduler_service.core.messages import (
    AcceptRequested,
    Cells,
    Exchanged,
    PostingChanged,
    PostRequested,
    ReturnRequested,
    Step,
    WithdrawRequested,
)
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.exchange import Exchange, LedgerEntry, Posting, PostingKind
from scheduler_service.core.model.values import Micros
from scheduler_service.policies.hived.exchange.arbiter import Match, balance_surplus
from scheduler_service.policies.hived.policy import cells
from tests.core.driver import EPOCH
from tests.policies.tenants import Tenants

HOUR: Micros = 3_600_000_000
FOURS = "four-2x2"
NODE = (FOURS, "node", 1)


def at(hour: float) -> Micros:
    return EPOCH + int(hour * HOUR)


class Traders(Tenants):
    """Nodes of four devices. Keeps every posting, exchange and booking that there ever was."""

    def __init__(self, nodes: int, *plans: PoolPlan, match: Match | None = balance_surplus, **settings: Any) -> None:
        self.postings: dict[int, Posting] = {}
        self.exchanges: dict[int, Exchange] = {}
        self.booked: dict[tuple[Any, ...], LedgerEntry] = {}
        super().__init__({f"n{number}": "FOUR" for number in range(1, nodes + 1)}, plans, **settings)
        self.policy = cells(match)

    def step(self, *events: Any, after: int = 0) -> Step:
        before = self._missing()
        taken = super().step(*events, after=after)
        missing = self._missing()
        assert not before or all(map(le, missing, before)), f"{before} cells were missing, and now {missing}: Eqn 2"
        for change in taken.changes:
            if change.table == "exchange_posting":
                self.postings[change.key] = change.new
            elif change.table == "exchange":
                self.exchanges[change.key] = change.new
            elif change.table == "exchange_ledger":
                assert change.key not in self.booked, "booked twice"
                self.booked[change.key] = change.new
        for vc, row in self.state.surpluses.rows.items():
            entries = [entry.device_us for entry in self.booked.values() if entry.vc == vc]
            assert row.device_us == sum(entries), "a surplus is the sum of its ledger"
        return taken

    def _missing(self) -> tuple[int, ...]:
        """By level, cells that are promised and could not be had; empty where not all is well."""
        if self.state.pools is None or FOURS not in self.state.pools.pools or self.state.faulty_devices:
            return ()
        return self.state.pools.pools[FOURS].shortfall()

    def until(self, hour: float) -> None:
        """Time passes, with a step whenever something is due."""
        while self.state.deadlines and self.state.deadlines[0][0] <= at(hour):
            self.now = max(self.now, self.state.deadlines[0][0])
            self.step()
        self.now = at(hour)
        self.step()
        for job_id in sorted(self.state.jobs.rows):
            self.begin(job_id)

    def offer(self, vc: str, count: int = 1, begin: float = 0, end: float = 10, **more: Any) -> int:
        return self._post(PostingKind.OFFER, vc, count, begin, end, **more)

    def want(self, vc: str, count: int = 1, begin: float = 0, end: float = 10, **more: Any) -> int:
        return self._post(PostingKind.REQUEST, vc, count, begin, end, **more)

    def _post(self, kind: PostingKind, vc: str, count: int, begin: float, end: float, **more: Any) -> int:
        answer = self.posted(kind, vc, count, begin, end, **more)
        assert isinstance(answer, PostingChanged), answer
        self.begin(*sorted(self.state.jobs.rows))
        return answer.posting

    def posted(
        self, kind: PostingKind, vc: str, count: int, begin: float, end: float, request_id: str = "", **more: Any
    ) -> Any:
        pool, level = more.pop("pool", FOURS), more.pop("level", "node")
        what = Cells(pool, level, count, at(begin) if begin else 0, at(end))
        return self.reply(PostRequested(vc, request_id, kind, what, **more))

    def take(self, vc: str, posting: int, request_id: str = "", **part: Any) -> list[int]:
        answer = self.taken_by(vc, posting, request_id, **part)
        assert isinstance(answer, Exchanged), answer
        return list(answer.exchanges)

    def taken_by(self, vc: str, posting: int, request_id: str = "", **part: Any) -> Any:
        return self.reply(AcceptRequested(vc, request_id, posting, **part))

    def ask_back(self, exchange: int, vc: str = "") -> Any:
        return self.reply(ReturnRequested(exchange, vc))

    def withdraw(self, posting: int, vc: str = "") -> Any:
        return self.reply(WithdrawRequested(posting, vc))

    def hours(self) -> dict[str, float]:
        """Surpluses in GPU-hours."""
        names = {row.id: row.name for row in self.state.vcs.rows.values()}
        return {names.get(vc, str(vc)): row.device_us / HOUR for vc, row in self.state.surpluses.rows.items()}

    def owns(self, vc: str, level: str = "node", pool: str = FOURS) -> int:
        pools = self.state.pools
        assert pools is not None
        row = self.state.vcs.rows[self.state.vc_ids[vc]]
        return cells_of(pools, row, pool)[pools.pools[pool].shape.levels.index(level)]

    def restarted(self) -> None:
        """As after a restart: from the rows alone."""
        self.state = self.state.rebuild()


def reason(answer: Any) -> str:
    assert isinstance(answer, Refused), answer
    return answer.reason


def two(**more: Any) -> Traders:
    """A and B own a node of four devices each."""
    t = Traders(2, **more)
    t.vc("A", NODE)
    t.vc("B", NODE)
    return t


def many(*owned: int, match: Match | None = None) -> Traders:
    """A, B, ... own so many nodes; deals are made by hand unless there is an arbiter."""
    t = Traders(sum(owned), match=match)
    for name, count in zip("ABCDE", owned, strict=False):
        t.vc(name, (FOURS, "node", count))
    return t
