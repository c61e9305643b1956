"""The tables of Gandiva's evaluation: simulated results next to the numbers that the paper prints."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from reproduction.gandiva import published
from reproduction.gandiva.plan import BASELINE, GANDIVA, SIX, TITLES
from reproduction.studies import Table, estimate_text, number
from scheduler_service.sim.experiments.estimates import Estimate, Group
from scheduler_service.sim.workloads.gandiva import MINUTE

Groups = Mapping[str, Group]
"""Results by policy."""


class Shares(NamedTuple):
    """The share of the time alone that each of the six jobs of Figure 9 got while there were six."""

    long: tuple[float, ...]
    short: tuple[float, ...]


def shares(folder: Path) -> Shares:
    """Compute the shares from the table of jobs: what a job lost follows from when it ended."""
    jobs = pq.read_table(folder / "jobs.parquet", columns=["submit_us", "work_us", "end_us"]).to_pylist()
    took = [(row["submit_us"], row["work_us"], row["end_us"] - row["submit_us"]) for row in jobs]
    short = [(work, lasted) for submit, work, lasted in took if submit]
    span = max(lasted for _, lasted in short)
    assert all(work == SIX.long_min * MINUTE for submit, work, _ in took if not submit)
    return Shares(
        tuple(1 - (lasted - work) / span for submit, work, lasted in took if not submit),
        tuple(work / lasted for work, lasted in short),
    )


def slicing(groups: Groups, found: Mapping[str, Shares]) -> Table:
    rows = [("paper", (number(100 * published.SLICING.share), "", f"< {100 * published.SLICING.lost:g}"))]
    for name, group in groups.items():
        of = found[name]
        every = (*of.long, *of.short)
        rate = group.estimate("sharing.rate.stable")
        spread = f"{number(100 * min(every))} to {number(100 * max(every))}"
        lost = "-" if rate is None else f"{100 * (1 - rate.mean):.2f}"
        rows.append((TITLES[name], (number(100 * sum(every) / len(every)), spread, lost)))
    return Table(
        "figure-9",
        "Figure 9: six jobs on four GPUs, in % of the time alone",
        ("mean share", "least and most", "lost of the rate in all"),
        tuple(rows),
    )


def experiment(groups: Groups, jobs: int) -> Table:
    rows = []
    for name, printed in published.EXPERIMENT.items():
        rows.append((f"paper, {TITLES[name]}", (number(printed.early_s), number(100 * printed.utilisation), "", "", "")))
    for name, group in groups.items():
        tell = _teller(group)
        rows.append(
            (
                TITLES[name],
                (
                    tell("sharing.early_s.mean", 1),
                    tell("sharing.utilisation.stable", 100),
                    tell("all.completion_s.mean", 1 / 60),
                    tell("sharing.packings", 1),
                    tell("sharing.switching_gpu_h", 1),
                ),
            )
        )
    columns = ("100 mini-batches, s", "utilisation, %", "completion, min", "packings", "GPU-hours of switching")
    return Table("experiment", f"Section 6.3: {jobs:,} jobs on 180 GPUs", columns, tuple(rows))


def trace(groups: Groups, name: str, title: str, printed: bool) -> Table:
    rows: list[tuple[str, tuple[str, ...]]] = []
    for policy, of in published.TRACE.items() if printed else ():
        told = number(of.completion_min), number(of.makespan_min), "", "", str(of.migrations or "")
        rows.append((f"paper, {TITLES[policy]}", told))
    for policy, group in groups.items():
        tell = _teller(group)
        rows.append(
            (
                TITLES[policy],
                (
                    tell("all.completion_s.mean", 1 / 60),
                    tell("makespan_h", 60),
                    tell("sharing.early_s.mean", 1 / 60),
                    tell("sharing.utilisation.arrivals", 100),
                    tell("sharing.migrations", 1),
                ),
            )
        )
    columns = ("completion, min", "makespan, min", "100 mini-batches, min", "utilisation, %", "migrations")
    return Table(name, title, columns, tuple(rows))


def claims(groups: Groups) -> Table | None:
    """The paper's statements about Gandiva against its baseline; None if one of the two was not simulated."""
    if not {BASELINE, GANDIVA} <= set(groups):
        return None
    changes: Sequence[tuple[str, str, float]] = (
        ("time to 100 mini-batches", "sharing.early_s.mean", -published.LESS_EARLY),
        ("utilisation", "sharing.utilisation.stable", published.MORE_UTILISATION),
    )
    rows = [
        (about, (f"{100 * printed:+.1f} %", _change(groups[GANDIVA].change(metric, groups[BASELINE]))))
        for about, metric, printed in changes
    ]
    return Table("claims", "Gandiva against the baseline", ("paper", "here"), tuple(rows))


def _change(estimate: Estimate | None) -> str:
    return "-" if estimate is None else f"{100 * estimate.mean:+.1f} %"


def _teller(group: Group) -> Callable[[str, float], str]:
    return lambda metric, scale: estimate_text(group.estimate(metric), scale)
