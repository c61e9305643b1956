"""Periods of power that are there, and those that are aliases of shorter ones."""

from bisect import bisect_right
from collections.abc import Iterator
from random import Random

import pytest

from node_agent.devices.activity import IN_ENERGY, Sample, share_in_energy
from node_agent.devices.memory_cycles import Wave

HIGH, LOW, BUSY = 600.0, 240.0, 0.6
TICK = 0.1
"""Seconds from one measurement of the driver to the next."""


def device(rng: Random, period: float, seconds: float = 60.0) -> Iterator[Sample]:
    """Samples of a device that is busy through three fifths of each mini-batch, whose lengths vary by one percent."""
    begins, used = [0.0], [0.0]
    while begins[-1] < seconds:
        length = period * (1 + rng.gauss(0, 0.01))
        begins.append(begins[-1] + length)
        used.append(used[-1] + length * (HIGH * BUSY + LOW * (1 - BUSY)))

    busy = BUSY * period
    at = 0.0
    while at < seconds:
        measured = at - at % TICK
        place = bisect_right(begins, measured) - 1
        since = measured - begins[place]
        joules = used[place] + HIGH * min(since, busy) + LOW * max(0.0, since - busy)
        yield Sample(at, HIGH if since < busy else LOW, joules)
        at += TICK * rng.uniform(0.6, 1.4)


def shown(samples: list[Sample]) -> float | None:
    wave = Wave()
    for sample in samples:
        wave.add(sample.seconds, int(sample.watts))
    cycle = wave.cycle()
    assert cycle is not None
    return cycle.period_seconds


@pytest.mark.parametrize("period", [0.55, 0.8, 1.1, 1.6, 3.0, 8.0])
def test_a_period_that_is_there_is_in_the_energy(period: float) -> None:
    for seed in range(3):
        samples = list(device(Random(seed), period))
        found = shown(samples)
        assert found == pytest.approx(period, rel=0.05)
        assert found is not None
        assert 0.9 < share_in_energy(samples, found) < 1.4


@pytest.mark.parametrize("period", [0.09, 0.105, 0.11, 0.12])
def test_an_alias_is_not_in_the_energy(period: float) -> None:
    """The wave alone shows a period of many times the true one, with high confidence."""
    aliases = 0
    for seed in range(3):
        samples = list(device(Random(seed), period))
        found = shown(samples)
        if found is not None:
            aliases += 1
            assert found > 3 * period
            assert share_in_energy(samples, found) < IN_ENERGY
    assert aliases


def test_no_power_has_no_period() -> None:
    assert share_in_energy([Sample(count / 10, 0.0, 0.0) for count in range(100)], 1.0) == 0
    assert share_in_energy([], 1.0) == 0
