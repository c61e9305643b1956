"""Figures 3 to 7 of FitGpp's evaluation, with the paper's numbers where it prints them."""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from reproduction.fitgpp.plan import (
    CAPS,
    GRACES,
    POLICIES,
    SHARES,
    WEIGHTS,
    Point,
    fitgpp,
)
from reproduction.fitgpp.published import SLOWDOWNS
from reproduction.fitgpp.tables import Groups
from scheduler_service.sim.experiments.figures import COLOURS, lines, log_scale, sheet
from scheduler_service.sim.experiments.tables import CLASS_NAMES

QUANTILES = (50, 95, 99)
APART = 10.0
"""The ratio from which slowdowns are drawn on a logarithmic axis."""


def slowdowns(groups: Groups) -> Figure:
    """Figure 3: each policy's percentiles, with the paper's as dots."""
    figure, both = sheet(1, 2)
    width = 0.8 / len(POLICIES)
    for first, (kind, axes) in zip((0, 3), zip(CLASS_NAMES, both, strict=True), strict=True):
        for place, (policy, colour) in enumerate(zip(POLICIES, COLOURS, strict=False)):
            at = [i + (place - 1.5) * width for i in range(len(QUANTILES))]
            axes.bar(at, _percentiles(groups, Point(policy), kind), width, color=colour, label=policy.title)
            printed = SLOWDOWNS[policy.title].paper[first : first + 3]
            axes.plot(at, printed, "D", color="black", markersize=3, label="paper" if place == 3 else None)  # type: ignore[arg-type]
        axes.set_xticks(range(len(QUANTILES)), [f"{q}th" for q in QUANTILES])
        axes.set(xlabel="percentile of the jobs")
    _finish(both, "")
    return figure


def by_weight(groups: Groups) -> Figure:
    """Figure 4: percentiles by s. The axis is linear up to 0.5, because s may be 0."""
    figure, both = sheet(1, 2)
    _lines_of_percentiles(both, groups, WEIGHTS, [Point(fitgpp(s=s)) for s in WEIGHTS])
    for axes in both:
        axes.set_xscale("symlog", base=2, linthresh=0.5)
        axes.set_xticks(WEIGHTS, [f"{s:g}" for s in WEIGHTS])
    _finish(both, "s, the weight of the grace period")
    return figure


def by_cap(groups: Groups) -> Figure:
    """Figure 5: percentiles by P."""
    figure, both = sheet(1, 2)
    _lines_of_percentiles(both, groups, range(len(CAPS)), [Point(fitgpp(cap=cap)) for cap in CAPS])
    for axes in both:
        axes.set_xticks(range(len(CAPS)), ["none" if cap is None else str(cap) for cap in CAPS])
    _finish(both, "P, how often a job may be preempted")
    return figure


def by_share(groups: Groups) -> Figure:
    """Figure 6: the 95th percentile by the share of trials."""
    figure, both = sheet(1, 2)
    points = {policy.title: [Point(policy, trials=share) for share in SHARES] for policy in POLICIES}
    _lines_of_policies(both, groups, [100 * share for share in SHARES], points)
    _finish(both, "trials, in % of the jobs")
    return figure


def by_grace(groups: Groups) -> Figure:
    """Figure 7: the 95th percentile by the length of grace periods."""
    figure, both = sheet(1, 2)
    points = {policy.title: [Point(policy, grace=grace) for grace in GRACES] for policy in (*POLICIES, fitgpp(s=8.0))}
    _lines_of_policies(both, groups, GRACES, points)
    for axes in both:
        axes.set_xscale("log", base=2)
        axes.set_xticks(GRACES, [f"{grace:g}" for grace in GRACES])
        axes.xaxis.set_minor_locator(NullLocator())
    _finish(both, "grace periods, times the paper's")
    return figure


FIGURES: dict[str, tuple[str, str, Callable[[Groups], Figure]]] = {
    "figure-3": ("tables", "Slowdowns with synthetic workloads; the dots are the paper's", slowdowns),
    "figure-4": ("s", "Slowdowns under FitGpp with other values of s", by_weight),
    "figure-5": ("P", "Slowdowns under FitGpp with other values of P", by_cap),
    "figure-6": ("trials", "95th percentile of the slowdown with other proportions of trials", by_share),
    "figure-7": ("grace", "95th percentile of the slowdown with longer grace periods", by_grace),
}
"""Part of the evaluation, title and drawing function, by the figure's name."""


def _percentiles(groups: Groups, point: Point, kind: str) -> list[float]:
    return [_mean(groups, point, f"{kind}.slowdown.p{q}") for q in QUANTILES]


def _mean(groups: Groups, point: Point, name: str) -> float:
    estimate = groups[point].estimate(name)
    assert estimate is not None  # every workload has both classes
    return estimate.mean


def _lines_of_percentiles(both: Sequence[Axes], groups: Groups, x: Sequence[float], points: Sequence[Point]) -> None:
    for kind, axes in zip(CLASS_NAMES, both, strict=True):
        curves = [_percentiles(groups, point, kind) for point in points]
        lines(axes, [(f"{q}th percentile", x, [curve[i] for curve in curves]) for i, q in enumerate(QUANTILES)])


def _lines_of_policies(both: Sequence[Axes], groups: Groups, x: Sequence[float], points: Mapping[str, Sequence[Point]]) -> None:
    for kind, axes in zip(CLASS_NAMES, both, strict=True):
        name = f"{kind}.slowdown.p95"
        lines(axes, [(title, x, [_mean(groups, point, name) for point in theirs]) for title, theirs in points.items()])


def _finish(both: Sequence[Axes], label: str) -> None:
    """Label the axes in the way that all figures share. Slowdowns that are far apart get a logarithmic axis."""
    for kind, axes in zip(CLASS_NAMES, both, strict=True):
        axes.set(title=CLASS_NAMES[kind], ylabel="slowdown (1: no wait)")
        if label:
            axes.set_xlabel(label)
        least, most = axes.dataLim.y0, axes.dataLim.y1
        if most > APART * max(least, 1):
            log_scale(axes)
        axes.set_ylim(bottom=0.95)
        axes.grid(axis="y", alpha=0.3)
    both[0].legend(fontsize="small")
