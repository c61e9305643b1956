"""Finds times at which a wave was not sampled, and decides whether its period can still be believed. Pure.

On a busy machine, samples sometimes come late. Nothing is known of the wave across such a stall, and its edges there are
lost. A period may then resemble the next less than two periods resemble the next two, and the wave looks twice as slow. So,
if much is missing, a period is believed only if it is also the distance of two rises between which nothing is missing.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

_LONG, _LATE = 1 / 16, 2.0
"""A stall is a time without samples longer than this part of a period, and than this many mean sample distances."""
_MUCH = 0.02
"""Missing part of the time from which on much is missing."""
_RISE = 0.45
"""Part of the range, around its middle, through which the wave must rise. Smaller rises are noise, or parts of a mini-batch."""
_TRIM = 0.02
"""Part of the values at either end that the range leaves out."""
_FEWEST = 5
"""Fewest distances of rises with nothing missing that say something."""
_ALIKE = 0.05
"""Part by which the mean distance of two rises may differ from the period."""


def is_believed(times: Sequence[float], values: Sequence[float], period: float) -> bool:
    """Whether little of the time was not sampled, or else the distances of rises confirm the period, in seconds."""
    longest = max(period * _LONG, _LATE * (times[-1] - times[0]) / (len(times) - 1))
    stalls = [(begin, end) for begin, end in pairwise(times) if end - begin > longest]
    if sum(end - begin for begin, end in stalls) <= _MUCH * (times[-1] - times[0]):
        return True
    whole = _whole_distances(_rises(times, values), stalls)
    return len(whole) >= _FEWEST and abs(sum(whole) / len(whole) / period - 1) <= _ALIKE


def _whole_distances(rises: Sequence[float], stalls: Sequence[tuple[float, float]]) -> list[float]:
    """Return the distances of two rises with no stall between them, nor at either."""
    ends = [end for _, end in stalls]

    def is_whole(earlier: float, later: float) -> bool:
        at = bisect_left(ends, earlier)
        return at == len(stalls) or stalls[at][0] > later

    return [later - earlier for earlier, later in pairwise(rises) if is_whole(earlier, later)]


def _rises(times: Sequence[float], values: Sequence[float]) -> list[float]:
    """Return when the wave rose through the middle of its range."""
    ordered = sorted(values)
    cut = int(len(ordered) * _TRIM)
    lowest, highest = ordered[cut], ordered[-1 - cut]
    low = lowest + (1 - _RISE) / 2 * (highest - lowest)
    high = highest - (1 - _RISE) / 2 * (highest - lowest)
    found: list[float] = []
    below = False
    for time, value in zip(times, values, strict=True):
        if value <= low:
            below = True
        elif below and value >= high:
            below = False
            found.append(time)
    return found
