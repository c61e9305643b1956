"""Who lost its cells, and goes on as opportunistic, has them again as soon as they are there."""

import pytest

from scheduler_service.core.messages import NodeSilent
from scheduler_service.core.model import JobState, Reason
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from tests.policies.tenants import OVERFLOW, Tenants
from tests.policies.trading import Traders

FOURS = "four-2x2"
NODE = (FOURS, "node", 1)
OVERFLOWS = {"guarantee": OVERFLOW}


@pytest.mark.parametrize("wants", [{}, OVERFLOWS])
def test_cells_that_come_back_from_an_exchange_are_of_those_who_were_in_them(wants: dict[str, object]) -> None:
    """And not of jobs that came later, for which these would have to leave."""
    t = Traders(1, match=None)
    t.vc("A", NODE)
    t.vc("B")
    first, second = t.ask("A", 2), t.ask("A", 2)
    where = t.at(first)
    t.take("B", t.offer("A", begin=1, end=3))
    t.until(2)
    assert (t.guaranteed(first), t.guaranteed(second)) == (False, False)
    later = t.ask("A", 4, **wants)
    t.until(3)
    assert (t.guaranteed(first), t.guaranteed(second)) == (True, True)
    assert t.at(first) == where
    assert t.job(later).state is JobState.QUEUED
    t.end(first, second)
    assert t.guaranteed(later)


def test_a_virtual_cluster_that_grows_again_has_its_runs_guaranteed_again() -> None:
    t = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    t.vc("A", (FOURS, "node", 2))
    jobs = [t.ask("A", 4), t.ask("A", 4)]
    t.change("A", NODE)
    waits = t.ask("A", 4)
    assert sorted(t.guaranteed(job) for job in jobs) == [False, True]
    t.change("A", (FOURS, "node", 2))
    assert [t.guaranteed(job) for job in jobs] == [True, True]
    assert t.job(waits).state is JobState.QUEUED


def test_who_waits_with_a_higher_priority_comes_before_who_lost_its_cells() -> None:
    t = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    t.vc("A", (FOURS, "node", 2), policy=VcPolicy("priority"))
    high, low = t.ask("A", 4, priority=5), t.ask("A", 4)
    t.change("A", NODE)
    assert (t.guaranteed(low), t.guaranteed(high)) == (False, True)
    urgent = t.ask("A", 4, priority=5)
    t.end(high)
    assert t.guaranteed(urgent)
    assert not t.guaranteed(low)
    t.end(urgent)
    assert t.guaranteed(low)


def test_cells_that_a_run_fills_are_bound_rather_than_smaller_ones() -> None:
    """A socket's four devices, of somebody who owns two more: were these taken, no socket would be left around the others."""
    t = Tenants({"one": "P100", "two": "P100"})
    t.vc("A", ("p100-2x2x2", "socket", 1), ("p100-2x2x2", "device", 2))
    first, second = t.ask("A", 4), t.ask("A", 4, **OVERFLOWS)
    assert (t.guaranteed(first), t.guaranteed(second)) == (True, False)
    t.end(first)
    assert t.guaranteed(second)
    assert [level for _, level, _ in t.owned()] == ["socket"]


def test_where_no_cell_is_filled_the_smallest_around_them_is_bound() -> None:
    t = Tenants({"one": "P100", "two": "P100"})
    t.vc("A", ("p100-2x2x2", "socket", 1))
    full, overflows = t.ask("A", 4), t.ask("A", 3, **OVERFLOWS)
    assert not t.guaranteed(overflows)
    t.end(full)
    assert t.guaranteed(overflows)
    assert [level for _, level, _ in t.owned()] == ["socket"]


def test_who_could_never_run_in_cells_of_its_own_is_not_promoted_into_them() -> None:
    """Four single devices are not four together, also where they are next to each other; jobs of one device find all four."""
    t = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    t.vc("A", (FOURS, "device", 4))
    wide = t.ask("A", 4, **OVERFLOWS)
    assert not t.guaranteed(wide)
    assert all(t.guaranteed(t.ask("A", 1)) for _ in range(4))
    assert t.job(wide).state is JobState.RUNNING


def test_a_job_whose_virtual_cluster_has_its_cells_back_later_is_not_told_never() -> None:
    """Nor does it hold up those that fit in what is there."""
    t = Traders(2, match=None)
    t.vc("A", (FOURS, "node", 1), (FOURS, "device", 2))
    t.vc("B")
    t.take("B", t.offer("A", begin=0, end=3))
    wide, small = t.ask("A", 4), t.ask("A", 1)
    assert t.job(wide).reason is Reason.BEYOND_QUOTA
    assert t.job(wide).detail == "virtual cluster A owns what it needs at other times (exchanges)"
    assert t.guaranteed(small)
    t.until(3)
    assert t.guaranteed(wide)


def test_who_lost_its_cells_comes_before_the_next_one_also_where_the_first_one_outranks_it() -> None:
    tenants = Tenants(dict.fromkeys(("one", "two", "three"), "FOUR"))
    tenants.vc("A", (FOURS, "node", 3))
    running = [tenants.ask("A", 4) for _ in range(3)]
    tenants.change("A", (FOURS, "node", 1))
    assert [tenants.guaranteed(job) for job in running] == [True, False, False]
    first, next_one = tenants.ask("A", 4, priority=5), tenants.ask("A", 4)
    tenants.change("A", (FOURS, "node", 3))
    assert tenants.waits(first) is Reason.WAITING_FOR_VICTIMS  # it has the cells of one of the two
    assert sum(tenants.guaranteed(job) for job in running) == 2
    assert tenants.waits(next_one) is Reason.BEYOND_QUOTA


def test_a_cell_that_is_bound_around_one_job_may_be_what_another_before_it_wanted() -> None:
    """The second one's task fills the rest of the node with the first one's; asked first, that one could not have it."""
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    tenants.vc("A")
    jobs = [tenants.ask("A", 2, 1, guarantee=OVERFLOW) for _ in range(2)]
    assert [len(tenants.at(job)) for job in jobs] == [2, 2]
    tenants.change("A", (FOURS, "node", 1), (FOURS, "device", 2))
    assert [tenants.guaranteed(job) for job in jobs] == [True, True]


def test_cells_that_another_virtual_cluster_gives_away_in_the_same_step_are_had_in_that_step() -> None:
    """Also by one that was served before it."""
    t = Tenants({"n1": "FOUR", "n2": "FOUR"})
    t.vc("B", (FOURS, "switch", 1))
    t.vc("A", policy=VcPolicy("priority"))
    t.vc("C", NODE)
    other, job = t.ask("C", 4), t.ask("B", 2)
    t.change("B")
    t.change("A", NODE)
    lazy = t.ask("A", 2, lazy=True)
    assert [place[:2] for job_id in (other, job, lazy) for place in t.at(job_id)] == ["n1", "n2", "n2"]
    t.end(other)
    t.change("C")
    t.change("B", (FOURS, "switch", 1))
    assert not t.guaranteed(job), "it is in a node of A's"
    urgent = t.ask("A", 4, priority=1)
    assert (t.guaranteed(urgent), t.guaranteed(lazy)) == (True, False)
    assert t.guaranteed(job)


def test_who_is_content_with_a_broken_cell_leaves_another_to_those_served_before_it() -> None:
    t = Tenants(dict.fromkeys(("p0", "p1", "p2", "p3"), "FOUR"))
    t.vc("A", (FOURS, "device", 1), (FOURS, "node", 2))
    t.vc("B")
    job = t.ask("B", 1, **OVERFLOWS)
    (at,) = t.at(job)
    t.step(NodeSilent(at[:2]))
    others = [t.ask("A", 1, **OVERFLOWS) for _ in range(6)]
    t.change("B", NODE)
    assert t.guaranteed(job), "a node that is silent"
    assert [t.guaranteed(other) for other in others] == [True] * 6
