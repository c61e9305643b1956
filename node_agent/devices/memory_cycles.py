"""The period with which a process's use of device memory rises and falls, once per mini-batch (Gandiva, section 3.2).

A period is a shift by which the wave resembles itself (its autocorrelation). The slopes are compared, not the values:
a growing baseline, a step or an aimless drift then say next to nothing, and do not look like a slow wave.

Periods are searched octave by octave, each on a grid that suits it: coarse for slow waves over a long time, fine for fast
ones over a short time. So a look costs some ten thousand multiplications however many samples there are, and a fast wave
that changes is followed within seconds. docs/adr/0015-observations.md has its accuracy and its cost. If periods differ
much, the minima of the wave are counted as well (`wave_minima`).
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul, sub
from typing import NamedTuple

from node_agent.devices.wave_minima import Minima, count_minima
from node_agent.devices.wave_stalls import is_believed

FEWEST = 16
"""Samples needed to say anything at all."""
PERIODS = 3
"""Periods that the time looked at must have, at least; and the last ones whose minimum and maximum count."""
SHORTEST = 4
"""Samples in the shortest period that is searched."""
ALIKE, ALIKE_FEW = 0.5, 0.8
"""How well one period must resemble the next if there are many; and how much better if there is only one, because a few
periods of anything may look alike by chance."""
SURE = 0.85
"""An autocorrelation this high holds, whatever the minima say."""
AGREE = 0.3
"""Largest part by which the minima correct a lower one: if periods differ, its peak may lie a tenth away from their mean. If
they differ by more, one of the two is wrong, and the period is unknown."""
STEADY = 3.0
"""Largest ratio of the power of two thirds of the time. A wave that is less even must be SURE."""
_OCTAVE = 12
"""Grid points in the shortest period of an octave; in the longest, twice as many."""
_POINTS = 256
"""The last points of a grid, which are looked at."""
_SLOPE = 3
"""Points over which a slope is taken."""
_STILL = 1.0
"""Slopes that are on average no greater, in MiB, come from rounding; and rounded even growth has a period."""
_PART = 0.85
"""A period that resembles itself less than this, relative to a longer period, is only a part of that."""
_FARTHEST = 3.2
"""Multiple of a period up to which longer ones are searched."""
_GAP = 0.25
"""Part of the window: what came before a gap this long is forgotten."""
_MOST = 6000
"""Samples that are kept: the whole window, if at most a hundred come each second."""


class Cycle(NamedTuple):
    """The cycle found in a wave. Without a period, no cycle was seen, and the confidence is 0."""

    period_seconds: float | None
    minimum_mib: int
    maximum_mib: int
    confidence: float
    """From 0 to 1: how well one period resembles the next."""


class Wave:
    """The last samples of one number over time. Pure: the caller passes the times.

    A wave that is faster than its samples looks like a slow one if these come at regular times. Vary them.
    """

    def __init__(self, window_seconds: float = 60.0) -> None:
        self._window = window_seconds
        self._times: deque[float] = deque(maxlen=_MOST)
        self._values: deque[int] = deque(maxlen=_MOST)
        self._grid: list[float] = []
        self._step = self._next = 0.0

    def add(self, seconds: float, used_mib: int) -> None:
        """Add a sample. Times only rise; gaps are allowed."""
        times = self._times
        if times:
            since = seconds - times[-1]
            if since <= 0:
                return
            if since > self._window * _GAP:
                times.clear()
                self._values.clear()
        times.append(seconds)
        self._values.append(used_mib)

    def cycle(self) -> Cycle | None:
        """Return what the samples show; None while there are too few of them."""
        times, values = list(self._times), list(self._values)
        old = bisect_left(times, times[-1] - self._window) if times else 0
        times, values = times[old:], values[old:]
        if len(times) < FEWEST:
            return None
        lowest, highest = min(values), max(values)
        if highest - lowest > 1:  # else it was only rounded up and down
            resembling = self._find_period(times, values)
            if (found := _period(resembling, count_minima(times, values))) is not None:
                period, confidence = found
                if not is_believed(times, values, period):
                    return Cycle(None, lowest, highest, 0.0)
                last = values[bisect_left(times, times[-1] - PERIODS * period) :]
                if max(last) - min(last) > 1:  # else the wave has ended
                    return Cycle(period, min(last), max(last), confidence)
        return Cycle(None, lowest, highest, 0.0)

    def _find_period(self, times: Sequence[float], values: Sequence[int]) -> tuple[float, float] | None:
        """Return the shortest period after which the wave resembles itself, in seconds, and how well it does."""
        longest = (times[-1] - times[0]) / PERIODS
        found = (octave.find(longest) for octave in self._octaves(times, values, longest))
        return next((each for each in found if each is not None), None)

    def _octaves(self, times: Sequence[float], values: Sequence[int], longest: float) -> "Iterator[_Octave]":
        """Yield the octaves from the shortest periods to the longest."""
        self._extend_grid(times, values)
        step = self._step
        for finer in (step / 4, step / 2):
            yield _Octave(_interpolate(times, values, max(times[0], times[-1] - _POINTS * finer), finer), finer)
        # Cumulative sums of the points, from the last one back: a difference of two is the sum of the points between them.
        sums = list(accumulate(reversed(self._grid)))
        every = 1
        while step * every * _OCTAVE <= longest:
            taken = sums[: every * (_POINTS + 1) : every]
            yield _Octave(list(map(sub, taken, taken[1:])), step * every, every)
            every *= 2

    def _extend_grid(self, times: Sequence[float], values: Sequence[int]) -> None:
        """Extend the grid of the third octave by the new samples; rebuild it if the sampling rate has changed."""
        step = (times[-1] - times[0]) / (len(times) - 1) * SHORTEST * 4 / _OCTAVE
        if not (0.8 * step < self._step < 1.25 * step and times[0] <= self._next):
            self._grid, self._step, self._next = [], step, times[0]
        self._grid += (points := _interpolate(times, values, self._next, self._step))
        self._next += len(points) * self._step
        del self._grid[: -1 - int(self._window / self._step)]


def _period(resembling: tuple[float, float] | None, minima: Minima | None) -> tuple[float, float] | None:
    """Return the period and its confidence. The minima correct a doubtful autocorrelation, and must not contradict it."""
    if minima is None or resembling is None:
        return minima or resembling
    period, alike = resembling
    if alike >= SURE:
        return resembling
    return Minima(minima.period, max(alike, minima.evenness)) if abs(minima.period / period - 1) <= AGREE else None


class _Octave:
    """The slope of a wave on a grid, and how much it resembles itself when shifted by some points (a lag)."""

    def __init__(self, points: Sequence[float], step: float, unit: float = 1.0) -> None:
        """Each of `points` is `unit` times the wave there."""
        slope = list(map(sub, points[_SLOPE:], points))
        mean = sum(slope) / len(slope) if slope else 0.0
        self._step = step
        self._slope = [each - mean for each in slope]
        self._squares = [0.0, *accumulate(map(mul, self._slope, self._slope))]
        self._known: dict[int, float] = {}
        self._still = self._squares[-1] <= len(slope) * (_STILL * unit) ** 2

    def find(self, longest: float) -> tuple[float, float] | None:
        """Return the shortest true period of this octave, in seconds, and how well it resembles the next."""
        if self._still:
            return None
        for lag in range(_OCTAVE, min(2 * _OCTAVE, int(longest / self._step)) + 1):
            if lag % 2 and max(self._autocorrelation(lag - 1), self._autocorrelation(lag + 1)) < ALIKE / 2:
                continue  # a peak is wider than that
            enough = ALIKE + ALIKE_FEW * lag / len(self._slope)
            if not self._steady():
                enough = max(enough, SURE)
            if self._autocorrelation(lag) >= enough and (peak := self._peak(lag)) is not None and self._stands(*peak, enough):
                peak = self._find_shortest_part(*peak)
                return self._refine_lag(*peak) * self._step, peak[1]
        return None

    def _steady(self) -> bool:
        """Whether the wave is about as steep in each third of the time. If not, this may be the end of one phase of the program
        and the beginning of another, and their mixture has a period that neither has."""
        squares, third = self._squares, len(self._slope) // 3
        powers: list[float] = [squares[end] - squares[end - third] for end in (third, 2 * third, 3 * third)]
        return max(powers) <= STEADY * min(powers)

    def _autocorrelation(self, lag: int) -> float:
        """Return the autocorrelation at a lag, at most 1: that of equal shapes of equal size."""
        if (known := self._known.get(lag)) is not None:
            return known
        slope, squares, count = self._slope, self._squares, len(self._slope)
        found = 0.0
        if 0 < lag <= count // 2 and (power := squares[count - lag] + squares[count] - squares[lag]) > 0:
            found = 2 * sum(map(mul, slope, slope[lag:])) / power
        self._known[lag] = found
        return found

    def _peak(self, lag: int) -> tuple[float, float] | None:
        """Return the position between points and the height of the peak nearest to this one; None if this is no peak."""
        before, here, after = self._autocorrelation(lag - 1), self._autocorrelation(lag), self._autocorrelation(lag + 1)
        if here < before or here <= after:
            return None
        shift = 0.5 * (before - after) / (before - 2 * here + after)
        return lag + shift, min(1.0, here - 0.25 * (before - after) * shift)

    def _stands(self, lag: float, height: float, enough: float) -> bool:
        """Whether a peak is higher than its surroundings, and is not only a part of a longer period."""
        # Over a whole period, a wave resembles itself as much as it does not. If that sum is positive, there is a slower wave,
        # on which noise may have a peak.
        around = list(map(self._autocorrelation, range(round(lag / 2), round(1.5 * lag))))
        longer = map(self._autocorrelation, range(round(1.5 * lag), int(_FARTHEST * lag) + 1))
        return height - sum(around) / len(around) >= enough and height >= _PART * max(longer)

    def _find_shortest_part(self, lag: float, height: float) -> tuple[float, float]:
        """Return the shortest period of which this one is a multiple: noise may have hidden it on its own finer grid."""
        for parts in (5, 4, 3, 2):
            part = lag / parts
            if part > _SLOPE + 1:
                peaks = [found for near in (int(part), int(part) + 1) if (found := self._peak(near))]
                if peaks and (best := max(peaks, key=lambda found: found[1]))[1] >= _PART * height:
                    return best
        return lag, height

    def _refine_lag(self, lag: float, height: float) -> float:
        """Refine the period by its multiples, which are known with the same absolute error."""
        for count in (2, 3, 4):
            peak = self._peak(round(lag * count))
            if peak is None or peak[1] < _PART * height:
                break
            lag = peak[0] / count
        return lag


def _interpolate(times: Sequence[float], values: Sequence[int], first: float, step: float) -> list[float]:
    """Return the values at `first` and every `step` after it, interpolated linearly between samples."""
    points: list[float] = []
    if first > times[-1]:
        return points
    right = max(1, bisect_left(times, first))
    at, last, until = first, times[-1], times[right]
    begun, low = times[right - 1], values[right - 1]
    slope = (values[right] - low) / (until - begun)
    while at <= last:
        while at > until:
            right += 1
            begun, low, until = until, values[right - 1], times[right]
            slope = (values[right] - low) / (until - begun)
        points.append(low + (at - begun) * slope)
        at += step
    return points
