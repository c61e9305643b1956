"""Which two units of a share group are packed next, and whether packing pays: Gandiva's rule (section 4.2.2), the lowest
utilization first, after what was learnt of jobs of the same kinds.

These are functions of plain numbers, so that they can be compared with the best possible pairs
(`python -m reproduction packing`).
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import combinations
from typing import Protocol, TypeVar


class Candidate(Protocol):
    """Jobs that take their turn together."""

    @property
    def utilisation_ppm(self) -> int:
        """The utilization of their devices while they execute alone."""
        ...

    @property
    def jobs(self) -> tuple[int, ...]: ...


C = TypeVar("C", bound=Candidate)
Learnt = Callable[[C, C], tuple[bool, int] | None]
"""Whether packing jobs of these kinds has paid, and the work that they did together, in millionths of what they do in turns.
None: it was not tried."""


ROOM_PPM = 1_500_000
"""The most that two jobs that were never packed may use of a device together, by what each uses alone, for one of them to move
to the other one. In Gandiva's table 1 packing gains 17 % for MI-LSTM, of which two use 152 %, and loses 16 % for LSTM, of which
two use 174 %."""


def may_be_worth_a_move(one: C, other: C, known: tuple[bool, int] | None) -> bool:
    """Whether a job should move so that these are packed. A pair that is packed where it is costs nothing to try; a move costs
    the job some seconds of its work, so of pairs that were never tried only those move that leave each other room."""
    return one.utilisation_ppm + other.utilisation_ppm <= ROOM_PPM if known is None else known[0]


def next_pair(units: Iterable[C], learnt: Learnt[C], most: int) -> tuple[C, C] | None:
    """The pair to try next, of at most so many jobs. Of pairs that have paid, the one that did the most work comes first; then
    come pairs that were never tried, the lowest utilization first. Pairs that have not paid are left out."""
    best: tuple[int, tuple[C, C]] | None = None
    for one, other in combinations(sorted(units, key=lambda unit: (unit.utilisation_ppm, unit.jobs)), 2):
        if len(one.jobs) + len(other.jobs) > most:
            continue
        known = learnt(one, other)
        paid, work = (True, 0) if known is None else known
        if paid and (best is None or work > best[0]):
            best = work, (one, other)
    return None if best is None else best[1]


def pays(work: Fraction, gain_percent: float) -> bool:
    """`work`: what units do together, by what they do in turns. It is that of the units alone: the more others take turns with
    them, the less it would be of the whole group, and a verdict is remembered for groups of any size."""
    return work * 100 > round(100 + gain_percent)
