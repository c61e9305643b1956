"""Whom a virtual cluster sends away from its cells: the fewest devices, then the least priority, then FitGpp's score."""

import pytest

from scheduler_service.core.job import JobState
from scheduler_service.core.messages import CancelRequested
from tests.policies.tenants import OPPORTUNISTIC, Tenants

POOL = "four-2x2"


def site(*nodes: str, level: str = "node", **settings: object) -> Tenants:
    tenants = Tenants(dict.fromkeys(nodes, "FOUR"), **settings)
    tenants.vc("A", (POOL, level, 1))
    tenants.vc("B")
    return tenants


def guest(tenants: Tenants, *sizes: int, **wants: object) -> int:
    return tenants.ask("B", *sizes, guarantee=OPPORTUNISTIC, **wants)


def leaving(tenants: Tenants, *jobs: int) -> list[int]:
    return [job for job in jobs if tenants.job(job).state is JobState.STOPPING]


@pytest.mark.parametrize("graces", [(5, 25), (25, 5)])
def test_of_as_many_devices_the_shortest_grace_leaves(graces: tuple[int, int]) -> None:
    tenants = site("one", "two")
    jobs = [guest(tenants, 4, grace=grace) for grace in graces]
    mine = tenants.ask("A", 4)
    assert leaving(tenants, *jobs) == [jobs[graces.index(5)]]
    place = tenants.at(jobs[graces.index(5)])
    tenants.leave(jobs[graces.index(5)])
    assert tenants.at(mine) == place


@pytest.mark.parametrize("priorities", [(0, 1), (1, 0)])
def test_the_least_priority_leaves_whatever_the_score(priorities: tuple[int, int]) -> None:
    tenants = site("one", "two")
    jobs = [guest(tenants, 4, grace=0 if priority else 60, priority=priority) for priority in priorities]
    tenants.ask("A", 4)
    assert leaving(tenants, *jobs) == [jobs[priorities.index(0)]]


@pytest.mark.parametrize("first", [True, False])
def test_who_leaves_anyhow_is_waited_for_rather_than_anybody_sent_away(first: bool) -> None:
    tenants = site("one", "two")
    jobs = [guest(tenants, 4, grace=0), guest(tenants, 4, grace=0)]
    going = jobs[0] if first else jobs[1]
    tenants.step(CancelRequested(going))
    mine = tenants.ask("A", 4)
    assert leaving(tenants, *jobs) == [going]
    place = tenants.at(going)
    tenants.leave(going)
    assert tenants.at(mine) == place


def test_fewer_devices_come_before_a_better_score() -> None:
    tenants = site("one", "two")
    small, large = guest(tenants, 3, grace=60), guest(tenants, 4, grace=0)
    tenants.ask("A", 4)
    assert leaving(tenants, small, large) == [small]


def test_a_gang_counts_whole() -> None:
    tenants = site("one", "two", "three")
    gang, alone = guest(tenants, 4, 4), guest(tenants, 4)
    tenants.ask("A", 4)
    assert leaving(tenants, gang, alone) == [alone]


def test_cells_inside_a_node_are_chosen_between_too() -> None:
    tenants = site("one", "two", level="switch")
    jobs = [guest(tenants, 2, grace=grace) for grace in (40, 30, 5, 20)]
    tenants.ask("A", 2)
    assert leaving(tenants, *jobs) == [jobs[2]]
