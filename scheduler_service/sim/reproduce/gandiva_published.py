"""What the Gandiva paper prints of its experiments (OSDI 2018). Times are in the paper's units."""

from typing import NamedTuple


class Slicing(NamedTuple):
    """Figure 9: six jobs on four GPUs."""

    share: float = 4 / 6
    """Of each job, of the time alone, while there are six."""
    lost: float = 0.02
    """Of the rates of all jobs together, at most."""


class Experiment(NamedTuple):
    """Section 6.3, figure 15."""

    early_s: float
    """Until 100 mini-batches are done, on average."""
    utilisation: float
    """From minute 20 to minute 200."""


class Trace(NamedTuple):
    """Table 5."""

    completion_min: float
    makespan_min: float
    migrations: int = 0


SLICING = Slicing()
EXPERIMENT = {"fifo": Experiment(2203, 0.501), "gandiva": Experiment(498, 0.628)}
TRACE = {"fifo": Trace(832, 13371), "gandiva": Trace(656, 11349, 470)}
"""By the policies that stand for the paper's. Its baseline packs bins and does not over-subscribe; that of the trace is YARN's
capacity scheduler."""
LESS_EARLY = 1 - 498 / 2203
MORE_UTILISATION = 62.8 / 50.1 - 1
"""The paper prints 26 %."""
LESS_COMPLETION, LESS_MAKESPAN = 1 - 656 / 832, 1 - 11349 / 13371
"""The paper prints 26.8 % and 17.8 %, which are the old time divided by the new one, less 1."""
