"""The numbers that the Gandiva paper prints of its experiments (OSDI 2018), in the paper's units."""

from typing import NamedTuple


class Slicing(NamedTuple):
    """Figure 9: six jobs on four GPUs."""

    share: float = 4 / 6
    """Share of the GPU time that each job would have alone, while there are six."""
    lost: float = 0.02
    """The maximum loss of the rates of all jobs together."""


class Resize(NamedTuple):
    """Figure 11: the new number of GPUs of the elastic job after an event."""

    event: str
    at_min: float
    gpus: int


class Experiment(NamedTuple):
    """Section 6.3, figure 15."""

    early_s: float
    """Mean time until 100 mini-batches are done."""
    utilisation: float
    """Mean from minute 20 to minute 200."""


class Trace(NamedTuple):
    """Table 5."""

    completion_min: float
    makespan_min: float
    migrations: int = 0


class Found(NamedTuple):
    """Tables 3 and 4: minutes until the search finds its configuration."""

    position: int
    fifo: float
    gandiva: float


class Shared(NamedTuple):
    """Figure 18: minutes until a search has ended on the loaded cluster."""

    fifo: float
    faster: float

    @property
    def gandiva(self) -> float:
        return self.fifo / self.faster


SHARED = (Shared(1215.74, 13.6), Shared(1110.62, 12.9))
SLICING_ALONE = 7.0
"""Speedup by time slicing alone, "based on a micro-benchmark"."""
SEARCHES = {
    4: (Found(93, 691.5, 125.5), Found(187, 1373.0, 213.8), Found(280, 2067.2, 302.4), Found(365, 2726.4, 387.1)),
    16: (Found(93, 253.0, 74.4), Found(187, 492.7, 103.7), Found(280, 731.7, 135.4), Found(365, 970.0, 162.6)),
}
"""Rows of table 3, by GPUs."""
ACCURACIES = {"70 %": Found(15, 134.1, 134.1), "80 %": Found(58, 2849.1, 543.1), "90 %": Found(87, 5296.7, 935.4)}
SLICING = Slicing()
RESIZES = (
    Resize("the job with one GPU ends", 25, 2),
    Resize("the job with two GPUs ends", 45, 4),
    Resize("a job with two GPUs comes", 75, 2),
    Resize("a job with one GPU comes", 85, 1),
)
"""The paper does not print the time of the last event."""
EXPERIMENT = {"fifo": Experiment(2203, 0.501), "gandiva": Experiment(498, 0.628)}
TRACE = {"fifo": Trace(832, 13371), "gandiva": Trace(656, 11349, 470)}
"""Rows by the policies that represent the paper's. Its baseline packs bins and does not over-subscribe; that of the trace is
YARN's capacity scheduler."""
LESS_EARLY = 1 - 498 / 2203
MORE_UTILISATION = 62.8 / 50.1 - 1
"""The paper prints 26 %."""
LESS_COMPLETION, LESS_MAKESPAN = 1 - 656 / 832, 1 - 11349 / 13371
"""The paper prints 26.8 % and 17.8 %, which are the old time divided by the new one, less 1."""
