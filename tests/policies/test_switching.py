"""How long a cycle of turns takes, by what parks and resumes take of it."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.run_state.park_state import ParkState, Rung
from node_agent.sharing.parking.accounting import begin_park, begin_resume, continue_execution, end_park
from node_agent.sharing.parking.ladder import Parked
from scheduler_service.core.model import Run, RunKey
from scheduler_service.core.model.profiles import Switching
from scheduler_service.core.model.rows import make_row
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.policies.gandiva.slicing.rows import fair_rows, unit_of
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.gandiva.slicing.switching_cost import Cost, cost_of, longest_us, period_for, why_retimed

MINUTE = 60 * SECOND
USUAL = Settings()
LONGEST = longest_us(USUAL)


def run(job: int, *devices: int, node: int = 1, task: int = 0) -> Run:
    return make_row(Run, job_id=job, run=1, task=task, node=node, devices=devices)


def seconds(wait: float = 0, park: float = 0, resume: float = 0, outlasted: float = 0) -> Switching:
    return Switching(*(round(part * SECOND) for part in (wait, park, resume, outlasted)))


def cost(rows: Sequence[Sequence[Run]], known: dict[int, Switching], weights: Sequence[int] = ()) -> Cost:
    """`known`: by job."""
    runs = {each.key: each for row in rows for each in row}
    each = weights or [1] * len(rows)
    made = [Row(tuple(sorted(each.key for each in row)), weight) for row, weight in zip(rows, each, strict=True)]
    return cost_of(made, runs, {key: known[key.job_id] for key in runs if key.job_id in known}, LONGEST)


def in_turns(*takes: Switching) -> Cost:
    """Jobs that take turns on one device."""
    return cost([[run(job, 0)] for job in range(1, len(takes) + 1)], dict(enumerate(takes, 1)))


# ---- what is lost ------------------------------------------------------------------------------------------------------


def test_each_change_of_turns_loses_a_park_and_a_resume() -> None:
    found = in_turns(seconds(park=2, resume=1), seconds(park=0.5, resume=0.25))
    assert found == Cost(round(3.75 * SECOND), 20 * SECOND, 1, 2 * SECOND, known=True)


def test_a_run_executes_until_its_mini_batch_is_done() -> None:
    """So that takes nothing of the device, but the park has to end within half of a turn all the same."""
    found = in_turns(seconds(wait=4, park=1), seconds())
    assert (found.lost_us, found.parks_us) == (SECOND, 50 * SECOND)


def test_a_gang_goes_on_when_all_of_its_devices_are_free() -> None:
    """Its first device is free after 1 s, and its second one after 5 s, 3 s of which its holder executes."""
    gang = [run(3, 0), run(3, 0, node=2, task=1)]
    found = cost([[run(1, 0), run(2, 0, node=2)], gang], {1: seconds(park=1), 2: seconds(wait=3, park=2), 3: seconds()})
    assert found.lost_us == 5 * SECOND


def test_nothing_is_lost_where_somebody_goes_on_and_where_nobody_has_a_turn() -> None:
    """Job 1 executes in both rows. Job 4 outranks nobody, and has no turns."""
    known = {job: seconds(park=9, resume=9) for job in (1, 4)} | {2: seconds(park=1), 3: seconds(resume=1)}
    found = cost([[run(1, 0), run(2, 1)], [run(1, 0), run(3, 1)], [run(4, 0)]], known, (1, 1, 0))
    assert found.lost_us == 2 * SECOND
    assert found.known


def test_rows_without_turns_cost_nothing() -> None:
    assert cost([[run(1, 0)], [run(2, 0)]], {1: seconds(park=9), 2: seconds(park=9)}, (1, 0)) == Cost()


def test_of_packed_runs_the_device_waits_for_the_slowest() -> None:
    known = {1: seconds(park=1), 2: seconds(wait=1, park=3), 3: seconds(resume=2), 4: seconds(resume=1)}
    found = cost([[run(1, 0), run(2, 0)], [run(3, 0), run(4, 0)]], known)
    assert found.lost_us == 4 * SECOND, "until the first of the others executes; the way back takes no time"


# ---- the period --------------------------------------------------------------------------------------------------------


def test_cheap_turns_take_a_minute() -> None:
    found = in_turns(seconds(park=0.3, resume=0.3), seconds(park=0.3, resume=0.3))
    assert period_for(found, MINUTE, USUAL) == MINUTE


@pytest.mark.parametrize(
    ("lost_s", "period_s"),
    [(1.2, 60), (1.21, 75), (1.6, 90), (2.4, 120), (3, 150), (3.01, 180), (6, 300), (12, 600), (99, 600)],
)
def test_costly_turns_get_longer(lost_s: float, period_s: float) -> None:
    assert period_for(Cost(round(lost_s * SECOND)), MINUTE, USUAL) == period_s * SECOND


@pytest.mark.parametrize(
    ("own", "period_s"),
    [
        ({"switching_cost": 0}, 60),
        ({"switching_cost": 4}, 60),
        ({"switching_cost": 1}, 240),
        ({"longest_period": 90}, 90),
        ({"longest_period": 10}, 60),
    ],
)
def test_the_settings_decide(own: dict[str, float], period_s: int) -> None:
    settings = USUAL._replace(**own)
    settings.check()
    assert period_for(Cost(round(2.4 * SECOND)), MINUTE, settings) == period_s * SECOND


@pytest.mark.parametrize(
    "own", [{"switching_cost": 0.02}, {"switching_cost": 101}, {"switching_cost": -1}, {"longest_period": -1}]
)
def test_settings_that_cannot_be_are_refused(own: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(own))):
        USUAL._replace(**own).check()


TIMES = st.floats(0, 40).map(lambda s: round(s * SECOND))
SWITCHES = st.builds(Switching, TIMES, TIMES, TIMES, TIMES)


@given(st.lists(SWITCHES, min_size=2, max_size=8), st.sampled_from((10, 60, 600)))
def test_the_period_is_the_least_that_suffices(takes: list[Switching], period: int) -> None:
    settings = Settings(period=period)
    longest, found = longest_us(settings), in_turns(*takes)
    got = period_for(found, settings.period_us, settings)
    assert settings.period_us <= got <= longest

    def suffices(us: Micros) -> bool:
        return found.lost_us * 100 <= 2 * us and found.parks_us <= us

    assert suffices(got) or got == longest
    assert got == settings.period_us or not suffices(got * 4 // 5 - 1)


@given(st.lists(st.integers(0, 20 * SECOND), min_size=2, max_size=8))
def test_nobody_waits_for_longer_than_the_longest_period_for_a_turn(lost: list[int]) -> None:
    """With R rows of equal weight and the period P, that is P (1 - 1 / R)."""
    units = [unit_of([run(job, 0)]) for job, _ in enumerate(lost, 1)]
    rows, runs = fair_rows(units), {RunKey(job, 1): run(job, 0) for job, _ in enumerate(lost, 1)}
    known = {RunKey(job, 1): Switching(park_us=us) for job, us in enumerate(lost, 1)}
    period = period_for(cost_of(rows, runs, known, LONGEST), MINUTE, USUAL)
    for job, _ in enumerate(lost, 1):
        waits, executes = Fraction(0), 0
        for row in rows:
            mine = any(key.job_id == job for key in row.runs)
            executes += mine
            waits += 0 if mine else Fraction(period, len(rows))
        assert executes
        assert waits <= period * (1 - Fraction(1, len(rows))) <= LONGEST


# ---- as measurements change --------------------------------------------------------------------------------------------


@given(st.integers(SECOND // 2, 12 * SECOND), st.lists(st.floats(1, 1.2), min_size=2, max_size=60))
def test_the_period_does_not_follow_the_noise_of_measurements(lost: int, noise: list[float]) -> None:
    periods = [MINUTE]
    for each in noise:
        periods.append(period_for(Cost(round(lost * each), known=True), periods[-1], USUAL))
    assert periods == sorted(periods)
    assert len(set(periods[1:])) <= 3


@pytest.mark.parametrize(
    ("lost_s", "known", "before_s", "period_s"),
    [
        (5, True, 300, 300),
        (4, True, 300, 300),
        (3.8, True, 300, 210),
        (3.8, False, 300, 300),
        (1, True, 75, 75),
        (0.9, True, 75, 60),
        (0, True, 600, 60),
        (0, False, 600, 600),
    ],
)
def test_it_gets_shorter_when_the_cost_is_known_and_much_less(lost_s: float, known: bool, before_s: int, period_s: int) -> None:
    assert period_for(Cost(round(lost_s * SECOND), known=known), before_s * SECOND, USUAL) == period_s * SECOND


def test_who_was_never_parked_is_not_known() -> None:
    found = cost([[run(1, 0)], [run(2, 0)]], {1: seconds(park=1)})
    assert (found.lost_us, found.known) == (SECOND, False)


def parks_of(takes: Callable[[], float], rows: int, period_s: float = 60, cycles: int = 30) -> list[tuple[float, bool]]:
    """The period of each cycle, in seconds, and whether a park has ended in time, as agents try: for half of the turn that
    follows. The first job `takes` so long to finish its mini-batch, and the others nothing."""
    settings, state = Settings(period=period_s), ParkState()
    period, seen = settings.period_us, []
    for _ in range(cycles):
        limit, takes_s = max(2.0, period / SECOND / rows / 2), takes()
        state = begin_park(state, Rung.COOPERATIVE, (), 0)
        if takes_s <= limit:
            state = end_park(state, Parked(Rung.COOPERATIVE, 0, 0, (), 0), 0, takes_s)
            state = continue_execution(begin_resume(state, 900), 900, 900)
        else:
            state = continue_execution(state, 0, limit, outlasted=limit)
        seen.append((period / SECOND, takes_s <= limit))
        known = [seconds(wait=state.wait_seconds, outlasted=state.outlasted_seconds), *[seconds()] * (rows - 1)]
        period = period_for(in_turns(*known), period, settings)
    return seen


@given(st.floats(0.01, 140), st.integers(2, 8), st.sampled_from((2, 20, 60)))
def test_parks_that_outlast_a_turn_end_in_time_after_some_tries(takes_s: float, rows: int, period_s: float) -> None:
    """If half of the longest turn suffices. Then they always do."""
    seen = parks_of(lambda: takes_s, rows, period_s)
    if takes_s < 0.4 * 600 / rows:
        first = [done for _, done in seen].index(True)
        assert first <= 8
        assert all(done for _, done in seen[first:])
        assert len({period for period, _ in seen[first + 2 :]}) == 1, "and the period stays as it is"


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("mini_batch_s", "rows"), [(60, 2), (20, 2), (25, 4), (8, 8)])
def test_parks_that_end_with_a_long_mini_batch_hardly_ever_outlast_their_turn(
    mini_batch_s: float, rows: int, seed: int
) -> None:
    """The end of a turn is anywhere in a mini-batch, so the first few parks say little of the next ones."""
    random = Random(seed)
    seen = parks_of(lambda: random.uniform(0, mini_batch_s), rows, cycles=100)
    assert sum(not done for _, done in seen[:20]) <= 8
    assert sum(not done for _, done in seen[20:]) <= 2
    assert sum(before != after for (before, _), (after, _) in pairwise(seen[20:])) <= 6, "and the period hardly changes"


@pytest.mark.parametrize("rows", [2, 8])
def test_a_program_that_never_parks_does_not_make_turns_long_for_ever(rows: int) -> None:
    seen = parks_of(lambda: 1e9, rows)
    assert max(period for period, _ in seen) == 600
    assert [period for period, _ in seen[-10:]] == [60] * 10


def test_the_story_says_what_it_costs() -> None:
    assert why_retimed(in_turns(seconds(park=5), seconds(park=5)), 20 * SECOND, 560 * SECOND, USUAL) == (
        "a cycle of turns takes 560 s instead of 20 s: to park and resume takes 10 s of each, which is 1.8 % of the cycle; "
        "before, 50 %"
    )
    assert why_retimed(in_turns(seconds(outlasted=15), seconds()), MINUTE, 150 * SECOND, USUAL) == (
        "a cycle of turns takes 150 s instead of 60 s: a park of job 1 takes 15 s or more, and has to end within half of a turn"
    )


def test_the_story_says_why_turns_are_shorter() -> None:
    cheap = in_turns(seconds(park=0.2), seconds(park=0.3))
    assert why_retimed(cheap, 150 * SECOND, MINUTE, USUAL) == (
        "a cycle of turns takes 60 s instead of 150 s: to park and resume takes 0.5 s of each, which is 0.83 % of the cycle; "
        "before, 0.33 %"
    )
    generous = USUAL._replace(switching_cost=50)
    parks = in_turns(seconds(park=8), seconds(park=1))
    assert period_for(parks, 600 * SECOND, generous) == 90 * SECOND
    assert why_retimed(parks, 600 * SECOND, 90 * SECOND, generous) == (
        "a cycle of turns takes 90 s instead of 600 s: a park of job 1 takes 8 s, no other takes longer, and all end in time "
        "in shorter turns"
    )
    limited = USUAL._replace(longest_period=300)
    slow = in_turns(seconds(park=5), seconds(park=5))
    assert period_for(slow, 600 * SECOND, limited) == 300 * SECOND
    assert why_retimed(slow, 600 * SECOND, 300 * SECOND, limited) == (
        "a cycle of turns takes 300 s instead of 600 s: by the settings, no cycle is longer"
    )
