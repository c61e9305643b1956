"""Nodes that die under simulated jobs, when the scheduler learns of it, and what work that costs."""

from itertools import islice
from random import Random
from statistics import fmean

import pytest

from scheduler_service.core.model import Dependency, DependencyKind, JobState, Reason, StopReason
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import SECOND
from scheduler_service.sim.failures import BadSchedule, Exponential, Failure, Outages, read_schedule
from scheduler_service.sim.node_delays import Delays
from scheduler_service.sim.world import World
from tests.sim.building import MINUTE, Listed, begins, intervals_us, job, lived, minutes, node, site, stops


def dies(at: float, back: float | None, of: int = 1) -> Failure:
    """Times are in minutes."""
    return Failure(of, round(at * MINUTE), None if back is None else round(back * MINUTE))


def outages(*failures: Failure, fence: float | None = None) -> Outages:
    return Outages(failures, fence_after_us=None if fence is None else round(fence * MINUTE))


# ---- what is lost --------------------------------------------------------------------------------------------------------


def test_a_job_begins_again_when_its_node_is_back() -> None:
    (life,) = lived(site("fifo", node(1), outages=outages(dies(4, 7))), [job(1, 10)])
    first, second = life.launches
    assert minutes(first.lost_us, first.ended_us, second.began_us, life.end_us) == [4, 4, 7, 17]
    assert (first.signalled_us, life.lost_us) == (None, 4 * MINUTE)
    assert list(intervals_us(life)) == []  # nobody preempted it


def test_only_what_was_done_since_the_last_checkpoint_is_lost() -> None:
    """Each run makes its first one after as much work as any other."""
    every = Delays(resume=lambda _: MINUTE, checkpoint_every_us=3 * MINUTE)
    (life,) = lived(site("fifo", node(1), delays=every, outages=outages(dies(4, 5), dies(10, 11))), [job(1, 10)])
    assert minutes(*begins(life)) == [0, 5, 11]
    assert [launch.worked_us() for launch in life.launches] == [4 * MINUTE, 4 * MINUTE, 4 * MINUTE]
    assert (life.lost_us, life.end_us) == (2 * MINUTE, 16 * MINUTE)


def test_what_was_saved_at_a_preemption_is_not_lost_later() -> None:
    jobs = [job(1, 10), job(1, 1, at=4, trial=True)]
    long, _ = lived(site("fitgpp", node(1), outages=outages(dies(8, 9))), jobs)
    assert minutes(*begins(long)) == [0, 6, 9]
    assert (long.lost_us, long.end_us) == (2 * MINUTE, 15 * MINUTE)


def test_a_checkpoint_is_not_made_by_a_node_that_dies_in_the_grace_period() -> None:
    jobs = [job(1, 10, grace=2), job(1, 1, at=4, trial=True)]
    long, trial = lived(site("fitgpp", node(1), outages=outages(dies(5, 7))), jobs)
    first, _ = long.launches
    assert minutes(first.signalled_us, first.lost_us, first.ended_us) == [4, 5, 5]
    assert long.lost_us == 4 * MINUTE
    assert minutes(*begins(trial), *begins(long)) == [7, 0, 8]


@pytest.mark.parametrize("delays", [Delays(), Delays(checkpoint=lambda _: 2 * MINUTE)])
def test_a_run_that_has_no_time_to_save_its_work_loses_it(delays: Delays) -> None:
    """Either its grace period is 0, by which a user permits just that, or it is shorter than what saving takes."""
    grace = 0 if delays.checkpoint is None else 1
    jobs = [job(1, 10, grace=grace), job(1, 1, at=4, trial=True)]
    long, trial = lived(site("fitgpp", node(1), delays=delays), jobs)
    assert minutes(*begins(trial)) == [4 + grace]
    assert (long.lost_us, long.launches[0].ended_us) == (4 * MINUTE, (4 + grace) * MINUTE)


def test_a_job_that_is_killed_keeps_its_last_checkpoint() -> None:
    jobs = [job(1, 10, grace=0), job(1, 1, at=4, trial=True)]
    long, _ = lived(site("fitgpp", node(1), delays=Delays(checkpoint_every_us=3 * MINUTE)), jobs)
    assert (long.lost_us, long.end_us) == (MINUTE, 12 * MINUTE)


def test_a_gang_that_lost_a_task_hangs_until_that_is_known() -> None:
    """The other task holds its device, does nothing, and is killed when its grace period is over, since it answers nobody."""
    quick = Delays(checkpoint=lambda _: SECOND)
    gang, behind = lived(
        site("fifo", node(1), node(1), delays=quick, outages=outages(dies(4, 7, of=2))),
        [job(1, 10, tasks=2, grace=0.5), job(1, 1, at=1)],
    )
    first, second = gang.launches
    assert (first.nodes, first.why) == ((1, 2), StopReason.GANG)
    assert minutes(first.lost_us, first.signalled_us, first.ended_us) == [4, 7, 7.5]
    assert (first.worked_us(), gang.lost_us) == (4 * MINUTE, 4 * MINUTE)
    assert minutes(*begins(behind)) == [7]  # on the node that is back
    assert minutes(second.began_us, gang.end_us) == [8, 18]


def test_a_gang_that_loses_a_task_before_it_began_starts_elsewhere() -> None:
    slow = Delays(start=lambda _: MINUTE // 2)
    away = outages(dies(0.1, None, of=2), fence=2)
    (gang,) = lived(site("fifo", node(1), node(1), node(1), delays=slow, outages=away), [job(1, 10, tasks=2)])
    first, second = gang.launches
    assert (first.began_us, first.why, first.ended_us) == (None, StopReason.GANG, MINUTE)  # in which it was to start
    assert minutes(second.placed_us) == [2.1]  # until then the other task may be there
    assert second.nodes == (1, 3)
    assert (second.began_us, gang.lost_us) == (2.6 * MINUTE, 0)


# ---- who knows of it, and when -------------------------------------------------------------------------------------------


def test_until_the_scheduler_knows_of_it_jobs_are_sent_to_a_dead_node() -> None:
    """Ten seconds after its death it is silent; nobody can say what became of its runs until it is back, or declared dead."""
    jobs = [job(1, 1, at=1), job(1, 1, at=1.1), job(1, 1, at=1.2)]
    lost, elsewhere, last = lived(site("fifo", node(2), node(2), outages=outages(dies(1.05, 5))), jobs)
    assert [launch.nodes for launch in lost.launches] == [(1,), (1,)]
    assert minutes(*begins(lost), lost.end_us) == [1, 5, 6]
    placed_on_dead, again = elsewhere.launches
    assert placed_on_dead.placed_us == placed_on_dead.lost_us == placed_on_dead.ended_us == elsewhere.submit_us
    assert (placed_on_dead.nodes, placed_on_dead.began_us) == ((1,), None)
    assert minutes(again.began_us) == [5]
    assert [launch.nodes for launch in last.launches] == [(2,)]  # by now the node is known to be silent
    world = World(site("fifo", node(1), outages=outages(dies(1, 5))), Listed([job(1, 3)]))
    world.advance(0)
    world.advance(MINUTE + 9 * SECOND)
    assert world.state.jobs.rows[1].state is JobState.RUNNING
    world.advance(MINUTE + 10 * SECOND)
    assert (world.state.jobs.rows[1].state, world.state.jobs.rows[1].reason) == (JobState.UNREACHABLE, Reason.NODE_SILENT)


def test_a_node_that_is_back_before_it_was_missed_has_lost_its_runs_all_the_same() -> None:
    (life,) = lived(site("fifo", node(1), outages=outages(dies(4, 4.1))), [job(1, 10)])
    assert minutes(*begins(life), life.end_us) == [0, 4.1, 14.1]


def test_jobs_of_a_node_that_stays_away_wait_for_it() -> None:
    world = World(site("fifo", node(1), node(1), outages=outages(dies(4, None))), Listed([job(1, 10), job(1, 5)]))
    world.run()
    (life,) = world.unfinished_lives()
    assert (life.id, life.done_us, life.lost_us) == (1, 0, 4 * MINUTE)
    assert world.state.jobs.rows[1].state is JobState.UNREACHABLE
    assert world.lives[2].end_us == 5 * MINUTE


def test_jobs_of_a_node_that_is_declared_dead_run_elsewhere() -> None:
    life, other = lived(site("fifo", node(1), node(1), outages=outages(dies(4, None), fence=2)), [job(1, 10), job(1, 5)])
    assert minutes(*begins(life), life.end_us, other.end_us) == [0, 6, 16, 5]
    assert life.launches[1].nodes == (2,)


def test_a_node_that_was_declared_dead_is_used_again_when_it_is_back() -> None:
    """And its next boot's reports are counted from the beginning."""
    jobs = [job(1, 10), job(1, 1, at=6), job(1, 1, at=8)]
    lives = lived(site("fifo", node(1), outages=outages(dies(4, 5), dies(6, 30), dies(41.5, 45), fence=1)), jobs)
    assert minutes(*begins(lives[0])) == [0, 5, 30]
    assert minutes(*begins(lives[1]), *begins(lives[2])) == [40, 41, 45]


def test_what_was_over_before_the_node_died_is_over() -> None:
    """In the same minute, at the end of which the scheduler decides."""
    jobs = [job(1, 1.3), job(1, 10)]
    short, long = lived(site("fifo", node(2), decide_every_us=MINUTE, outages=outages(dies(1.5, 1.7))), jobs)
    assert minutes(short.end_us) == [1.3]
    assert minutes(long.launches[0].lost_us, *begins(long)) == [1.5, 0, 2]


def test_a_trial_does_not_wait_for_victims_on_a_dead_node() -> None:
    """Its earmark is dropped when the node is silent, and it has somebody else preempted."""
    jobs = [job(1, 20, grace=2), job(1, 20, grace=3), job(1, 1, at=4, trial=True)]
    first, second, trial = lived(site("fitgpp", node(1), node(1), outages=outages(dies(4.5, 30))), jobs)
    assert stops(first) == [4 * MINUTE]
    assert stops(second) == [4.5 * MINUTE + 10 * SECOND]
    assert begins(trial) == [7.5 * MINUTE + 10 * SECOND]


def test_a_job_whose_time_is_up_is_over_with_what_it_has_done() -> None:
    """And one that waits for its success is over with nothing."""
    after = job(1, 1)
    after = after._replace(spec=with_changes(after.spec, dependencies=(Dependency(1, DependencyKind.AFTER_OK),)))
    told: list[int] = []
    world = World(site("fifo", node(1)), Listed([job(1, 10, limit=4), job(1, 1), after]), lambda life: told.append(life.id))
    world.advance(0)
    cut, other, never = world.lives.values()
    world.run()
    assert (cut.end_us, cut.done_us, cut.launches[0].why) == (5 * MINUTE, 4 * MINUTE, StopReason.TIME_LIMIT)
    assert (cut.wait_us(), other.end_us) == (MINUTE, 6 * MINUTE)
    assert (never.end_us, never.launches, never.done_us) == (5 * MINUTE, [], 0)
    assert told == [1, 3, 2]


@pytest.mark.parametrize("decide_every_us", [0, MINUTE])
@pytest.mark.parametrize("policy", ["fifo", "fitgpp"])
def test_whatever_dies_all_jobs_do_all_their_work(policy: str, decide_every_us: int) -> None:
    rng = Random(3)
    jobs = [
        job(
            rng.randint(1, 3),
            rng.uniform(1, 20),
            at=rng.uniform(0, 100),
            trial=rng.random() < 0.3,
            grace=rng.choice([0, 0.2, 3]),
            tasks=rng.choice([0, 0, 0, 1, 2, 3]),
        )
        for _ in range(80)
    ]
    delays = Delays(
        start=lambda r: r.randrange(40 * SECOND),
        resume=lambda r: r.randrange(40 * SECOND),
        checkpoint=lambda r: r.randrange(40 * SECOND),
        checkpoint_every_us=4 * MINUTE,
    )
    mine = outages()._replace(
        failures=Exponential(3, mtbf_us=60 * MINUTE, mttr_us=4 * MINUTE, until_us=900 * MINUTE, seed=23),
        fence_after_us=2 * MINUTE,
    )
    settings = Settings(gang_start_us=5 * MINUTE, bad_node_strikes=0)
    here = site(
        policy, node(4), node(4), node(3), decide_every_us=decide_every_us, delays=delays, settings=settings, outages=mine
    )
    lives = lived(here, jobs)
    assert any(life.lost_us and life.job.spec.gang for life in lives)
    assert any(launch.lost_us is not None and launch.began_us is None for life in lives for launch in life.launches)


def test_failures_after_the_last_job_are_of_no_interest() -> None:
    world = World(site("fifo", node(1), outages=outages(dies(20, 21), dies(30, 31))), Listed([job(1, 10)]))
    world.run()
    assert world.now == 10 * MINUTE


# ---- schedules -----------------------------------------------------------------------------------------------------------


def test_drawn_failures_follow_from_the_seed_and_the_node() -> None:
    drawn = Exponential(5, mtbf_us=100 * MINUTE, mttr_us=10 * MINUTE, until_us=10_000 * MINUTE, seed=4)
    all_of_them = list(drawn)
    assert all_of_them == list(drawn)
    assert [f.at_us for f in all_of_them] == sorted(f.at_us for f in all_of_them)
    more = list(Exponential(9, mtbf_us=100 * MINUTE, mttr_us=10 * MINUTE, until_us=20_000 * MINUTE, seed=4))
    assert [f for f in more if f.node <= 5 and f.at_us <= drawn.until_us] == all_of_them
    assert list(Exponential(5, 100 * MINUTE, 10 * MINUTE, 10_000 * MINUTE, seed=5)) != all_of_them
    up, away = [], []
    for number in range(1, 6):
        back = 0
        for failure in (f for f in all_of_them if f.node == number):
            assert failure.back_us is not None
            up.append(failure.at_us - back)
            away.append(failure.back_us - failure.at_us)
            back = failure.back_us
    assert fmean(up) / MINUTE == pytest.approx(100, rel=0.15)
    assert fmean(away) / MINUTE == pytest.approx(10, rel=0.15)


def test_drawn_failures_are_drawn_as_they_are_needed() -> None:
    for_ages = Exponential(100, mtbf_us=MINUTE, mttr_us=MINUTE, until_us=10**18)
    assert len(list(islice(for_ages, 10))) == 10


def test_a_schedule_is_read_from_a_file() -> None:
    assert read_schedule(["node,at_s,back_s", "2,30,", "1,10.5,20", "1,20,40"]) == [
        Failure(1, 10_500_000, 20 * SECOND),
        Failure(1, 20 * SECOND, 40 * SECOND),
        Failure(2, 30 * SECOND, None),
    ]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("x,1,2", "line 2: node must be a whole number"),
        ("1,now,2", "line 2: .*at_s and back_s seconds"),
        ("1", "line 2: .*at_s and back_s seconds"),
        ("0,1,2", "line 2: node must be 1 or more"),
        ("1,-1,2", "line 2: .*at_s not negative"),
        ("1,nan,2", "line 2: .*at_s not negative"),
        ("1,2,2", "line 2: .*back_s later than at_s"),
        ("1,1,2\n1,3,1e11", "line 3: .*back_s later than at_s, both 1e.10 at most"),
        ("1,1e300,", "line 2: .*both 1e.10 at most"),
        ("1,1,3\n1,2,4", "node 1 dies at 2 s, and is not back from the time before"),
        ("1,1,\n1,2,4", "node 1 dies at 2 s, and is not back from the time before"),
    ],
)
def test_a_file_that_is_no_schedule_is_refused(row: str, why: str) -> None:
    with pytest.raises(BadSchedule, match=why):
        read_schedule(["node,at_s,back_s", *row.split("\n")])


@pytest.mark.parametrize(
    ("failures", "why"),
    [
        ((dies(1, 3), dies(2, 4)), "node 1 cannot die at 120 s: .* away already"),
        ((dies(1, None, of=2),), "node 2 cannot die at 60 s: there is no such node"),
        ((dies(2, 3), dies(1, 1.5)), "node 1 dies at 60 s, which comes after later failures"),
    ],
)
def test_failures_that_cannot_happen_are_refused(failures: tuple[Failure, ...], why: str) -> None:
    world = World(site("fifo", node(1), outages=outages(*failures)), Listed([job(1, 10)]))
    with pytest.raises(BadSchedule, match=why):
        world.run()
