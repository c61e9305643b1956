"""Figure 11 of the Gandiva paper: an elastic job grows into the idle GPUs of its server, and gives them back."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
from matplotlib.figure import Figure

from reproduction.gandiva import published
from reproduction.gandiva.plan import BASELINE, GANDIVA, TITLES
from reproduction.studies import Simulated, Table, number
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.experiments.figures import lines, sheet
from scheduler_service.sim.workloads.gandiva import MINUTE

LATE_MIN = 15
"""A change that comes more than this many minutes after an event is not taken as its consequence."""


class Span(NamedTuple):
    """A time, in minutes, in which a job has a constant number of GPUs."""

    begin: float
    end: float
    gpus: int


def spans(folder: Path) -> list[list[Span]]:
    """Spans of each job in order of submission, the elastic job first."""
    jobs = pq.read_table(folder / "jobs.parquet", columns=["job", "gpus"])
    gpus = dict(zip(jobs["job"].to_pylist(), jobs["gpus"].to_pylist(), strict=True))
    found: dict[int, list[Span]] = {job: [] for job in gpus}
    for row in pq.read_table(folder / "runs.parquet", columns=["job", "nodes", "began_us", "ended_us"]).to_pylist():
        # a run has a node for each task, and each task as many GPUs as the job was submitted with
        span = Span(row["began_us"] / MINUTE, row["ended_us"] / MINUTE, gpus[row["job"]] * len(row["nodes"]))
        found[row["job"]].append(span)
    return list(found.values())


def timelines(found: Simulated, wanted: Mapping[str, Sequence[Case]]) -> dict[str, list[list[Span]]]:
    """Spans of each job, by policy."""
    return {policy: spans(found[some[0]].folder) for policy, some in wanted.items()}


def table(of: Mapping[str, Sequence[Sequence[Span]]]) -> Table:
    """The GPUs of the elastic job after each event, and how soon it has them; and when the job ends."""
    grows, rows = of[GANDIVA][0], []
    for event, at, gpus in published.RESIZES:
        after = next((span for span in grows if at <= span.begin < at + LATE_MIN), None)
        here = ("-", "-") if after is None else (str(after.gpus), number(60 * (after.begin - at)))
        rows.append((f"minute {at:g}: {event}", (str(gpus), *here)))
    ends = ", ".join(f"{number(of[policy][0][-1].end)} min with {TITLES[policy]}" for policy in (BASELINE, GANDIVA))
    columns = ("paper: GPUs then", "GPUs then", "seconds later")
    return Table("figure-11", "Figure 11: the GPUs of an elastic job", columns, tuple(rows), f"The job ends after {ends}.")


def draw_gpus(of: Sequence[Sequence[Span]]) -> Figure:
    """Draw the GPUs of the elastic job, and of all other jobs together."""
    figure, (axes,) = sheet()
    elastic, others = of[0], [span for job in of[1:] for span in job]
    lines(axes, [("elastic job", *_steps(elastic)), ("other jobs", *_steps(others))])
    axes.set(xlabel="minutes", ylabel="GPUs", yticks=range(5))
    axes.legend(fontsize="small")
    return figure


def _steps(spans: Sequence[Span]) -> tuple[list[float], list[float]]:
    """Return the sum of GPUs over time as a line with steps."""
    changes = sorted([(span.begin, span.gpus) for span in spans] + [(span.end, -span.gpus) for span in spans])
    at, count = [0.0], [0.0]
    for minute, more in changes:
        at += [minute, minute]
        count += [count[-1], count[-1] + more]
    return at, count
