"""What time it is for a leader whose clock is behind the last commit."""

import time

import pytest

from scheduler_service.startup import ClockBehind, clock

HOUR = 3600 * 1_000_000


def now() -> int:
    return time.time_ns() // 1000


@pytest.mark.parametrize("behind", [-HOUR, 0, 59 * 1_000_000])
def test_the_wall_clock_counts_where_it_is_not_far_behind(behind: int) -> None:
    before = now()
    assert before <= clock(before + behind)() <= now() + 1_000_000


def test_far_behind_it_refuses_and_says_what_there_is_to_do() -> None:
    with pytest.raises(ClockBehind, match=r"360\d s behind the last commit: set it.* --accept-clock"):
        clock(now() + HOUR + 5_000_000)


def test_an_operator_may_know_that_the_last_leaders_clock_was_ahead(caplog: pytest.LogCaptureFixture) -> None:
    last = now() + HOUR
    goes_on = clock(last, accept=True)
    assert last <= goes_on() <= last + 60_000_000
    assert "is taken as right" in caplog.text
