"""The numbers that the FitGpp paper prints (arXiv version, tables 1-4), to be shown next to Ebb's.

Its figures 3-7 are pictures without printed numbers, except for those of table 1. Table 5 and figure 8 are of a private trace.
"""

from typing import NamedTuple

FITTED = (
    "the deviations of all distributions: run times N(5, 5) minutes for trials and N(30, 10) for best-effort jobs, "
    "grace periods N(3, 1.1)",
    "the least run time, a minute",
    "what jobs ask for, rounded and cut to 1-32 CPUs, 1-256 GB and 0-8 GPUs: trials N(2, 4), N(30, 40) and N(0.8, 2.3), "
    "best-effort jobs N(1, 1), N(30, 30) and N(0.5, 2.4)",
    "what the load is: the mean over CPUs, memory and GPUs of what is asked by what there is",
    "nodes: the first one with room",
    "the order of trials: strict, so that one that waits holds up those behind it",
)
"""Details that the paper leaves out. All but the last were fitted to its figures for FIFO, the last to those for its trials."""

Row = tuple[float | None, ...]


class Printed(NamedTuple):
    """One policy's numbers. `plain`: from a plain simulator without Ebb's engine, for the same fitted workload, 8 sets."""

    paper: Row
    plain: Row | None


SLOWDOWNS: dict[str, Printed] = {
    "FIFO": Printed((9.38, 33.4, 48.5, 2.78, 4.89, 8.21), (9.40, 33.4, 48.3, 2.79, 4.94, 8.35)),
    "LRTP": Printed((1.00, 1.17, 1.58, 3.78, 7.25, 12.5), (1.00, 1.29, 1.82, 4.14, 8.23, 14.3)),
    "RAND": Printed((1.00, 1.17, 1.58, 3.87, 7.49, 12.9), (1.00, 1.30, 1.86, 4.29, 8.65, 15.0)),
    "FitGpp": Printed((1.00, 1.15, 1.54, 3.28, 6.06, 10.3), (1.00, 1.23, 1.65, 3.37, 6.29, 10.8)),
}
"""Table 1: the 50th, 95th and 99th percentiles of trials, and of best-effort jobs."""

HEADLINES = Printed((-96.6, 18.0, 23.9), (-96.3, 20.8, 27.0))
"""FitGpp against FIFO, in percent: the trials' 95th percentile, the best-effort jobs' median and 95th percentile."""

INTERVALS: dict[str, Printed] = {
    "LRTP": Printed((4.0, 4.0, 5.0, 7.0), (4.0, 4.0, 5.8, 6.9)),
    "RAND": Printed((4.0, 4.0, 6.0, 7.0), (4.0, 4.0, 5.9, 7.1)),
    "FitGpp": Printed((2.0, 2.0, 4.0, 6.0), (2.0, 2.4, 4.3, 6.5)),
}
"""Table 2, in minutes: the 50th, 75th, 95th and 99th percentiles."""

PREEMPTED: dict[str, Printed] = {
    "LRTP": Printed((9.6,), (7.8,)),
    "RAND": Printed((9.7,), (7.7,)),
    "FitGpp": Printed((0.63,), (0.82,)),
}
"""Table 3, in percent of all jobs."""

OFTEN: dict[str, Printed] = {
    "LRTP": Printed((6.3, 1.2, 0.34), (4.9, 1.1, 0.36)),
    "RAND": Printed((8.8, 0.48, 0.019), (6.9, 0.42, 0.016)),
    "FitGpp": Printed((0.52, 0.038, 0.0098), (0.60, 0.066, 0.019)),
}
"""Table 4, in percent of all jobs: preempted once, twice, and three times or more, without a bound."""
