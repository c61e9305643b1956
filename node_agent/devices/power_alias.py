"""Tells a true period of power samples from the alias of a shorter period. Pure.

The driver measures power about ten times a second, at even intervals. Mini-batches of 0.11 s then look exactly like
mini-batches of 1.1 s, however the agent samples these measurements. The energy counter is a sum over time, and a sum levels a
short wave. So a true period is as strong in the energy as in the power, and an alias is not.
"""

from cmath import exp, pi
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple


class Sample(NamedTuple):
    seconds: float
    watts: float
    joules: float
    """Energy since the driver was loaded."""


def share_in_energy(samples: Iterable[Sample], period_seconds: float) -> float:
    """Return the strength of the period in the energy, relative to that in the power: about 1 for a true period.

    Both strengths are the first Fourier coefficient at that period. 0 if no power was measured.
    """
    in_power = in_energy = 0j
    for earlier, later in pairwise(samples):
        turn = exp(-2j * pi * (earlier.seconds + later.seconds) / 2 / period_seconds)
        in_power += turn * (earlier.watts + later.watts) / 2 * (later.seconds - earlier.seconds)
        in_energy += turn * (later.joules - earlier.joules)
    return abs(in_energy) / abs(in_power) if in_power else 0.0
