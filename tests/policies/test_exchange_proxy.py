"""The proxy in the engine: it offers a tenant's idle cells, and takes them back."""

from dataclasses import replace

from scheduler_service.core.messages import (
    NodeSeen,
    VcRequested,
)
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.exchange import PostingState
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.core.state.state import State
from scheduler_service.policies.hived.exchange.arbiter import auction
from tests.policies.tenants import inventory
from tests.policies.trading import FOURS, HOUR, Traders, at, many


def proxied(**more: int) -> Traders:
    t = many(3, 1, match=auction)
    policy = VcPolicy(proxy_after_us=2 * HOUR, proxy_window_us=4 * HOUR, **more)
    t.step(VcRequested("A", False, policy=policy))
    return t


def test_the_proxy_is_off_unless_asked_for() -> None:
    t = many(3, 1)
    t.until(100)
    assert not t.postings
    assert not t.state.idle.rows


def test_the_proxy_offers_what_was_idle_for_long() -> None:
    t = proxied(proxy_keep=1)
    job = t.ask("A", 4)
    t.until(1)
    t.end(job)
    t.until(1.9)
    assert not t.postings
    t.until(2)
    assert [(row.lot.count, row.by_proxy, row.lot.end_us) for row in t.postings.values()] == [(1, True, at(6))]
    t.until(3)
    assert [row.lot.count for row in t.state.postings.rows.values()] == [1, 1], "the job's cell is idle for long now as well"
    assert t.state.idle.rows[1, FOURS, "node"].history == ((at(1), 3),), "what was before is of no interest any more"
    t.want("B", 1, begin=3, end=5)
    assert [t.owns(name) for name in "AB"] == [2, 2]


def test_the_proxy_takes_back_what_is_needed_before_anybody_gets_it() -> None:
    t = proxied()
    t.until(2)
    assert [row.lot.count for row in t.state.postings.rows.values()] == [3]
    t.ask("A", 4)
    assert t.postings[1].state is PostingState.WITHDRAWN
    assert [row.lot.count for row in t.state.postings.rows.values()] == [2]


def test_who_switches_its_proxy_off_has_nothing_on_the_board_of_it() -> None:
    t = proxied()
    t.until(2)
    mine = t.offer("A", 1)
    t.step(VcRequested("A", False, policy=VcPolicy()))
    assert list(t.state.postings.rows) == [mine]
    assert not t.state.idle.rows


def test_the_proxy_gives_on_what_was_taken_only_as_long_as_it_is_there() -> None:
    t = many(1, 1, match=None)
    t.step(VcRequested("B", False, policy=VcPolicy(proxy_after_us=HOUR, proxy_window_us=2 * HOUR)))
    t.take("B", t.offer("A", end=2))
    t.until(1)
    assert [row.lot.count for row in t.postings.values() if row.by_proxy] == [1], "the taken one goes back before three o'clock"
    t.until(2)
    assert t.owns("B") == 1


def test_the_proxy_lets_go_of_cells_of_a_level_that_has_gone() -> None:
    """The rows of what was idle, and the offers, outlive what the site calls its cells; nobody could be given any."""
    plan = PoolPlan("p", ("n1", "n2"), (("rack", 2),))
    t = Traders(2, plan, match=None)
    t.vc("A", ("p", "rack", 1))
    t.vc("B")
    t.step(VcRequested("A", False, policy=VcPolicy(proxy_after_us=HOUR, proxy_window_us=4 * HOUR)))
    t.until(1)
    assert [(row.lot.level, row.by_proxy) for row in t.state.postings.rows.values()] == [("rack", True)]
    rows = [(table.name, key, row) for table in t.state.tables() for key, row in table.rows.items() if table.name != "cluster"]
    renamed = PoolPlan("p", ("n1", "n2"), (("cabinet", 2),))
    t.state = State(t.state.cluster, t.state.settings._replace(pools=(renamed,)), t.state.order_of)
    t.state.restore(rows)
    t.step()
    assert not t.state.idle.rows
    assert not t.state.postings.rows
    t.until(5)


def test_an_agent_may_call_its_levels_something_else() -> None:
    t = Traders(1, match=None)
    t.vc("A", (FOURS, "switch", 2))
    t.step(VcRequested("A", False, policy=VcPolicy(proxy_after_us=HOUR, proxy_window_us=4 * HOUR)))
    t.until(1)
    assert [row.lot.level for row in t.state.postings.rows.values()] == ["switch"]
    t.step(NodeSeen("n1", "a", replace(inventory("FOUR"), levels=("bridge",))))
    assert t.state.pools is not None
    assert t.state.pools.pools[FOURS].shape.levels == ("device", "bridge", "node")
    assert not t.state.idle.rows
    assert not t.state.postings.rows
