"""How fast a run advances, by what its program has published."""

from collections.abc import Iterable
from math import isfinite
from random import Random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebb_inject.ebb_hook.step_file import EVALUATING, RUNNING, SAVING, Record
from node_agent.measuring.step_rates import FASTEST, FEWEST, LONGEST, Advance, RunSteps, StepState
from node_agent.processes.job_reports import MOST, is_plausible
from node_agent.run_state.model import RunKey

KEY = RunKey(7, 2, 3)
SECOND = 10**9


class Program:
    """Does steps, and publishes them as `client_sdk.training` does, by a clock of its own."""

    def __init__(self, total: int = 0, first: int = 1) -> None:
        self.now = 1000 * SECOND
        self.record = Record(1, 0, RUNNING, self.now, self.now, first, total, 0, self.now, 0, 0, 0.0)

    def step(self, seconds: float) -> None:
        took = round(seconds * SECOND)
        self.now += took
        old = self.record
        self.record = old._replace(
            last_ns=self.now, counted=old.counted + 1, busy_ns=old.busy_ns + took, squares=old.squares + (took / SECOND) ** 2
        )

    def be(self, state: int) -> None:
        self.record = self.record._replace(state=state, changed_ns=self.now)

    def pause(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


def told(advance: Advance, now: int) -> RunSteps:
    said = advance.steps_at(now)
    assert said is not None
    return said


def looks(program: Program, durations: Iterable[float], every: float = 1.0) -> Advance:
    """What an agent knows that looks at a program so often."""
    advance, due = Advance(KEY), program.now
    for seconds in durations:
        program.step(seconds)
        while program.now >= due:
            advance.add(program.record)
            due += round(every * SECOND)
    advance.add(program.record)
    return advance


def test_before_the_first_record_nothing_is_known() -> None:
    assert Advance(KEY).steps_at(5) is None


def test_after_the_first_step_there_is_no_rate_yet() -> None:
    advance, program = Advance(KEY), Program(total=100, first=41)
    advance.add(program.record)
    assert told(advance, program.now + SECOND // 2) == RunSteps(KEY, 41, 100, StepState.RUNNING, 0.5)


def test_the_rate_and_the_mini_batch_time_with_their_errors() -> None:
    rng = Random(1)
    durations = [rng.gauss(0.5, 0.05) for _ in range(60)]
    program = Program(total=1000)
    said = told(looks(program, durations), program.now)
    assert (said.key, said.step, said.total, said.measured) == (KEY, 61, 1000, 60)
    assert said.mini_batch == pytest.approx(fmean(durations))
    assert said.spread == pytest.approx(stdev(durations), rel=1e-6)
    assert said.rate == said.rate_since_start == pytest.approx(1 / fmean(durations))
    assert said.rate_error == pytest.approx(stdev(durations) / 60**0.5 / fmean(durations) ** 2)
    assert said.remaining == pytest.approx(939 * fmean(durations))


def test_the_error_is_that_of_the_rate() -> None:
    """Of 200 measurements of 40 steps, the rates are off by what each of them says."""
    rng = Random(2)
    rates, errors = [], []
    for _ in range(200):
        program = Program()
        said = told(looks(program, [rng.uniform(0.2, 0.6) for _ in range(40)]), program.now)
        assert said.rate is not None
        assert said.rate_error is not None
        rates.append(said.rate)
        errors.append(said.rate_error)
    assert stdev(rates) == pytest.approx(fmean(errors), rel=0.15)


def test_steps_that_are_all_alike_have_no_spread() -> None:
    program = Program()
    said = told(looks(program, [1e-3] * 100_000), program.now)
    assert said.mini_batch == pytest.approx(1e-3)
    assert said.spread == pytest.approx(0, abs=1e-8)


def test_the_rate_of_now_forgets_what_was_a_minute_ago() -> None:
    program = Program()
    said = told(looks(program, [0.1] * 3000 + [0.4] * 155), program.now)
    assert said.rate == pytest.approx(2.5, rel=0.01)
    assert said.mini_batch == pytest.approx(0.4, rel=0.01)
    assert 150 <= said.measured <= 155
    assert said.rate_since_start == pytest.approx(3155 / (300 + 62))


def test_a_shorter_window_forgets_sooner() -> None:
    program, advance = Program(), Advance(KEY, window=2.0)
    for seconds in [0.1] * 100 + [0.4] * 25:
        program.step(seconds)
        advance.add(program.record)
    said = told(advance, program.now)
    assert said.mini_batch == pytest.approx(0.4)
    assert FEWEST <= said.measured <= FEWEST + 1


def test_a_rate_is_taken_over_20_steps_where_a_minute_has_fewer() -> None:
    program = Program()
    said = told(looks(program, [300.0] * 30 + [150.0] * 20), program.now)
    assert FEWEST <= said.measured <= FEWEST + 1
    assert said.mini_batch == pytest.approx(150, rel=0.05)


def test_it_does_not_matter_how_often_somebody_looks() -> None:
    rng = Random(3)
    durations = [rng.uniform(2.0, 4.0) for _ in range(15)]
    often, seldom = Program(), Program()
    first, second = looks(often, durations, every=0.1), looks(seldom, durations, every=1000.0)
    assert told(first, often.now) == told(second, seldom.now)


def test_an_agent_that_starts_later_knows_what_was_since_the_start() -> None:
    program = Program(total=400)
    before = looks(program, [0.25] * 100)
    after = Advance(KEY)
    after.add(program.record)
    assert told(after, program.now) == told(before, program.now)


def test_what_is_done_beside_steps_is_in_the_rate_and_in_no_mini_batch() -> None:
    program = Program(total=401)
    advance = Advance(KEY)
    for _ in range(2):
        for _ in range(100):
            program.step(0.1)
        program.be(EVALUATING)
        program.pause(5)
        advance.add(program.record)
        assert told(advance, program.now).state is StepState.EVALUATING
        program.be(SAVING)
        program.pause(5)
        advance.add(program.record)
        assert told(advance, program.now).state is StepState.SAVING
        program.be(RUNNING)
    # The step under way had begun with the pause behind it.
    program.step(0.1)
    advance.add(program.record)
    said = told(advance, program.now)
    assert said.state is StepState.RUNNING
    assert said.mini_batch == pytest.approx(0.1)
    assert said.rate == pytest.approx(201 / 40.1, rel=1e-3)
    assert said.remaining == pytest.approx((401 - 202) * 40.1 / 201, rel=1e-3), "the rest has as much beside it"


def test_the_time_that_is_left_goes_by_the_pace_of_now_and_by_the_pauses_since_the_start() -> None:
    program = Program(total=10_000)
    advance = looks(program, [0.1] * 1000)
    program.pause(50)
    for _ in range(600):
        program.step(0.2)
        advance.add(program.record)
    said = told(advance, program.now)
    usual = (1000 * 0.1 + 600 * 0.2) / 1600
    wall = (1000 * 0.1 + 50 + 600 * 0.2) / 1600
    assert said.mini_batch == pytest.approx(0.2, rel=0.01)
    assert said.remaining == pytest.approx((10_000 - 1601) * 0.2 * wall / usual, rel=0.01)


@pytest.mark.parametrize(("total", "left"), [(0, None), (101, 0.0), (50, 0.0), (102, 1.0)])
def test_the_end(total: int, left: float | None) -> None:
    program = Program(total=total)
    assert told(looks(program, [1.0] * 100), program.now).remaining == (left if left is None else pytest.approx(left))


def test_a_run_that_does_nothing_is_stalled() -> None:
    program = Program()
    advance = looks(program, [0.5] * 100)

    def after(seconds: float) -> StepState:
        return told(advance, program.now + round(seconds * SECOND)).state

    assert (after(59), after(61)) == (StepState.RUNNING, StepState.STALLED)
    program.be(EVALUATING)
    advance.add(program.record)
    assert after(3600) is StepState.EVALUATING
    program.pause(600)
    program.be(RUNNING)
    advance.add(program.record)
    assert (after(1), after(61)) == (StepState.RUNNING, StepState.STALLED), "counted from the evaluation's end"
    assert told(advance, program.now).since_step == 600
    slow = looks(program := Program(), [20.0] * 30)
    assert told(slow, program.now + 190 * SECOND).state is StepState.RUNNING
    assert told(slow, program.now + 201 * SECOND).state is StepState.STALLED


def test_another_process_of_the_same_run_begins_anew() -> None:
    program = Program()
    advance = looks(program, [0.1] * 1000)
    other = Program(first=500)
    other.record = other.record._replace(pid=2)
    other.now += 3600 * SECOND
    other.record = other.record._replace(began_ns=other.now, changed_ns=other.now, last_ns=other.now)
    for _ in range(25):
        other.step(2.0)
        advance.add(other.record)
    said = told(advance, other.now)
    assert (said.step, said.measured) == (525, 25)
    assert said.rate == said.rate_since_start == pytest.approx(0.5)


@pytest.mark.parametrize("field", ["counted", "untimed", "busy_ns", "squares", "last_ns"])
def test_a_program_that_takes_back_what_it_said_begins_anew(field: str) -> None:
    program = Program()
    advance = looks(program, [0.5] * 100)
    less = program.record._replace(untimed=1)
    advance.add(less)
    advance.add(less._replace(**{field: getattr(less, field) - 1}))
    said = told(advance, program.now)
    assert said.rate == said.rate_since_start


def test_what_is_kept_is_bounded() -> None:
    program = Program()
    fast = looks(program, [0.001] * 200_000, every=1.0)
    assert len(fast._seen) <= 62
    slow = looks(program, [90.0] * 500, every=1.0)
    assert len(slow._seen) <= FEWEST + 3


@given(
    st.lists(
        st.builds(
            Record,
            pid=st.integers(1, 2),
            rank=st.just(0),
            state=st.sampled_from((RUNNING, EVALUATING, SAVING)),
            began_ns=st.integers(1, 3),
            changed_ns=st.integers(1, 10**18),
            first=st.integers(-MOST, MOST),
            total=st.integers(0, MOST),
            untimed=st.integers(0, MOST) | st.integers(0, 3),
            last_ns=st.integers(1, 10**18) | st.integers(1, 9),
            counted=st.integers(0, MOST) | st.integers(0, 9),
            busy_ns=st.integers(0, 10**18) | st.integers(0, 9),
            squares=st.floats(0, 1e18),
        ),
        max_size=6,
    ),
    st.integers(0, 10**18),
)
def test_whatever_a_program_says_can_be_told(records: list[Record], now: int) -> None:
    """A scheduler that could not take it would end the link of the node."""
    advance = Advance(KEY)
    for record in records:
        if is_plausible(record, now):
            advance.add(record)
    if (said := advance.steps_at(now)) is None:
        return
    assert 0 <= said.step <= MOST
    assert said.total is None or 1 <= said.total <= MOST
    assert 0 <= said.measured <= MOST
    for rate in (said.rate, said.rate_error, said.rate_since_start):
        assert rate is None or (isfinite(rate) and 0 <= rate <= FASTEST)
    for seconds in (said.since_step, said.spread, said.remaining):
        assert seconds is None or 0 <= seconds <= LONGEST
    assert said.mini_batch is None or 1e-6 <= said.mini_batch <= LONGEST


def test_the_time_in_which_a_run_is_stopped_in_a_step_does_not_count() -> None:
    """It is stopped three times for ten seconds, in the middle of a step of 0.1 s that its program takes for a long one."""
    program = Program()
    advance = looks(program, [0.1] * 30)
    for _ in range(3):
        for _ in range(3):  # looks while it is stopped
            advance.add(program.record)
            advance.note_interruption()
        program.step(10.1)
        advance.add(program.record)
        said = told(advance, program.now)
        assert said.mini_batch is None, "only the first step since then is known, and it is no measurement"
        for _ in range(30):
            program.step(0.1)
            advance.add(program.record)
        said = told(advance, program.now)
        assert said.mini_batch == pytest.approx(0.1)
        assert said.measured == 30
    program.step(10.1)  # stopped and resumed between two looks
    advance.add(program.record)
    advance.note_interruption()
    for _ in range(10):
        program.step(0.1)
        advance.add(program.record)
    assert told(advance, program.now).mini_batch == pytest.approx(0.1)


def test_a_run_that_is_parked_or_has_just_resumed_is_not_stalled() -> None:
    program = Program()
    advance = looks(program, [0.1] * 30)
    later = program.now + 300 * SECOND
    assert told(advance, later).state is StepState.STALLED
    for awake in (later, later - 5 * SECOND):
        said = advance.steps_at(later, awake)
        assert said is not None
        assert said.state is StepState.RUNNING
    said = advance.steps_at(later, later - 100 * SECOND)
    assert said is not None
    assert said.state is StepState.STALLED
