"""Guests that are to be together: required is required, also inside something else, and whoever else would have room."""

import pytest

from scheduler_service.core.cells.opportunistic_search import find_idle
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.request import Need, RequestedCells, Together
from scheduler_service.core.cells.shape import Shape
from scheduler_service.core.messages import Accepted, Submitted
from scheduler_service.core.model import JobState, Reason, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, Within
from scheduler_service.core.model.values import Vector, times
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants, request


def racks(count: int, model: str = "FOUR") -> Tenants:
    """Of two nodes each, n0, n1, ..."""
    names = tuple(f"n{i}" for i in range(2 * count))
    return Tenants(dict.fromkeys(names, model), [PoolPlan("p", names, (("rack", 2),))])


def gang(tenants: Tenants, *groups: tuple[int, int], within: tuple[Within, ...], guarantee: Guarantee = OPPORTUNISTIC) -> int:
    """Groups of so many tasks, of so many devices each."""
    rows = tuple(TaskGroup(count, Vector(1000, 1024, size)) for count, size in groups)
    total = times(Vector(1000, 1024, 1), sum(count * size for count, size in groups))
    spec = with_changes(request("G", 1, guarantee=guarantee, within=within), demand=total, gang=rows)
    answer = tenants.reply(Submitted("ann", "", spec))
    assert isinstance(answer, Accepted), answer
    tenants.begin(answer.job_id)
    return answer.job_id


def one_idle_device_each(tenants: Tenants, nodes: int) -> list[int]:
    tenants.vc("A", ("p", "node", nodes))
    tenants.vc("G", ("p", "device", 0))
    return [tenants.ask("A", 3) for _ in range(nodes)]


def test_a_switch_inside_a_rack_is_waited_for() -> None:
    tenants = racks(2)
    held = one_idle_device_each(tenants, 4)
    job = gang(tenants, (2, 1), within=(Within("rack"), Within("switch")))
    assert tenants.waits(job) is Reason.NO_ROOM
    tenants.end(held[1])
    assert tenants.at(job) in (["n1[0]", "n1[1]"], ["n1[2]", "n1[3]"])


@pytest.mark.parametrize(("size", "level"), [(1, "node"), (2, "node"), (2, "rack"), (1, "switch"), (1, "device")])
def test_one_task_is_within_one_node_whatever_its_virtual_cluster_owns(size: int, level: str) -> None:
    """A switch, here: of none of the larger cells it has one whole."""
    tenants = racks(1)
    tenants.vc("A", ("p", "switch", 1))
    job = tenants.ask("A", size, within=level)
    assert (tenants.job(job).state, tenants.guaranteed(job)) == (JobState.RUNNING, True)


def test_so_is_a_groups_node_and_what_was_tried_before_is_given_up() -> None:
    """In the last rack the first group finds its node and the second does not."""
    tenants = racks(2)
    held = one_idle_device_each(tenants, 4)
    job = gang(tenants, (2, 1), (3, 1), within=(Within("rack"), Within("node", True, 0), Within("node", True, 1)))
    tenants.end(held[3], held[1])
    assert tenants.waits(job) is Reason.NO_ROOM
    tenants.end(held[0])
    assert [place[:2] for place in tenants.at(job)] in (["n0"] * 2 + ["n1"] * 3, ["n1"] * 2 + ["n0"] * 3)


def test_where_the_outer_one_is_merely_preferred_the_inner_one_still_holds() -> None:
    tenants = racks(2)
    held = one_idle_device_each(tenants, 4)
    job = gang(tenants, (2, 1), (1, 4), within=(Within("rack", False), Within("node", True, 0)))
    assert tenants.waits(job) is Reason.NO_ROOM
    tenants.end(held[2])
    assert tenants.waits(job) is Reason.NO_ROOM
    tenants.end(held[0])
    places = [place[:2] for place in tenants.at(job)]
    assert places[0] == places[1] != places[2]


def test_where_the_inner_one_is_merely_preferred_the_outer_one_is_enough() -> None:
    tenants = racks(2)
    one_idle_device_each(tenants, 4)
    job = gang(tenants, (2, 1), within=(Within("rack"), Within("node", False, 0)))
    assert sorted(place[:2] for place in tenants.at(job)) == ["n2", "n3"]


def test_an_inner_level_above_the_outer_one_lets_nothing_out_of_that() -> None:
    tenants = racks(2)
    held = one_idle_device_each(tenants, 4)
    job = gang(tenants, (2, 1), within=(Within("node"), Within("rack", True, 0)))
    assert tenants.waits(job) is Reason.NO_ROOM
    tenants.end(held[2])
    assert [place[:2] for place in tenants.at(job)] == ["n2", "n2"]


def test_who_overflows_is_placed_by_the_same_rule_and_then_promoted() -> None:
    tenants = racks(1)
    tenants.vc("A", ("p", "node", 1))
    tenants.vc("G", ("p", "node", 1))
    full, others = tenants.ask("G", 4), [tenants.ask("A", 1) for _ in range(4)]
    job = gang(tenants, (2, 1), within=(Within("node"), Within("switch", True, 0)), guarantee=OVERFLOW)
    tenants.end(others[0], others[2])
    assert tenants.job(job).state is JobState.QUEUED
    tenants.end(others[1])
    assert (tenants.at(job), tenants.guaranteed(job)) == (["n1[0]", "n1[1]"], False)
    tenants.end(full, others[3])
    assert tenants.guaranteed(job)


def test_a_gang_of_very_many_tasks_is_no_deeper_than_a_small_one() -> None:
    """Nor is what is tried in vain: in the last hall there is room for all, but not in one row."""
    shape = Shape(("device", "node", "row", "hall"), (1, 16, 128, 2), 1)
    pool = Pool(shape, "p")
    for slot in range(512):
        pool.set_node(slot, (1 << 16) - 1)
    for slot in (383, 511):
        pool.set_opportunistic(slot, 1)
    tasks = tuple(Need(rank, 1) for rank in range(2048))
    whole = RequestedCells((Together(3, True, (Together(2, True, tasks),)),), tasks)
    found = find_idle(pool, whole)
    assert found is not None
    assert sorted(found) == list(range(2048))
    assert {slot // 128 for slot, _ in found.values()} == {1}
    assert find_idle(pool, RequestedCells((Together(2, True, (*tasks, Need(2048, 1))),), tasks)) is None
    assert pool.held_leaves(255)[1] == 0


@pytest.mark.parametrize("guarantee", [OPPORTUNISTIC, OVERFLOW])
def test_one_task_that_is_larger_than_the_cell_that_it_is_to_be_within_is_refused(guarantee: Guarantee) -> None:
    tenants = racks(1)
    tenants.vc("A", ("p", "node", 2))
    refused = tenants.refused("A", 3, within="switch", guarantee=guarantee)
    assert refused.reason == "NO_POOL_FITS"
    preferred = tenants.ask("A", 3, within=Within("switch", required=False), guarantee=guarantee)
    assert tenants.job(preferred).state is JobState.RUNNING
