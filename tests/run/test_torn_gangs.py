"""Which gangs are put back into their queue because their tasks do not execute together."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.model.values import SECOND
from scheduler_service.run.partially_parked_gangs import TORN_US, TornGangs

GANG, OTHER = (7, 1), (8, 1)


def test_a_task_that_does_not_execute_while_another_one_does_is_found() -> None:
    torn = TornGangs()
    assert torn.find_late_task(GANG, {0: 40 * SECOND, 1: 30 * SECOND}) is None
    assert torn.find_late_task(GANG, {0: 40 * SECOND + TORN_US - 1, 1: 30 * SECOND}) is None
    assert torn.find_late_task(GANG, {0: 40 * SECOND + TORN_US, 1: 30 * SECOND}) == 1


def test_others_are_looked_at_from_the_beginning_once_one_was_found() -> None:
    torn = TornGangs()
    for gang in (GANG, OTHER):
        assert torn.find_late_task(gang, {0: 0, 1: 0}) is None
    assert torn.find_late_task(GANG, {0: TORN_US, 1: 0}) == 1
    assert torn.find_late_task(OTHER, {0: 0, 1: TORN_US}) is None, "it may have waited for the devices of the one that leaves"
    assert torn.find_late_task(OTHER, {0: 0, 1: 2 * TORN_US}) == 0


def test_a_gang_that_waits_for_its_turn_is_none() -> None:
    torn = TornGangs()
    for _ in range(10):
        assert torn.find_late_task(GANG, {0: 5 * SECOND, 1: 5 * SECOND}) is None


def test_a_task_that_counts_from_the_beginning_is_compared_from_then_on() -> None:
    torn = TornGangs()
    assert torn.find_late_task(GANG, {0: 500 * SECOND, 1: 500 * SECOND}) is None
    assert torn.find_late_task(GANG, {0: 600 * SECOND, 1: 0}) is None, "its agent has started it again"
    assert torn.find_late_task(GANG, {0: 700 * SECOND, 1: 90 * SECOND}) is None


def test_launches_that_are_over_are_forgotten() -> None:
    torn = TornGangs()
    torn.find_late_task(GANG, {0: 0, 1: 0})
    torn.find_late_task(OTHER, {0: 0, 1: 0})
    torn.keep(lambda launch: launch == OTHER)
    assert (torn.knows(GANG), torn.knows(OTHER)) == (False, True)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 60)), max_size=200))
def test_tasks_that_change_turns_together_are_never_found(reports: list[tuple[int, int]]) -> None:
    """Each report is that of one node, so that the other's is up to a minute old."""
    torn, now, seen = TornGangs(), 0, {0: 0, 1: 0}
    stale = [0, 0]
    for node, seconds in reports:
        if stale[1 - node] + seconds > 60:
            node = 1 - node  # a node that says nothing for longer has no link
        now += seconds
        stale = [0 if each == node else stale[each] + seconds for each in (0, 1)]
        seen[node] = now * SECOND
        assert torn.find_late_task(GANG, dict(seen)) is None
