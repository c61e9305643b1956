"""Waves that are sampled on a busy machine: their period is right, or unknown."""

from collections import Counter
from random import Random

import pytest

from node_agent.devices.wave_stalls import is_believed
from tests.agent.waves import SHAPES, Kind, Series, seen, stalled, wave


def looks(shape: str, period: float, rate: float, often: float, mean: float) -> Counter[str]:
    """What is said of some waves, at different times after their beginning."""
    said = Counter[str]()
    for seed in range(8):
        rng = Random(seed)
        series, real = wave(rng, shape, period, Kind(noise=0.01, jitter=0.01), rate=rate)
        series = stalled(rng, series, often / rate, mean)
        for end in (12, 25, 40, 60):
            cycle = seen([sample for sample in series if sample[0] < end]).cycle()
            found = None if cycle is None else cycle.period_seconds
            said["unknown" if found is None else "right" if abs(found / real - 1) < 0.05 else "wrong"] += 1
    return said


@pytest.mark.parametrize("rate", [10.0, 25.0])
@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_no_period_is_wrong_however_often_samples_are_late(shape: str, rate: float) -> None:
    """Stalls a second: half of one to three; of 0.2 s to 0.8 s on average. Without a check, one in fifty looks shows another
    period, mostly twice the true one."""
    for often, mean in ((0.5, 0.2), (1.0, 0.3), (3.0, 0.3), (0.5, 0.8)):
        for period in (0.8, 1.5, 3.0):
            said = looks(shape, period, rate, often, mean)
            assert not said["wrong"], (often, mean, period, said)


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_the_period_is_known_though_samples_are_late_at_times(shape: str) -> None:
    said = looks(shape, 1.5, 10.0, 0.5, 0.2)
    assert said["right"] >= 0.6 * said.total(), said


def test_stalls_that_are_short_for_a_period_do_not_matter() -> None:
    said = looks("sawtooth", 8.0, 10.0, 2.0, 0.1)
    assert said["right"] >= said.total() // 2, said  # three periods take 24 s


def rises(count: int) -> Series:
    """One each second, sampled ten times a second."""
    return [(at / 10, at % 10) for at in range(10 * count)]


def believed(series: Series, period: float) -> bool:
    times, values = zip(*series, strict=True)
    return is_believed(times, values, period)


def test_rises_with_nothing_missing_before_them_confirm_a_period() -> None:
    series = rises(20)
    assert believed(series, 2.0), "nothing is missing"
    missing = [sample for sample in series if not any(at < sample[0] < at + 0.75 for at in (3.5, 9.5, 14.5))]
    assert believed(missing, 1.0)
    assert not believed(missing, 2.0)
    assert not believed([sample for sample in missing if sample[0] < 6], 1.0), "too few rises"
