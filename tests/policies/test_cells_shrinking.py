"""A virtual cluster that owns fewer cells than it has bound loses those whose jobs matter least, whatever their numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.model import EventKind, JobState, Reason
from tests.policies.tenants import OPPORTUNISTIC, Tenants
from tests.policies.trading import Traders
from tests.thorough import examples

FOURS = "four-2x2"


def four(nodes: int) -> Tenants:
    """`A` owns so many nodes."""
    t = Tenants({f"n{number}": "FOUR" for number in range(1, nodes + 1)})
    t.vc("A", (FOURS, "node", nodes))
    return t


def keeps(t: Tenants, *jobs: int) -> list[bool]:
    return [t.guaranteed(job) for job in jobs]


def test_of_different_priorities_the_lowest_goes_wherever_it_is() -> None:
    t = four(3)
    low, high, middle = (t.ask("A", 4, priority=priority) for priority in (0, 9, 5))
    t.change("A", (FOURS, "node", 2))
    assert keeps(t, low, high, middle) == [False, True, True]
    t.change("A", (FOURS, "node", 1))
    assert keeps(t, low, high, middle) == [False, True, False]
    assert list(t.owned()) == [(FOURS, "node", 2)]


def test_of_one_priority_the_youngest_goes() -> None:
    t = four(2)
    first, second = t.ask("A", 4), t.ask("A", 4)
    t.end(first)
    youngest = t.ask("A", 4)
    assert t.at(youngest) == ["n1[0..3]"]
    t.change("A", (FOURS, "node", 1))
    assert keeps(t, second, youngest) == [True, False]


def test_of_a_cell_with_several_jobs_the_one_that_matters_most_counts() -> None:
    t = four(2)
    small, urgent = t.ask("A", 2, priority=-5), t.ask("A", 2, priority=9)
    other = t.ask("A", 4, priority=5)
    assert [t.at(job) for job in (small, urgent)] == [["n1[0..1]"], ["n1[2..3]"]]
    t.change("A", (FOURS, "node", 1))
    assert keeps(t, small, urgent, other) == [True, True, False]


def test_a_gang_gives_all_its_cells_and_then_nobody_else_need() -> None:
    t = four(3)
    gang, older = t.ask("A", 4, 4, priority=-1), t.ask("A", 4)
    t.change("A", (FOURS, "node", 1))
    assert keeps(t, gang, older) == [False, True]
    t = four(3)
    gang, single = t.ask("A", 4, 4, priority=-1), t.ask("A", 4)
    t.change("A", (FOURS, "node", 2))
    assert keeps(t, gang, single) == [False, True], "one of its cells too many is both"


def test_a_gang_stands_in_each_of_its_cells_as_it_is() -> None:
    t = four(3)
    gang, single = t.ask("A", 4, 4, priority=1), t.ask("A", 4)
    t.change("A", (FOURS, "node", 2))
    assert keeps(t, gang, single) == [True, False]


@pytest.mark.parametrize(("priority", "waits"), [(0, False), (9, True)])
def test_what_is_kept_for_who_waits_goes_before_runs_of_its_priority(priority: int, waits: bool) -> None:
    t = four(2)
    t.vc("B")
    opportunistic_job = t.ask("B", 4, guarantee=OPPORTUNISTIC)
    runs = t.ask("A", 4)
    coming = t.ask("A", 4, priority=priority)
    assert t.job(coming).reason is Reason.WAITING_FOR_VICTIMS
    t.change("A", (FOURS, "node", 1))
    assert t.guaranteed(runs) is not waits
    assert (t.job(coming).reason is Reason.WAITING_FOR_VICTIMS) is waits
    t.leave(opportunistic_job)
    assert (t.job(coming).state is JobState.RUNNING) is waits


def test_each_level_by_itself() -> None:
    t = Tenants(dict.fromkeys(("n1", "n2"), "FOUR"))
    t.vc("A", (FOURS, "node", 1), (FOURS, "device", 2))
    low, high = t.ask("A", 4, priority=-5), t.ask("A", 1, priority=5)
    other = t.ask("A", 1, priority=1)
    assert len(t.owned()) == 3
    t.change("A", (FOURS, "node", 1), (FOURS, "device", 1))
    assert keeps(t, low, high, other) == [True, True, False]


def test_who_gives_cells_in_exchange_keeps_those_that_matter_most() -> None:
    t = Traders(2, match=None)
    t.vc("A", (FOURS, "node", 2))
    t.vc("B")
    low, high = t.ask("A", 4), t.ask("A", 4, priority=5)
    t.take("B", t.offer("A", begin=1, end=3))
    t.until(2)
    assert keeps(t, low, high) == [False, True]


@given(st.lists(st.tuples(st.integers(-2, 2), st.booleans()), min_size=1, max_size=8), st.integers(0, 8))
@settings(max_examples=examples(30), deadline=None)
def test_those_who_keep_their_guarantee_are_the_first_of_all(jobs: list[tuple[int, bool]], left: int) -> None:
    """By priority, then as they were submitted; some have ended and left their cells to others that came later."""
    t = Tenants(dict.fromkeys(("n1", "n2"), "FOUR"))
    t.vc("A", (FOURS, "device", 8))
    running: dict[int, int] = {}
    for priority, replaced in jobs:
        if replaced and running:
            t.end(ends := min(running))
            del running[ends]
        running[t.ask("A", 1, priority=priority)] = priority
    assert keeps(t, *running) == [True] * len(running)
    taken = t.change("A", *([(FOURS, "device", left)] if left else []))
    by_rank = sorted(running, key=lambda job: (-running[job], job))
    assert [job for job in by_rank if t.guaranteed(job)] == by_rank[:left]
    told = [line.job_id for line in taken.log if line.kind is EventKind.OPPORTUNISTIC]
    assert told == by_rank[left:][::-1], "who matters least first"
