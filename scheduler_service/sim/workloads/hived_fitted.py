"""Substitutes for data that the HiveD paper does not give of its trace: when jobs come, and how long they run.

All of it is fitted. Shapes are those of Microsoft's Philly trace (of the same company, some years earlier): submits of one
virtual cluster that are less than a minute apart and ask for as many GPUs are taken as a batch. The tenants' demands, and how
uneven they are, are fitted to the paper's numbers (tables 4 and 5): `hived/fit.py` repeats the fit.
"""

from bisect import bisect_right
from math import exp, log

SHARES = (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)
"""Shares of the quantiles that follow."""

DURATIONS_S: dict[int, tuple[float, ...]] = {
    1: (5, 30, 52, 62, 122, 1_120, 2_720, 8_510, 19_100, 135_000, 1_210_000),
    2: (5, 5, 9, 11, 16, 21, 76, 72_700, 197_000, 523_000, 1_210_000),
    4: (5, 36, 75, 138, 773, 17_400, 89_400, 184_000, 274_000, 907_000, 1_210_000),
    8: (5, 33, 125, 216, 1_880, 23_700, 173_000, 352_000, 526_000, 1_060_000, 1_210_000),
    16: (4, 4, 35, 69, 610, 28_500, 110_000, 252_000, 446_000, 941_000, 1_210_000),
}
"""Durations in seconds of Philly's jobs of 1, 2, 4, 8 and of 16 GPUs or more, cut off at two weeks."""

BATCHES: dict[int, tuple[float, ...]] = {
    1: (1, 1, 1, 1, 1, 1, 1, 2, 4, 81, 1_063),
    **dict.fromkeys((2, 4, 8, 16), (1, 1, 1, 1, 1, 1, 1, 2, 3, 7, 35)),
}
"""The number of jobs in a batch: Philly's, with those of several GPUs combined."""

GAP_S = 9.0
"""Mean seconds between the jobs of a batch."""
LIKENESS = 0.88
"""How similar the durations of a batch are: the correlation of their normal scores."""

HOURS = (
    *(1.12, 0.96, 1.03, 1.05, 0.96, 1.09, 1.19, 1.19, 1.21, 1.04, 0.92, 0.88),
    *(0.82, 0.83, 0.80, 0.84, 0.89, 1.02, 1.05, 0.99, 0.95, 1.06, 1.06, 1.06),
)
DAYS = (1.02, 1.17, 1.11, 1.11, 1.05, 0.82, 0.72)
"""The relative number of Philly's batches by hour of the day, and by day of the week (from Monday)."""
NEXT_DAY = 0.3
"""The correlation of a virtual cluster's busy days with the days after them."""

WIDE: dict[int, int] = {2: 199, 3: 7, 4: 67, 8: 6, 16: 3}
"""How many of the jobs of 16 GPUs or more ask for each number of nodes."""

WAVE_DAYS = 20.0
"""Days from peak to peak: figure 3, where one tenant's peak at day 5 is another one's valley, and the opposite at day 15."""
WAVE = 0.6
"""The wave's share of the variation of a tenant's days; the rest is chance. Assumed: the paper shows two tenants."""

BUSY = (20, 105)
"""The days of the Philly trace in which all of its large virtual clusters were used."""


def quantile(values: tuple[float, ...], share: float) -> float:
    """Interpolate between two of the values by their logarithms."""
    above = min(bisect_right(SHARES, share), len(SHARES) - 1)
    low, high = SHARES[above - 1], SHARES[above]
    return exp(log(values[above - 1]) + (share - low) / (high - low) * log(values[above] / values[above - 1]))
