"""Usage that decays with a half-life, in integers: every machine computes the same, and a replay gives the same order.

Usage is counted in units of a thousandth of a device during a microsecond. It decays as in Slurm (PriorityDecayHalfLife), but
continuously: over a half-life the usage falls to a half, and what accrues meanwhile decays from the moment at which it accrues.
So the usage at a point in time does not depend on how often it was computed on the way, except for the rounding of a unit each.
"""

from functools import lru_cache
from math import isqrt

from scheduler_service.core.model.values import Micros

Usage = int
"""In thousandths of a device x microseconds."""
Level = int
"""The logarithm of a usage to base 2, which is made comparable over time; in units of 2**-32."""

DEVICE = 1000
"""The rate, in units a microsecond, at which one device is used."""
DEVICE_SECOND: Usage = DEVICE * 1_000_000
NOTHING: Level = -(1 << 62)
"""The level of no usage: below that of any usage."""

_BITS = 96
ONE = 1 << _BITS
"""The factor 1. Factors are fixed-point numbers with 96 binary places."""
_PLACES = 64
"""Binary places of a fraction of a half-life."""
_LEVEL_BITS = 32
_INVERSE_OF_LN_2 = 1_442_695_040_888_963_407_359_924_681_002
"""1 / ln 2, in units of 10**-30."""


def _roots() -> tuple[int, ...]:
    """The factors 2**-(1/2), 2**-(1/4), 2**-(1/8), ..."""
    roots, last = [], ONE >> 1
    for _ in range(_PLACES):
        last = isqrt(last << _BITS)
        roots.append(last)
    return tuple(roots)


_ROOTS = _roots()


def decay(elapsed: Micros, half_life: Micros) -> int:
    """The factor by which usage falls in this time: 2**-(elapsed / half_life).

    >>> decay(0, 60) == ONE, decay(60, 60) == ONE // 2, decay(180, 60) == ONE // 8
    (True, True, True)
    """
    whole, rest = divmod(elapsed, half_life)
    if whole > _BITS:
        return 0
    factor, fraction = ONE, (rest << _PLACES) // half_life
    for place, root in enumerate(_ROOTS, 1):
        if fraction >> (_PLACES - place) & 1:
            factor = factor * root >> _BITS
    return factor >> whole


def usage_after(usage: Usage, rate: int, elapsed: Micros, half_life: Micros) -> Usage:
    """The usage after this time, in which more accrued at a constant rate (units a microsecond): the solution of
    u' = rate - u * ln 2 / half_life."""
    if not elapsed:
        return usage
    kept = decay(elapsed, half_life)
    steady = rate * half_life * _INVERSE_OF_LN_2 // 10**30
    return (usage * kept + steady * (ONE - kept)) >> _BITS


@lru_cache(maxsize=4096)
def logarithm(number: int) -> int:
    """To base 2, in units of 2**-32, rounded down. Of a number that is more than 0.

    >>> logarithm(8) >> 32, logarithm(3 << 40) - logarithm(3) == 40 << 32
    (3, True)
    """
    whole = number.bit_length() - 1
    mantissa, fraction = (number << 63) >> whole, 0
    for _ in range(_LEVEL_BITS):
        mantissa = mantissa * mantissa >> 63
        above = mantissa >> 64
        fraction = fraction << 1 | above
        mantissa >>= above
    return whole << _LEVEL_BITS | fraction


def level(usage: Usage, at: Micros, half_life: Micros) -> Level:
    """The level of a usage at a point in time. It does not change while nothing accrues: in a half-life the logarithm falls by
    1, and the time in half-lives rises by 1. So levels of different times can be compared, and only what accrues changes an
    order."""
    return logarithm(usage) + (at << _LEVEL_BITS) // half_life if usage else NOTHING


def time_until(usage: Usage, least: Usage, half_life: Micros) -> Micros:
    """How long it takes, about, until the usage has decayed to this little, if nothing accrues; 0 if it has."""
    return max(0, (logarithm(max(usage, 1)) - logarithm(least)) * half_life >> _LEVEL_BITS)
