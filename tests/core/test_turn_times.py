"""Time that counts for a job: that in which it may compute. The turns of others do not, and so does a time limit."""

from fractions import Fraction
from random import Random

import pytest

from scheduler_service.core.messages import Place, RunStarted, Share, Spot, UpdateRequested
from scheduler_service.core.model import JobState, Run, RunPhase, StopReason
from scheduler_service.core.model.launch_time import executed_us, execution_time_parts, limit_at
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, WHOLE, Micros
from scheduler_service.policies.fifo import fifo
from tests.core.driver import Driver, spec
from tests.core.sharing_desk import Sharing, key, row
from tests.thorough import examples

LIMIT = 60


def shared(*weights: int) -> tuple[Sharing, list[int]]:
    """Jobs with a time limit of a minute take turns on a device, by these weights."""
    d = Sharing()
    limited = with_changes(spec(1), time_limit_us=LIMIT * SECOND)
    jobs = [d.submit(with_changes(limited, priority=10))]
    d.place(jobs[0], 1, 0)
    d.start(jobs[0])
    for count in range(2, len(weights) + 1):
        jobs.append(d.submit(with_changes(limited, priority=10 if weights[count - 1] else 0)))
        rows = tuple(row(job, weight=weight) for job, weight in zip(jobs, weights[:count], strict=True))
        limits = tuple((key(job), 4000) for job in jobs)
        d.do(Place(jobs[-1], (Spot(1, (0,)),), share=Share(rows, limits)))
        d.start(jobs[-1])
    return d, jobs


def ran_for(d: Driver, job: int) -> float:
    return executed_us(d.state.runs_of(job), d.now) / SECOND


def test_two_jobs_that_take_turns_compute_for_as_long_as_their_limits_say() -> None:
    d, (one, two) = shared(1, 1)
    d.step(after=60)
    assert ran_for(d, one) == ran_for(d, two) == 30
    d.step(after=59)
    assert {d.job(job).state for job in (one, two)} == {JobState.RUNNING}
    d.step(after=1)
    assert {d.job(job).state for job in (one, two)} == {JobState.STOPPING}
    d.exit(one, yielded=True)
    assert d.ended[one].state is JobState.TIMED_OUT
    assert d.ended[one].ran_us == 60 * SECOND


def test_time_counts_faster_once_a_job_has_its_device_alone() -> None:
    d, (one, two) = shared(1, 1)
    d.step(after=40)
    d.exit(one)
    assert d.ended[one].ran_us == 20 * SECOND
    assert d.job(two).limit_us == d.now + 40 * SECOND
    d.step(after=10)
    assert ran_for(d, two) == 30
    assert execution_time_parts(d.state.runs_of(two)) == (0, d.now - 30 * SECOND, WHOLE)


def test_weights_say_how_fast_time_counts_and_who_has_no_turn_has_no_time() -> None:
    d, (one, two, three) = shared(1, 2, 0)
    d.step(after=30)
    assert [ran_for(d, job) for job in (one, two, three)] == [pytest.approx(10), pytest.approx(20), 0]
    assert d.job(three).limit_us is None
    assert execution_time_parts(d.state.runs_of(three))[1] is None
    assert d.job(two).limit_us == pytest.approx(d.now + 60 * SECOND, abs=1000)


def test_another_limit_counts_in_the_same_way() -> None:
    d, (one, _) = shared(1, 1)
    d.step(after=20)
    d.step(UpdateRequested(one, time_limit_us=20 * SECOND))
    assert d.job(one).limit_us == d.now + 20 * SECOND
    d.step(UpdateRequested(one, time_limit_us=5 * SECOND))
    assert d.job(one).state is JobState.STOPPING


def test_jobs_in_one_row_have_all_of_the_time() -> None:
    d, (one, two) = shared(1, 1)
    d.step(after=10)
    d.do(Share((row(one, two),)))
    d.step(after=10)
    assert [ran_for(d, job) for job in (one, two)] == [15, 15]


class Watched:
    """A random history of jobs that share devices, with an independent account of the time that each has computed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.d = Driver(fifo, seed=seed)
        self.d.settles = False
        self.d.sharing, self.d.seed = 3, seed
        self.computed: dict[int, Fraction] = {}
        """By job: microseconds, over all launches."""
        for name in ("n1", "n2"):
            self.d.join(name)

    def part(self, run: Run) -> Fraction:
        group = self.d.state.share_groups.rows.get(run.group)
        if group is None:
            return Fraction(0 if run.is_parked else 1)
        mine = sum(each.weight for each in group.rows if run.key in each.runs)
        return Fraction(mine, sum(each.weight for each in group.rows))

    def step(self, *events: object, after: int = 0) -> None:
        if after:
            for job in list(self.d.state.active):
                first = min((run for run in self.d.state.runs_of(job) if run.started_us), key=_start, default=None)
                if first is not None:
                    self.computed[job] = self.computed.get(job, Fraction(0)) + self.part(first) * after * SECOND
        self.d.step(*events, after=after)  # type: ignore[arg-type]

    def act(self) -> None:
        random, state = self.random, self.d.state
        runs = sorted(state.runs.rows.values(), key=lambda run: run.key)
        chosen = random.choice(runs) if runs else None
        match random.randrange(6):
            case 0 | 1 if len(state.jobs.rows) < 8:
                limit = random.choice((0, 20, 45)) * SECOND
                self.d.submit(with_changes(spec(random.choice((1, 1, 2))), time_limit_us=limit))
            case 2 | 3 if chosen is not None and chosen.phase is RunPhase.STARTING:
                node = state.nodes.rows[chosen.node]
                self.step(RunStarted(node.name, node.boot_id, self.d._next(node), chosen.key, log_path=""))
            case 4 if chosen is not None and chosen.phase is RunPhase.STOPPING:
                self.d.exit(chosen.job_id, yielded=True)
            case 5 if chosen is not None and random.random() < 0.2:
                self.d.exit(chosen.job_id)
            case _:
                self.step(after=random.choice((1, 3, 7)))

    def check(self) -> None:
        state = self.d.state
        for job_id in state.active:
            job, runs = state.jobs.rows[job_id], state.runs_of(job_id)
            told = job.ran_us + executed_us(runs, self.d.now)
            assert told == pytest.approx(float(self.computed.get(job_id, 0)), abs=100), job_id
            so_long, since, part = execution_time_parts(runs)
            shown = so_long + (0 if since is None else (self.d.now - since) * part // WHOLE)
            assert shown == pytest.approx(executed_us(runs, self.d.now), abs=100)
            if any(run.stop_reason is StopReason.TIME_LIMIT for run in runs):
                assert told >= job.time_limit_us - 100
            elif job.limit_us is not None and not any(run.phase.exits_soon for run in runs):
                assert job.limit_us == pytest.approx(limit_at(job, runs, self.d.now) or 0, abs=1000)
                assert told < job.time_limit_us + 100


def _start(run: Run) -> Micros:
    return run.started_us or 0


@pytest.mark.parametrize("seed", range(examples(6)))
def test_time_and_limits_are_those_of_an_independent_account(seed: int) -> None:
    history = Watched(seed)
    for _ in range(60):
        history.act()
        history.check()
