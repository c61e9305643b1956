"""Gangs in the simulated world: they come together in two phases, work as one, and leave as one."""

from collections.abc import Iterator
from random import Random

import pytest

from scheduler_service.core.model import StopReason
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import SECOND
from scheduler_service.sim.node_delays import Delay, Delays
from tests.sim.building import MINUTE, begins, intervals_us, job, lived, minutes, node, site, stops


def one_after_the_other(*delays: int) -> Delay:
    """Seconds; after the last one no time."""
    left: Iterator[int] = iter(delays)
    return lambda _: next(left, 0) * SECOND


def test_a_gang_works_once_its_last_task_is_there() -> None:
    delays = Delays(start=one_after_the_other(2, 7, 4))
    (gang,) = lived(site("fifo", node(2), node(2), delays=delays), [job(1, 10, tasks=3)])
    (launch,) = gang.launches
    assert (launch.nodes, launch.placed_us, launch.began_us) == ((1, 1, 2), 0, 7 * SECOND)
    assert gang.end_us == 7 * SECOND + 10 * MINUTE


def test_a_gang_that_comes_together_does_not_wait_for_the_minute_of_decisions() -> None:
    """The next minute would be too late for it, with the site's minute in which all tasks must have started."""
    jobs = [job(1, 10, at=0.2, tasks=3), job(2, 1, at=0.3)]
    gang, other = lived(site("fifo", node(2), node(2), decide_every_us=MINUTE), jobs)
    assert minutes(*begins(gang), gang.end_us) == [1, 11]
    assert minutes(*begins(other)) == [11]
    slow = Delays(start=one_after_the_other(5, 30))
    (gang,) = lived(site("fifo", node(2), decide_every_us=MINUTE, delays=slow), [job(1, 10, tasks=2)])
    assert begins(gang) == [30 * SECOND]


def test_other_reports_do_wait_for_the_minute_of_decisions() -> None:
    """A short job is over at 0:30, just as the gang comes together; the next one begins at the minute all the same."""
    slow = Delays(start=one_after_the_other(0, 30, 30))
    jobs = [job(1, 0.5), job(1, 10, tasks=2), job(1, 1)]
    short, gang, last = lived(site("fifo", node(3), decide_every_us=MINUTE, delays=slow), jobs)
    assert minutes(short.end_us, *begins(gang), *begins(last)) == [0.5, 0.5, 1]


def test_a_preempted_gang_stops_as_one_and_goes_on_where_it_was() -> None:
    leaves = Delays(checkpoint=one_after_the_other(20, 40))
    jobs = [job(1, 10, tasks=2), job(1, 2, at=4, trial=True)]
    gang, trial = lived(site("fitgpp", node(1), node(1), delays=leaves), jobs)
    first, second = gang.launches
    assert (first.signalled_us, first.why, first.ended_us) == (4 * MINUTE, StopReason.PREEMPTED, 4 * MINUTE + 40 * SECOND)
    assert first.worked_us() == 4 * MINUTE
    assert begins(trial) in ([4 * MINUTE + 20 * SECOND], [4 * MINUTE + 40 * SECOND])  # FitGpp chose a node
    assert second.began_us == trial.end_us
    assert second.worked_us() == 6 * MINUTE
    assert gang.lost_us == 0


def test_a_gang_that_is_told_to_leave_before_it_came_together_has_done_nothing() -> None:
    slow = Delays(start=one_after_the_other(0, 30))
    jobs = [job(1, 10, tasks=2), job(1, 2, at=0.25, trial=True)]
    gang, trial = lived(site("fitgpp", node(1), node(1), delays=slow), jobs)
    first, second = gang.launches
    assert minutes(first.signalled_us, first.ended_us) == [0.25, 0.25]
    assert (first.began_us, first.worked_us()) == (None, 0)
    assert minutes(*begins(trial), second.began_us, gang.end_us) == [0.25, 2.25, 12.25]


def test_a_gang_that_does_not_come_together_in_time_is_started_again() -> None:
    slow = Delays(start=one_after_the_other(1, 90))
    (gang,) = lived(site("fifo", node(1), node(1), node(1), delays=slow), [job(1, 10, tasks=2)])
    first, second = gang.launches
    assert (first.why, first.began_us, first.signalled_us) == (StopReason.GANG, None, 60 * SECOND)
    assert (first.nodes, second.nodes) == ((1, 2), (1, 3))  # the slow one is avoided
    assert minutes(second.began_us, gang.end_us) == [1, 11]
    assert list(intervals_us(gang)) == []  # nobody preempted it


def test_a_gang_of_one_is_a_gang() -> None:
    (gang,) = lived(site("fifo", node(2), delays=Delays(start=one_after_the_other(3))), [job(2, 1, tasks=1)])
    assert (begins(gang), gang.end_us) == ([3 * SECOND], 3 * SECOND + MINUTE)


@pytest.mark.parametrize("decide_every_us", [0, MINUTE])
def test_gangs_and_other_jobs_do_all_their_work(decide_every_us: int) -> None:
    rng = Random(11)
    jobs = [
        job(
            rng.randint(1, 3),
            rng.uniform(1, 20),
            at=rng.uniform(0, 100),
            trial=rng.random() < 0.3,
            grace=rng.uniform(0.1, 3),
            tasks=rng.choice([0, 0, 1, 2, 3]),
        )
        for _ in range(120)
    ]
    delays = Delays(start=lambda r: r.randrange(40 * SECOND), checkpoint=lambda r: r.randrange(6 * SECOND))
    settings = Settings(gang_start_us=5 * MINUTE)
    nodes = node(4), node(4), node(3)
    lives = lived(site("fitgpp", *nodes, decide_every_us=decide_every_us, delays=delays, settings=settings), jobs)
    assert any(stops(life) and len(life.job.spec.gang) and begins(life)[1:] for life in lives)
    assert all(len(set(stops(life))) <= 1 for life in lives)  # P is 1
