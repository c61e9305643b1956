"""The examples of the paper (docs/matching.md says where it slips)."""

from collections.abc import Sequence

from scheduler_service.policies.allox.matching.solve import solve
from tests.policies.matching.problems import assert_right, exhaustive, problem
from tests.policies.matching.published import (
    FIGURE_4,
    FIGURE_5,
    FIGURE_6,
    TABLE_1,
    Times,
    equal_share,
    jsq_as_printed,
    jsq_plus,
    sjf_plus,
)


def least(times: Times, slots: Sequence[int]) -> int:
    given = problem(times, [[0] * count for count in slots])
    matching = solve(given)
    assert_right(given, matching)
    return matching.cost


def test_table_1_can_be_done_in_75() -> None:
    """The paper prints 76, in a makespan of 18."""
    assert exhaustive(problem(TABLE_1, [[0, 0], [0, 0]])) == 75
    assert least(TABLE_1, (2, 2)) == 75
    assert equal_share(TABLE_1, users=2) == (181, 75)


def test_figure_4_joins_the_shortest_queue() -> None:
    """The paper prints the average of 100 for JSQ+, which its definition does not give."""
    assert least(FIGURE_4, (2, 2)) == 4 * 45
    assert jsq_plus(FIGURE_4, (2, 2)) == 4 * 60
    assert jsq_as_printed(FIGURE_4, (2, 2)) == 4 * 100


def test_figure_5_serves_the_shortest_job_first() -> None:
    assert least(FIGURE_5, (2, 2)) == 4 * 20
    assert sjf_plus(FIGURE_5, (2, 2)) == 4 * 50


def test_figure_6_places_three_jobs() -> None:
    """Job 1 or job 2 is on the CPU; the other one is on the GPU before job 3. Both cost 17."""
    matching = solve(problem(FIGURE_6, [[0], [0]]))
    assert matching.cost == 17
    assert sorted(matching.kind.tolist()) == [0, 0, 1]
    assert (matching.kind[2], matching.position[2], matching.first[2]) == (0, 1, False)


def test_figure_8_waits_for_a_slot() -> None:
    """The slot is free at 10; the job arrived at 4 and takes 5."""
    assert solve(problem([[5]], [[10]], [4])).cost == 11


def test_a_job_waits_for_a_fast_slot_rather_than_take_an_idle_one() -> None:
    matching = solve(problem([[10, 100]], [[50], [0]]))
    assert (matching.cost, matching.kind[0], matching.start[0]) == (60, 0, 50)
