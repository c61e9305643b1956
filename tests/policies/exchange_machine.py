"""A hypothesis state machine: virtual clusters that post, accept, give on and return, while jobs come and go, devices fail,
quotas change and the scheduler restarts. `Driver` and `Traders` check after every step what must hold; at the end everything is
its owner's again."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from scheduler_service.core.errors import Refused
from scheduler_service.core.messages import CancelRequested, Cells, FaultsSeen, PostingChanged, VcRequested
from scheduler_service.core.model import RunPhase
from scheduler_service.core.model.tenants.exchange import PostingKind
from scheduler_service.core.model.tenants.virtual_clusters import Quota, VcPolicy
from scheduler_service.policies.hived.exchange.arbiter_and_proxies import MATCHES
from tests.policies.tenants import OVERFLOW
from tests.policies.trading import FOURS, HOUR, Traders, at

NODES = 8
VCS = st.sampled_from(("A", "B", "C"))
LEVELS = st.sampled_from(("node", "node", "switch", "device"))
QUOTAS = st.fixed_dictionaries({"node": st.integers(0, 2), "switch": st.integers(0, 2), "device": st.integers(0, 2)})
HOURS = st.integers(0, 12)
DEVICES = {"node": 4, "switch": 2, "device": 1}


class ExchangeMachine(RuleBasedStateMachine):
    @initialize(
        match=st.sampled_from(sorted(MATCHES)),
        quotas=st.tuples(QUOTAS, QUOTAS, QUOTAS),
        proxied=st.sets(VCS, max_size=1),
    )
    def begin(self, match: str, quotas: tuple[dict[str, int], ...], proxied: set[str]) -> None:
        self.t = Traders(NODES, match=MATCHES[match])
        self.quotas: dict[str, dict[str, int]] = {}
        for name, owned in zip("ABC", quotas, strict=True):
            proxy = VcPolicy(proxy_after_us=2 * HOUR, proxy_window_us=3 * HOUR) if name in proxied else VcPolicy()
            self._ask(VcRequested(name, True, self._quota(owned), policy=proxy))
            self.quotas[name] = owned if name in self.t.state.vc_ids else {}

    def _quota(self, owned: dict[str, int]) -> tuple[Quota, ...]:
        return tuple(Quota(FOURS, level, count) for level, count in owned.items())

    def _ask(self, event: Any) -> Any:
        answer = self.t.reply(event)
        assert answer is not None
        self.t.begin(*sorted(self.t.state.jobs.rows))
        return answer

    def _hour(self) -> int:
        return int((self.t.now - at(0)) // HOUR)

    # ---- the market ----------------------------------------------------------------------------------------------------

    @rule(
        kind=st.sampled_from(PostingKind),
        vc=VCS,
        level=LEVELS,
        count=st.integers(1, 3),
        begin=HOURS,
        length=st.integers(1, 8),
        bid=st.sampled_from((None, None, 0, HOUR, 9 * HOUR)),
        swap=st.one_of(st.none(), st.tuples(LEVELS, st.integers(1, 3), HOURS)),
    )
    def post(
        self, kind: PostingKind, vc: str, level: str, count: int, begin: int, length: int, bid: int | None, swap: Any
    ) -> None:
        first = self._hour() + begin
        back = None
        if swap is not None:
            bid = None
            back = Cells(FOURS, swap[0], swap[1], at(self._hour() + swap[2] + 1), at(self._hour() + swap[2] + 1 + length))
        self.t.posted(kind, vc, count, first if begin else 0, first + length, level=level, bid=bid, swap=back)

    @precondition(lambda self: any(count for owned in self.quotas.values() for count in owned.values()))
    @rule(data=st.data(), begin=st.integers(0, 4), length=st.integers(1, 8), own=st.booleans(), swaps=st.booleans())
    def two_agree(self, data: st.DataObject, begin: int, length: int, own: bool, swaps: bool) -> None:
        """One offers what it has in its quota, or has at the moment; another takes it, at times for cells of its own."""
        t, first = self.t, self._hour() + begin + swaps
        kinds = [(vc, level) for vc in sorted(self.quotas) for level in DEVICES if self._has(vc, level, own)]
        vc, level = data.draw(st.sampled_from(kinds or [("A", "node")]))
        others = [(name, kind) for name, kind in kinds if name != vc] or [("B", "node")]
        taker, kind = data.draw(st.sampled_from(others))
        back = Cells(FOURS, kind, 1, at(first + 2), at(first + 6)) if swaps else None
        answer = t.posted(PostingKind.OFFER, vc, 1, first if begin + swaps else 0, first + length, level=level, swap=back)
        if isinstance(answer, PostingChanged) and answer.posting in t.state.postings.rows:
            t.taken_by(taker, answer.posting)
            t.begin(*sorted(t.state.jobs.rows))

    def _has(self, vc: str, level: str, own: bool) -> bool:
        return bool(self.quotas[vc].get(level)) if own else vc in self.t.state.vc_ids and self.t.owns(vc, level) > 0

    @precondition(lambda self: self.t.state.postings.rows)
    @rule(data=st.data(), vc=VCS, count=st.integers(0, 2))
    def accept(self, data: st.DataObject, vc: str, count: int) -> None:
        self.t.taken_by(vc, data.draw(st.sampled_from(sorted(self.t.state.postings.rows))), count=count)

    @precondition(lambda self: self.t.state.postings.rows)
    @rule(data=st.data(), site=st.booleans())
    def withdraw(self, data: st.DataObject, site: bool) -> None:
        self.t.withdraw(data.draw(st.sampled_from(sorted(self.t.state.postings.rows))), "" if site else "A")

    @precondition(lambda self: self.t.state.exchanges.rows)
    @rule(data=st.data(), sides=st.sampled_from((("A",), ("B",), ("C",), ("A", "B", "C"), ("",))))
    def ask_back(self, data: st.DataObject, sides: tuple[str, ...]) -> None:
        exchange = data.draw(st.sampled_from(sorted(self.t.state.exchanges.rows)))
        for side in sides:
            self.t.ask_back(exchange, side)

    # ---- the rest of the world -----------------------------------------------------------------------------------------

    @rule(
        vc=VCS,
        sizes=st.lists(st.sampled_from((1, 1, 2, 4)), min_size=1, max_size=2),
        overflow=st.booleans(),
        vacates=st.booleans(),
        copies=st.sampled_from((1, 1, 2, 6)),
    )
    def submit(self, vc: str, sizes: list[int], overflow: bool, vacates: bool, copies: int) -> None:
        more = {"guarantee": OVERFLOW} if overflow else {}
        for _ in range(copies):
            self.t.asked(vc, *sizes, vacates=vacates, **more)
        self.t.begin(*sorted(self.t.state.jobs.rows))

    @precondition(lambda self: self.t.state.active)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.t.end(data.draw(st.sampled_from(sorted(self.t.state.active))))

    @precondition(lambda self: self.t.state.active)
    @rule()
    def those_who_were_told_leave(self) -> None:
        for job_id in sorted(self.t.state.active):
            if any(run.phase is RunPhase.STOPPING for run in self.t.state.runs_of(job_id)):
                self.t.leave(job_id)

    @rule(vc=VCS, owned=QUOTAS)
    def quota_changes(self, vc: str, owned: dict[str, int]) -> None:
        if not isinstance(self._ask(VcRequested(vc, False, self._quota(owned))), Refused):
            self.quotas[vc] = owned

    @rule(hours=st.sampled_from((1, 1, 2, 5, 30)), asleep=st.booleans())
    def time_passes(self, hours: int, asleep: bool) -> None:
        if asleep:
            self.t.now += hours * HOUR
            self.t.step()
        else:
            self.t.until(self._hour() + hours)
        self.t.begin(*sorted(self.t.state.jobs.rows))

    @rule(node=st.integers(1, NODES), faulty=st.integers(0, 4))
    def devices_fail(self, node: int, faulty: int) -> None:
        self._ask(FaultsSeen(f"n{node}", "a", tuple((index, "XID 79") for index in range(faulty))))

    @rule()
    def restart(self) -> None:
        self.t.state = self.t.state.rebuild()

    # ---- the end -------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "t"):
            return
        t = self.t
        for node in range(1, NODES + 1):
            t.step(FaultsSeen(f"n{node}", "a", ()))
        for vc in t.state.vcs.rows.values():
            t.step(VcRequested(vc.name, False, policy=VcPolicy()))
        t.until(self._hour() + 60)
        assert not t.state.postings.rows, "a posting stands on the board for ever"
        assert not t.state.exchanges.rows, "an exchange never ends"
        assert not t.state.idle.rows
        for vc in t.state.vcs.rows.values():
            owns = {level: t.owns(vc.name, level) for level in DEVICES}
            assert owns == {level: self.quotas[vc.name].get(level, 0) for level in DEVICES}, "everything is its owner's again"
        for job_id in sorted(t.state.jobs.rows):
            t.step(CancelRequested(job_id))
        while t.state.active:
            t.leave(min(t.state.active))
        assert not t.state.bindings.rows
        pools = t.state.pools
        assert pools is not None
        assert pools.pools[FOURS].shortfall() == (0, 0, 0)
