"""Whom a virtual cluster sends away from its cells: the fewest devices, then the least priority, then FitGpp's score."""

import pytest

from scheduler_service.core.messages import CancelRequested, Step, Stopped, Submitted, SuspendRequested
from scheduler_service.core.model import JobState, Reason
from scheduler_service.core.model.values import SECOND
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants, request

POOL = "four-2x2"


def site(*nodes: str, level: str = "node", cells: int = 1, **settings: object) -> Tenants:
    tenants = Tenants(dict.fromkeys(nodes, "FOUR"), **settings)
    tenants.vc("A", (POOL, level, cells))
    tenants.vc("B")
    return tenants


def opportunistic_job(tenants: Tenants, *sizes: int, **wants: object) -> int:
    return tenants.ask("B", *sizes, guarantee=OPPORTUNISTIC, **wants)


def stops(taken: Step) -> list[Stopped]:
    return [order.desired for order in taken.orders if isinstance(order.desired, Stopped)]


def leaving(tenants: Tenants, *jobs: int) -> list[int]:
    return [job for job in jobs if tenants.job(job).state is JobState.STOPPING]


@pytest.mark.parametrize("graces", [(5, 25), (25, 5)])
def test_of_as_many_devices_the_shortest_grace_leaves(graces: tuple[int, int]) -> None:
    tenants = site("one", "two")
    jobs = [opportunistic_job(tenants, 4, grace=grace) for grace in graces]
    mine = tenants.ask("A", 4)
    assert leaving(tenants, *jobs) == [jobs[graces.index(5)]]
    place = tenants.at(jobs[graces.index(5)])
    tenants.leave(jobs[graces.index(5)])
    assert tenants.at(mine) == place


@pytest.mark.parametrize("priorities", [(0, 1), (1, 0)])
def test_the_least_priority_leaves_whatever_the_score(priorities: tuple[int, int]) -> None:
    tenants = site("one", "two")
    jobs = [opportunistic_job(tenants, 4, grace=0 if priority else 60, priority=priority) for priority in priorities]
    tenants.ask("A", 4)
    assert leaving(tenants, *jobs) == [jobs[priorities.index(0)]]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("priority", [-5, 0, 5])
def test_who_leaves_anyhow_is_waited_for_rather_than_anybody_sent_away(first: bool, priority: int) -> None:
    tenants = site("one", "two")
    jobs = [
        opportunistic_job(tenants, 4, grace=0, priority=priority),
        opportunistic_job(tenants, 4, grace=0, priority=priority),
    ]
    going = jobs[0] if first else jobs[1]
    tenants.step(CancelRequested(going))
    mine = tenants.ask("A", 4)
    assert leaving(tenants, *jobs) == [going]
    place = tenants.at(going)
    tenants.leave(going)
    assert tenants.at(mine) == place


def slow_leaver(tenants: Tenants) -> tuple[int, int]:
    """An opportunistic job that was suspended and may save for a day; and the owner's job, which wants the only node."""
    slow = opportunistic_job(tenants, 4, grace=24 * 3600)
    tenants.step(SuspendRequested(slow))
    tenants.step(after=10)
    return slow, tenants.ask("A", 4)


def test_who_leaves_anyhow_has_the_sites_grace_period_from_then_on() -> None:
    tenants = site("one", reclaim_grace_us=30 * SECOND)
    slow, mine = slow_leaver(tenants)
    (run,) = tenants.state.runs_of(slow)
    assert run.stop_us is not None
    assert run.stop_us + run.stop_grace_us == tenants.now + 30 * SECOND
    assert tenants.job(slow).reason is Reason.SUSPENDED
    tenants.leave(slow)
    assert tenants.job(slow).state is JobState.SUSPENDED, "why it left stays"
    assert tenants.at(mine) == ["one[0..3]"]


def test_the_node_is_told_of_the_shorter_grace_period() -> None:
    tenants = site("one", reclaim_grace_us=30 * SECOND)
    slow = opportunistic_job(tenants, 4, grace=24 * 3600)
    assert [stopped.grace_us for stopped in stops(tenants.step(SuspendRequested(slow)))] == [24 * 3600 * SECOND]
    tenants.step(after=10)
    taken = tenants.step(Submitted("ann", "", request("A", 4)))
    assert [stopped.grace_us for stopped in stops(taken)] == [40 * SECOND], "it counts from the first"
    assert stops(tenants.step(Submitted("ann", "", request("A", 4)))) == []


def test_who_leaves_soon_enough_is_not_told_again() -> None:
    tenants = site("one", reclaim_grace_us=30 * SECOND)
    quick = opportunistic_job(tenants, 4, grace=20)
    tenants.step(SuspendRequested(quick))
    assert stops(tenants.step(Submitted("ann", "", request("A", 4)))) == []


def test_fewer_devices_come_before_a_better_score() -> None:
    tenants = site("one", "two")
    small, large = opportunistic_job(tenants, 3, grace=60), opportunistic_job(tenants, 4, grace=0)
    tenants.ask("A", 4)
    assert leaving(tenants, small, large) == [small]


def test_a_gang_counts_whole() -> None:
    tenants = site("one", "two", "three")
    gang, alone = opportunistic_job(tenants, 4, 4), opportunistic_job(tenants, 4)
    tenants.ask("A", 4)
    assert leaving(tenants, gang, alone) == [alone]


def test_cells_inside_a_node_are_chosen_between_too() -> None:
    tenants = site("one", "two", level="switch")
    jobs = [opportunistic_job(tenants, 2, grace=grace) for grace in (40, 30, 5, 20)]
    tenants.ask("A", 2)
    assert leaving(tenants, *jobs) == [jobs[2]]


def test_a_grace_period_counts_as_far_as_it_is_granted() -> None:
    tenants = site("one", "two", "three", reclaim_grace_us=30 * SECOND)
    gang, alone = opportunistic_job(tenants, 4, 4, grace=40), opportunistic_job(tenants, 4, grace=4000)
    tenants.ask("A", 4)
    assert leaving(tenants, gang, alone) == [alone]


def test_a_larger_free_cell_is_in_the_choice() -> None:
    """The smallest that is free is beside A's own; what is in it has more priority than what is on the other node."""
    tenants = site("one", "two", level="switch", cells=2)
    tenants.ask("A", 2)
    beside = opportunistic_job(tenants, 2, priority=1)
    others = [opportunistic_job(tenants, 2), opportunistic_job(tenants, 2)]
    tenants.ask("A", 2)
    assert leaving(tenants, beside) == []
    assert len(leaving(tenants, *others)) == 1


def test_whom_one_cell_costs_another_costs_no_more() -> None:
    tenants = site("one", "two", "three", cells=2)
    alone, gang = opportunistic_job(tenants, 4, grace=20), opportunistic_job(tenants, 4, 4, grace=0)
    tenants.ask("A", 4, 4)
    assert leaving(tenants, alone, gang) == [gang]


def test_who_overflows_is_not_told_that_it_will_never_start() -> None:
    tenants = site("one")
    job = tenants.ask("B", 4, guarantee=OVERFLOW)
    owner = tenants.ask("A", 4)
    tenants.leave(job)
    assert tenants.waits(job) is Reason.RECLAIMED
    assert tenants.waits(tenants.ask("B", 4, guarantee=OVERFLOW)) is Reason.NO_ROOM
    tenants.end(owner)
    assert tenants.job(job).state is JobState.RUNNING


# ---- inside its own cells --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("priorities", [(3, 1), (1, 3)])
def test_inside_a_cell_the_least_priority_leaves(priorities: tuple[int, int]) -> None:
    tenants = site("one")
    jobs = [opportunistic_job(tenants, 2, priority=priority) for priority in priorities]
    tenants.ask("A", 2)
    assert leaving(tenants, *jobs) == [jobs[priorities.index(1)]]


def test_inside_a_cell_fewer_devices_come_before_whose_they_are() -> None:
    tenants = site("one")
    small = opportunistic_job(tenants, 1)
    mine = tenants.ask("A", 2)
    assert tenants.guaranteed(mine)
    assert leaving(tenants, small) == []


@pytest.mark.parametrize("stays", range(4))
def test_of_many_inside_a_cell_the_one_that_is_worth_most_stays(stays: int) -> None:
    tenants = site("one")
    jobs = [opportunistic_job(tenants, 1, grace=20 if number == stays else 5) for number in range(4)]
    tenants.ask("A", 3)
    assert leaving(tenants, *jobs) == [job for job in jobs if job != jobs[stays]]


@pytest.mark.parametrize("going", range(4))
def test_inside_a_cell_who_leaves_anyhow_is_waited_for(going: int) -> None:
    tenants = site("one")
    jobs = [opportunistic_job(tenants, 1, priority=number) for number in range(4)]
    tenants.step(CancelRequested(jobs[going]))
    tenants.ask("A", 1)
    assert leaving(tenants, *jobs) == [jobs[going]]


def two_bound_cells(tenants: Tenants, ended: int) -> None:
    """Each with two devices in use by A, and the other two by nobody: on the first node the `ended` pair is free."""
    first = [tenants.ask("A", 2), tenants.ask("A", 2)]
    tenants.ask("A", 2)
    tenants.end(first[ended])


@pytest.mark.parametrize("ended", [0, 1])
def test_of_cells_that_are_as_tight_the_one_is_taken_in_which_nobody_is(ended: int) -> None:
    tenants = site("one", "two", cells=2)
    two_bound_cells(tenants, ended)
    visitor = opportunistic_job(tenants, 2)
    assert tenants.at(visitor)[0].startswith("one")
    mine = tenants.ask("A", 2)
    assert tenants.job(mine).state is JobState.RUNNING
    assert leaving(tenants, visitor) == []


@pytest.mark.parametrize("graces", [(20, 5), (5, 20)])
def test_of_cells_that_are_as_tight_the_one_is_taken_whose_opportunistic_jobs_are_worth_least(graces: tuple[int, int]) -> None:
    tenants = site("one", "two", cells=2)
    two_bound_cells(tenants, 0)
    visitors = [opportunistic_job(tenants, 2, grace=grace) for grace in graces]
    tenants.ask("A", 2)
    assert leaving(tenants, *visitors) == [visitors[graces.index(5)]]


def test_a_gang_in_cells_that_are_as_tight_has_as_few_leave() -> None:
    tenants = site("one", "two", "three", cells=3)
    two_bound_cells(tenants, 0)
    tenants.ask("A", 3)
    visitor = opportunistic_job(tenants, 2)
    mine = tenants.ask("A", 1, 1)
    assert tenants.job(mine).state is JobState.RUNNING
    assert leaving(tenants, visitor) == []
