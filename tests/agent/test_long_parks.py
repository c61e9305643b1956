"""Turns with parks that take long: what an agent tells of them, and what becomes of the turns if the scheduler goes by that.

Agents and processes are real. The test stands for the scheduler, and decides as the policy does.
"""

import sys
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path

import pytest
from ebb.agent.v1 import agent_link_pb2 as pb
from google.protobuf.duration_pb2 import Duration

from node_agent.run_state.park_state import ParkStage, ParkState, Rung
from node_agent.sharing.parking import accounting
from node_agent.sharing.parking.ladder import Parked
from scheduler_service.core.model import Run, RunKey
from scheduler_service.core.model.profiles import Switching
from scheduler_service.core.model.rows import make_row
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.values import SECOND
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.gandiva.slicing.switching_cost import cost_of, longest_us, period_for
from tests.agent.conftest import AgentProcess
from tests.agent.fake_scheduler import FakeScheduler, share_plan
from tests.agent.parkable import PROGRAM
from tests.agent.test_slices import goes_on, never_together, switched

Start = Callable[..., AgentProcess]


def seconds(taken: Duration) -> float:
    return taken.ToTimedelta().total_seconds()


class Turns:
    """Two jobs on one device, whose turns are as long as the policy has them."""

    def __init__(self, scheduler: FakeScheduler, settings: Settings, *jobs: tuple[float, float]) -> None:
        """By job: the seconds of a mini-batch, and those of moving its memory."""
        self.scheduler, self.settings, self.jobs = scheduler, settings, jobs
        self.period_us, self.generations = settings.period_us, count(1)
        self.tell()

    def tell(self) -> None:
        plan = share_plan((1,), (2,), period=self.period_us / SECOND, generation=next(self.generations))
        for job, (pause, moving) in enumerate(self.jobs, 1):
            command = (sys.executable, "-S", "-c", PROGRAM, "", str(pause), str(moving))
            self.scheduler.start(job, *command, share=plan, devices=(0,))

    def goes_by(self, seen: dict[int, pb.SliceObservation]) -> bool:
        """Whether the turns have another length now, by what the agent tells."""
        runs = {RunKey(job, 1): make_row(Run, job_id=job, run=1, node=1, devices=(0,)) for job in (1, 2)}
        told = {
            RunKey(job, 1): Switching(
                *(round(seconds(part) * SECOND) for part in (one.wait, one.park, one.resume, one.outlasted))
            )
            for job, one in seen.items()
        }
        known = {key: switching for key, switching in told.items() if any(switching)}
        cost = cost_of([Row((key,)) for key in runs], runs, known, longest_us(self.settings))
        period = period_for(cost, self.period_us, self.settings)
        self.cost = cost.lost_us / self.period_us
        is_new, self.period_us = period != self.period_us, period
        if is_new:
            self.tell()
        return is_new


@pytest.fixture
def ready(agent: Start, scheduler: FakeScheduler) -> FakeScheduler:
    agent()
    scheduler.connected()
    return scheduler


def test_costly_parks_take_no_more_of_the_turns_than_the_policy_allows(ready: FakeScheduler, state: Path) -> None:
    """They take 0.4 s each, in turns of half a second. A fifth of a cycle is allowed."""
    turns = Turns(ready, Settings(period=1, switching_cost=20, longest_period=60), (0.01, 0.4), (0.01, 0.4))
    ready.wait(lambda: len(ready.slices()) == 2 and switched(ready, 4), 60)
    assert turns.goes_by(ready.slices())
    assert turns.period_us >= 4 * SECOND
    for _ in range(2):
        before = sum(seen.switches for seen in ready.slices().values())
        ready.wait(lambda: switched(ready, before + 3), 60)  # noqa: B023 (it waits for that here)
        turns.goes_by(ready.slices())
    assert turns.cost <= 0.2
    for seen in ready.slices().values():
        assert seconds(seen.park) > 0.1, "a mean, in which parks before the program answered may be"
        assert seconds(seen.outlasted) == 0
    never_together(state, 1, 2)


def test_jobs_whose_parks_outlast_their_turns_make_progress(ready: FakeScheduler, state: Path) -> None:
    """Mini-batches of 6 s in turns of 1 s, where a park may take 2 s. So the first job is not parked at first."""
    turns = Turns(ready, Settings(period=2, longest_period=60), (6.0, 0.0), (6.0, 0.0))
    ready.wait(lambda: any(seconds(seen.outlasted) > 0.5 for seen in ready.slices().values()), 60)
    assert not switched(ready, 1)
    assert turns.goes_by(ready.slices())
    assert turns.period_us > 8 * SECOND
    while not switched(ready, 1):
        outlasted = max(seconds(seen.outlasted) for seen in ready.slices().values())
        ready.wait(lambda: switched(ready, 1) or max(seconds(s.outlasted) for s in ready.slices().values()) > outlasted, 60)  # noqa: B023
        turns.goes_by(ready.slices())
        assert turns.period_us <= 60 * SECOND
    for job in (1, 2):
        goes_on(state, job)
    (parked,) = [seen for seen in ready.slices().values() if seen.switches][:1]
    assert seconds(parked.outlasted) == 0
    assert 0 < seconds(parked.wait) < 6.5


def test_no_two_runs_execute_at_a_time_while_the_period_changes(ready: FakeScheduler, state: Path) -> None:
    """With each change the wall clock may be in another row's turn."""
    turns = Turns(ready, Settings(period=1), (0.002, 0.05), (0.002, 0.05))
    ready.wait(lambda: len(ready.slices()) == 2 and switched(ready, 2), 60)
    for number, period in enumerate((0.7, 1.3, 0.9, 2.0, 0.5), 1):
        turns.period_us = round(period * SECOND)
        turns.tell()
        ready.wait(lambda: switched(ready, 2 + 2 * number), 60)  # noqa: B023
    found = never_together(state, 1, 2)
    assert {job for _, _, job in found} == {1, 2}
    assert all(begin < end for begin, end, _ in found)
    assert all(before[2] != after[2] or after[0] >= before[1] for before, after in pairwise(found))


# ---- what is kept of parks ---------------------------------------------------------------------------------------------


def tried(state: ParkState, took: float, at: float) -> ParkState:
    return accounting.continue_execution(accounting.begin_park(state, Rung.COOPERATIVE, (), at), at, at + took, outlasted=took)


def cycled(state: ParkState, wait: float, moving: float, resume: float, at: float = 100.0) -> ParkState:
    """Parked once, and resumed."""
    state = accounting.begin_park(state, Rung.COOPERATIVE, (), at)
    state = accounting.end_park(state, Parked(Rung.COOPERATIVE, 1, 1, (), moving), at, at + wait + moving)
    state = accounting.begin_resume(state, at + 60)
    return accounting.continue_execution(state, at + 60, at + 60 + resume)


def test_the_first_park_tells_little_of_the_next_ones() -> None:
    """It makes the host memory ready."""
    state = cycled(ParkState(), 0.5, 3.0, 0.4)
    assert (state.wait_seconds, state.park_seconds, state.resume_seconds) == pytest.approx((0.5, 3.0, 0.4))
    state = cycled(state, 0.1, 0.3, 0.2)
    assert (state.wait_seconds, state.park_seconds, state.resume_seconds) == pytest.approx((0.1, 0.3, 0.2))
    state = cycled(state, 0.1, 1.3, 0.2)
    assert state.park_seconds == pytest.approx(0.6)
    waits = []
    for wait in (0.1, 4.0, 1.0, 5.0):
        state = cycled(state, wait, 0.3, 0.2)
        waits.append(state.wait_seconds)
    assert waits == pytest.approx([0.1, 4.0, 3.7, 5.0]), "the longest, which is forgotten slowly"
    assert (state.switches, state.resumes) == (7, 7)
    assert state.switching_seconds == pytest.approx(4.6 + 0.8 + 4 * 0.5)


def test_the_longest_try_counts_until_a_park_succeeds() -> None:
    state = tried(tried(tried(ParkState(), 2, 10), 5, 20), 3, 30)
    assert (state.outlasted_seconds, state.stage) == (5, ParkStage.EXECUTES)
    state = accounting.continue_execution(state, 50, 50)
    assert state.outlasted_seconds == 5, "an end of nothing is no try"
    assert cycled(state, 6, 1, 1).outlasted_seconds == 0


def test_a_park_that_was_refused_was_not_too_slow() -> None:
    state = accounting.begin_park(tried(ParkState(), 5, 10), Rung.COOPERATIVE, (), 100)
    assert accounting.continue_execution(state, 100, 112).outlasted_seconds == 5


def test_the_time_in_which_no_agent_was_there_is_no_part_of_a_park_or_a_resume() -> None:
    """The agent is away for a minute in the middle of each, and the next one asks again."""
    state = accounting.begin_park(cycled(cycled(ParkState(), 0.2, 1, 0.5), 0.2, 1, 0.5), Rung.COOPERATIVE, (), 1000)
    state = accounting.begin_park(state, Rung.COOPERATIVE, (), 1060.1)
    state = accounting.end_park(state, Parked(Rung.COOPERATIVE, 1, 1, (), 1.0), 1060.0, 1061.5)
    assert state.wait_seconds == pytest.approx(0.5)
    before, state = state, accounting.begin_resume(accounting.begin_resume(state, 1100), 1160)
    state = accounting.continue_execution(state, 1160, 1160.5)
    assert state.resume_seconds == pytest.approx(0.5)
    assert state.switching_seconds - before.switching_seconds == pytest.approx(60.5), "it may have executed, or not"


def test_what_an_older_agent_has_counted_without_its_duration_is_in_no_mean() -> None:
    state = cycled(ParkState(switches=500, resumes=500), 2.0, 4.0, 3.0)
    assert (state.wait_seconds, state.park_seconds, state.resume_seconds) == pytest.approx((2, 4, 3))
    state = cycled(state, 2.0, 5.0, 3.0)
    assert state.park_seconds == pytest.approx(4.3)
