"""Tables of FitGpp's evaluation: the paper's numbers, those of a plain simulator of the same workload, and Ebb's own."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from reproduction.fitgpp.plan import FIFO, FITGPP, POLICIES, SERVED, TRACES, Point, without_cap
from reproduction.fitgpp.published import HEADLINES, INTERVALS, OFTEN, PREEMPTED, SLOWDOWNS, Printed, Row
from reproduction.studies import Table, estimate_text, number
from scheduler_service.sim.experiments.estimates import Group

Groups = Mapping[Point, Group]
"""The results of each point."""
Cells = Callable[[Group], tuple[str, ...]]

SLOWDOWN_COLUMNS = tuple(f"{kind} {q}th" for kind in ("trials", "best-effort") for q in (50, 95, 99))
METRICS = {f"{kind}.slowdown.p{q}": 1.0 for kind in ("trial", "best_effort") for q in (50, 95, 99)}
INTERVAL_METRICS = {f"interval_s.p{q}": 1 / 60 for q in (50, 75, 95, 99)}
OFTEN_METRICS = {f"preempted.{name}": 100.0 for name in ("once", "twice", "more")}


def tables(groups: Groups) -> Iterator[Table]:
    """Tables 1 to 4."""
    yield Table(
        "table-1",
        "Table 1: percentiles of slowdown",
        SLOWDOWN_COLUMNS,
        tuple(_rows(SLOWDOWNS, [*map(Point, POLICIES), Point(SERVED)], groups, _cells_of(METRICS))),
    )
    changes = ("trials 95th", "best-effort 50th", "best-effort 95th")
    yield Table("headlines", "FitGpp against FIFO, in %", changes, tuple(_headlines(groups)))
    preempting = [*map(Point, POLICIES[1:]), Point(SERVED)]
    yield Table(
        "table-2",
        "Table 2: from a preemption to the next start, in minutes",
        ("50th", "75th", "95th", "99th"),
        tuple(_rows(INTERVALS, preempting, groups, _cells_of(INTERVAL_METRICS))),
    )
    yield Table(
        "table-3",
        "Table 3: jobs preempted, in % of all jobs (P = 1)",
        ("preempted",),
        tuple(_rows(PREEMPTED, preempting, groups, _cells_of({"preempted.share": 100}))),
    )
    yield Table(
        "table-4",
        "Table 4: jobs preempted so often, in % of all jobs (P without bound)",
        ("once", "twice", "3 times or more"),
        tuple(_rows(OFTEN, [Point(without_cap(policy)) for policy in POLICIES[1:]], groups, _cells_of(OFTEN_METRICS))),
    )


def trace_tables(groups: Groups) -> Iterator[Table]:
    """Tables of the same policies on traces, which the paper does not have."""
    metrics = {**METRICS, "preempted.share": 100, "interval_s.p50": 1 / 60, "interval_s.p95": 1 / 60}
    columns = (*SLOWDOWN_COLUMNS, "preempted %", "interval 50th", "interval 95th")
    for trace, title in (("philly", "Philly"), ("openb", "openb's demands")):
        rows = tuple((p.policy.title, _cells_of(metrics)(group)) for p, group in groups.items() if p.trace == trace)
        yield Table(f"trace-{trace}", f"{title}: percentiles of slowdown, and preemptions", columns, rows, TRACES[trace])


def _cells_of(metrics: Mapping[str, float]) -> Cells:
    """Return a function that formats a group's figures, each times its factor."""
    return lambda group: tuple(estimate_text(group.estimate(name), scale) for name, scale in metrics.items())


def _rows(
    printed: Mapping[str, Printed], points: Sequence[Point], groups: Groups, cells: Cells
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for point in points:
        title = point.policy.title
        if (theirs := printed.get(title)) is not None:
            yield from _paper_rows(title, theirs)
        yield f"{title}{': Ebb' if theirs else ''}", cells(groups[point])


def _paper_rows(title: str, printed: Printed) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield f"{title}: paper", _printed_cells(printed.paper)
    if printed.plain is not None:
        yield f"{title}: plain simulator", _printed_cells(printed.plain)


def _printed_cells(row: Row) -> tuple[str, ...]:
    return tuple(map(number, row))


def _headlines(groups: Groups) -> Iterator[tuple[str, tuple[str, ...]]]:
    names = ("trial.slowdown.p95", "best_effort.slowdown.p50", "best_effort.slowdown.p95")
    yield from _paper_rows("FitGpp", HEADLINES)
    for policy in (FITGPP, SERVED):
        changes = (groups[Point(policy)].change(name, groups[Point(FIFO)]) for name in names)
        yield f"{policy.title}{': Ebb' if policy is FITGPP else ''}", tuple(estimate_text(change, 100) for change in changes)
