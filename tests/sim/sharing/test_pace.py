"""How far a launch has come does not depend on how often somebody looks."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.sim.sharing.model import BILLION
from scheduler_service.sim.sharing.pace import Pace

TIMES = st.lists(st.integers(0, 10**9), max_size=8).map(sorted)
RATES = st.integers(1, 8 * BILLION)


@given(st.integers(1, 10**10), st.integers(0, 10**6), RATES, TIMES)
def test_a_change_to_the_same_rate_changes_nothing(target: int, since: int, rate: int, looks: list[int]) -> None:
    plain, looked = Pace(target, since, rate, BILLION), Pace(target, since, rate, BILLION)
    for at in looks:
        looked.change(at, rate, BILLION)
    assert looked.ends_us() == plain.ends_us()
    end = plain.ends_us()
    assert end is not None
    assert looked.done_us(end) == target
    assert plain.done_us(end - 1) < target


@given(st.integers(1, 10**9), st.lists(st.tuples(st.integers(1, 10**8), st.integers(0, 2 * BILLION)), max_size=8))
def test_what_is_done_is_the_sum_over_all_rates(target: int, parts: list[tuple[int, int]]) -> None:
    pace, at, done = Pace(target, 0), 0, 0
    for lasts, rate in parts:
        pace.change(at, rate, rate and BILLION)
        at, done = at + lasts, done + lasts * rate
    assert pace.done_us(at) == min(done // BILLION, target)
    assert pace.executed_us(at) == sum(lasts for lasts, rate in parts if rate)


@given(st.integers(2, 10**9), RATES)
def test_the_mark_is_noted_at_its_time(target: int, rate: int) -> None:
    pace = Pace(target, 5, rate, BILLION, mark_us=target // 2)
    end = pace.ends_us()
    assert end is not None
    pace.change(end, 0, 0)
    assert pace.marked_us == 5 - -(target // 2) * BILLION // rate
    assert pace.ends_us() == end


def test_one_that_has_stopped_never_ends() -> None:
    pace = Pace(10, 0, BILLION, BILLION)
    pace.change(3, 0, 0)
    assert pace.ends_us() is None
    assert pace.done_us(100) == 3
    pace.change(50, BILLION // 2, BILLION)
    assert pace.ends_us() == 64
