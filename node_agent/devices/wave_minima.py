"""Counts the minima of a wave, as Gandiva does inside the allocator (section 3.2). Pure.

If the periods of a wave differ much, as those of a translation model do, its autocorrelation has no peak. The wave still has
one minimum for each mini-batch, and the mean distance between two minima is the mini-batch time.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

PROMINENCE = 0.45
"""Part of the range by which the wave must rise after a minimum, and fall before the next. Smaller waves are noise, or parts
of a mini-batch."""
FEWEST = 12
"""Periods that must have been seen. With fewer, intervals of anything may be equal by chance."""
SPREAD = 0.35
"""Largest standard deviation of the intervals, relative to their mean. Random rises have 1."""
_TRIM = 0.02
"""Part of the values at either end that the range leaves out."""
_ERRORS, _DRIFT = 4.0, 0.02
"""Two halves have one mean if their means differ by at most this many standard errors, or by this part."""
_OUTLIER = 5.0
"""An interval is an outlier if it differs from the median by more than this many times the median difference."""
_SHORT = 0.1
"""Added to an outlier, in periods, before it is rounded: a mini-batch may be short, and noise makes still shorter intervals."""
_SAMPLES = 4
"""Shortest mean interval, in samples. With a shorter one, a minimum may lie between two samples."""


class Minima(NamedTuple):
    """The mean interval between two minima, in seconds, and how even the intervals are, from 0 to 1."""

    period: float
    evenness: float


def count_minima(times: Sequence[float], values: Sequence[float]) -> Minima | None:
    """Return the mean distance between two minima; None if they are too few or too uneven to be mini-batches."""
    if len(values) < FEWEST * _SAMPLES:
        return None
    minima = _minima(times, values)
    gaps = _steady([later - earlier for earlier, later in pairwise(minima)])
    if len(gaps) < FEWEST:
        return None
    _, deviation = _moments(gaps)
    mean = sum(gaps) / _periods(gaps)
    each = (times[-1] - times[0]) / (len(times) - 1)
    ended = times[-1] - minima[-1] > 2 * max(gaps)
    if deviation > SPREAD * mean or mean < _SAMPLES * each or ended:
        return None
    return Minima(mean, 1 - deviation / mean)


def _steady(gaps: list[float]) -> list[float]:
    """Return the last intervals that have one mean: the program was in one phase."""
    while len(gaps) >= 2 * FEWEST:
        half = len(gaps) // 2
        (before, wide), (after, narrow) = _moments(gaps[:half]), _moments(gaps[half:])
        error = sqrt((wide * wide + narrow * narrow) / half)
        if abs(after - before) <= max(_ERRORS * error, _DRIFT * after):
            break
        gaps = gaps[half:]
    return gaps


def _periods(gaps: list[float]) -> int:
    """Count the periods in these intervals: two in an interval where noise hid a minimum, none where it made one."""
    median = _median(gaps)
    usual = _OUTLIER * _median([abs(gap - median) for gap in gaps])
    return sum(1 if abs(gap - median) <= usual else round(gap / median + _SHORT) for gap in gaps)


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _moments(gaps: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the standard deviation."""
    mean = sum(gaps) / len(gaps)
    return mean, sqrt(sum((gap - mean) ** 2 for gap in gaps) / (len(gaps) - 1))


def _minima(times: Sequence[float], values: Sequence[float]) -> list[float]:
    """Return the times of the minima that are prominent enough, in order."""
    ordered = sorted(values)
    cut = int(len(ordered) * _TRIM)
    enough = PROMINENCE * (ordered[-1 - cut] - ordered[cut])
    found: list[float] = []
    lowest, lowest_at, highest, rising = values[0], times[0], values[0], False
    for time, value in zip(times, values, strict=True):
        if rising:
            highest = max(highest, value)
            if value <= highest - enough:
                rising, lowest, lowest_at = False, value, time
        else:
            if value < lowest:
                lowest, lowest_at = value, time
            if value >= lowest + enough > lowest:
                found.append(lowest_at)
                rising, highest = True, value
    return found
