"""A virtual cluster that goes by priority: who leaves for whom, and who merely loses its guarantee."""

import pytest

from scheduler_service.core.job import JobState, Reason
from scheduler_service.core.pools import PoolPlan
from scheduler_service.core.values import SECOND
from scheduler_service.core.vc import VcPolicy
from tests.policies.tenants import Tenants

PRIORITY = VcPolicy("priority")


def fours(count: int, *above: tuple[str, int], **settings: object) -> Tenants:
    """Nodes of four devices, n1, n2, ..., in one pool."""
    names = tuple(f"n{number}" for number in range(1, count + 1))
    return Tenants(dict.fromkeys(names, "FOUR"), [PoolPlan("p", names, above)], **settings)


def leaving(tenants: Tenants, *jobs: int) -> list[int]:
    return [job for job in jobs if tenants.job(job).state is JobState.STOPPING]


# ---- the lazy ----------------------------------------------------------------------------------------------------------


def test_the_lazy_lose_no_guarantee_where_that_is_of_no_use() -> None:
    """The two are in node cells that happen to be neighbours: as a rack, these are there only as long as they are bound."""
    t = fours(4, ("rack", 2))
    t.vc("A", ("p", "rack", 1), ("p", "node", 2), policy=PRIORITY)
    t.ask("A", 4, 4, within="rack", priority=9)
    lazy = [t.ask("A", 4, lazy=True), t.ask("A", 4, lazy=True)]
    assert [t.guaranteed(job) for job in lazy] == [True, True]
    high = t.ask("A", 4, 4, within="rack", priority=1)
    assert leaving(t, *lazy) == lazy  # it has to be their devices: so they go, as others would
    assert [t.guaranteed(job) for job in lazy] == [True, True]
    t.leave(*lazy)
    assert t.guaranteed(high)


def test_one_who_has_to_leave_anyhow_has_the_grace_period_of_one_who_was_guaranteed() -> None:
    t = fours(1, reclaim_grace_us=30 * SECOND)
    t.vc("A", pins=[("pin", "p", "node", 0)], policy=PRIORITY)
    lazy = t.ask("A", 4, lazy=True, pin="pin", grace=100)
    high = t.ask("A", 2, pin="pin", priority=1)
    assert t.run(lazy).stop_grace_us == 100 * SECOND
    assert t.waits(high) is Reason.WAITING_FOR_VICTIMS


@pytest.mark.parametrize("lazy_first", [True, False])
def test_who_is_lazy_stays_beside_one_who_is_not(lazy_first: bool) -> None:
    """A third node is idle: for one of the two tasks, and so one of the two victims may stay where it is."""
    t = fours(3)
    t.vc("A", ("p", "node", 2), policy=PRIORITY)
    first, second = t.ask("A", 4, lazy=lazy_first), t.ask("A", 4, lazy=not lazy_first)
    lazy, other = (first, second) if lazy_first else (second, first)
    place = t.at(lazy)
    high = t.ask("A", 4, 4, priority=1)
    assert leaving(t, lazy, other) == [other]
    assert not t.guaranteed(lazy)
    t.leave(other)
    assert t.guaranteed(high)
    assert t.at(lazy) == place
