"""Figures 11 to 18 of AlloX's evaluation."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from reproduction.allox.plan import ALPHAS, ERRORS, OVERHEADS, SRPT, TITLES, Part, Point
from reproduction.allox.published import PRINTED
from reproduction.allox.tables import ALLOX, Measured, mean, point_with
from scheduler_service.sim.experiments.figures import COLOURS, lines, log_scale, sheet

Curves = Mapping[Point, Mapping[str, Sequence[float]]]
SMOOTH = 5
"""How many points of a curve are averaged into one in a figure over time."""
SHOWN = ("drff", "es", "drfs", "drfa", "allox-plus", "allox", SRPT)
"""The policies that are drawn, in the order of the paper's figures."""


def experiment(measured: Measured) -> Figure:
    """Figure 11, with the paper's experiment as dots."""
    figure, (axes,) = sheet()
    names = [name for name in ("drff", "drfs", "es", "drfa", "allox") if Point(name) in measured]
    for place, (name, colour) in enumerate(zip(names, COLOURS, strict=False)):
        found = mean(measured[Point(name)], "completion_s")
        axes.bar(place, found.mean, yerr=found.half, color=colour, capsize=4)
    printed = [PRINTED[name].experiment_s or np.nan for name in names]
    axes.plot(range(len(names)), printed, "D", color="black", markersize=4, label="the paper's experiment")
    axes.set_xticks(range(len(names)), [TITLES[name] for name in names])
    axes.set(ylabel="mean completion time, s")
    axes.legend(fontsize="small")
    axes.grid(axis="y", alpha=0.3)
    return figure


def simulation(measured: Measured) -> Figure:
    """Figure 13: all jobs, and the longest 1 %."""
    figure, both = sheet(1, 2)
    names = [name for name in SHOWN if Point(name) in measured]
    for axes, (measure, title) in zip(both, (("completion_s", "All jobs"), ("longest_s", "The longest 1 %")), strict=True):
        for place, (name, colour) in enumerate(zip(names, COLOURS, strict=False)):
            axes.bar(place, mean(measured[Point(name)], measure).mean, color=colour)
        axes.set_xticks(range(len(names)), [TITLES[name] for name in names], rotation=30, ha="right")
        axes.set(title=title, ylabel="mean completion time, s")
        log_scale(axes)
        axes.grid(axis="y", alpha=0.3)
    return figure


def over_time(curves: Curves) -> Figure:
    """Figure 14: arrivals, completion times and the disparity of users' progress."""
    figure, (arrivals, completion, disparity) = sheet(3, 1, 7.5)
    shown = {point: of for point in map(Point, SHOWN) if (of := curves.get(point)) is not None}
    seconds = next(iter(shown.values()))["seconds"]
    coarse = _smooth(seconds)
    arrivals.plot(coarse, [SMOOTH * value for value in _smooth(curves[ALLOX]["arrivals"])], color=COLOURS[0])
    arrivals.set(ylabel="arrivals", title=f"Jobs that come in each {len(seconds) and SMOOTH * (seconds[1] - seconds[0]):.0f} s")
    arrivals.grid(alpha=0.3)
    lines(completion, [(TITLES[point.policy], coarse, _smooth(of["completion_s"])) for point, of in shown.items()])
    log_scale(completion)
    completion.set(ylabel="mean completion, s", title="Completion time by arrival")
    lines(disparity, [(TITLES[point.policy], coarse, _smooth(of["disparity"])) for point, of in shown.items()])
    disparity.set(ylabel="standard deviation", title="Disparity of users' progress", xlabel="seconds")
    completion.legend(fontsize="x-small", ncols=4)
    return figure


def starvation(curves: Curves) -> Figure:
    """Figure 15: completed jobs of the user with the longest jobs."""
    figure, (axes,) = sheet()
    shown = [(TITLES[name], curves[Point(name)]) for name in SHOWN if Point(name) in curves]
    lines(axes, [(title, of["seconds"], of["long_user"]) for title, of in shown])
    axes.set(xlabel="seconds", ylabel="completed jobs", title="Of the user with the longest jobs")
    axes.legend(fontsize="small")
    return figure


def devices(measured: Measured) -> Figure:
    """Mean completion times in ascending order."""
    figure, (axes,) = sheet()
    times = sorted((mean(of, "completion_s").mean, point) for point, of in measured.items())
    titles = [f"AlloX, {point.alpha:g}" if point.policy == "allox" else TITLES[point.policy] for _, point in times]
    axes.bar(range(len(times)), [time for time, _ in times], color=COLOURS[0])
    axes.set_xticks(range(len(times)), titles, rotation=30, ha="right")
    axes.set(ylabel="mean completion time, s")
    log_scale(axes)
    axes.grid(axis="y", alpha=0.3)
    return figure


def by_alpha(measured: Measured) -> Figure:
    """Figure 16: completion time and disparity by alpha."""
    figure, both = sheet(1, 2)
    for axes, measure, title in zip(
        both, ("completion_s", "disparity"), ("mean completion time, s", "disparity of progress"), strict=True
    ):
        mine = [mean(measured[Point("allox", alpha=alpha)], measure).mean for alpha in ALPHAS]
        others = [(TITLES[name], ALPHAS, [mean(measured[Point(name)], measure).mean] * len(ALPHAS)) for name in ("es", SRPT)]
        lines(axes, [("AlloX", ALPHAS, mine), *others])
        axes.set(xlabel="alpha", ylabel=title)
        axes.set_ylim(bottom=0)
    both[0].legend(fontsize="small")
    return figure


def sensitivity_figure(measured: Measured, part: Part) -> Figure:
    """Figures 17 and 18: completion time by the error of the estimates, and by the cost of profiling."""
    figure, (axes,) = sheet()
    values = ERRORS if part == "errors" else OVERHEADS
    names = list(dict.fromkeys(point.policy for point in measured))
    drawn = [(name, [mean(measured[point_with(part, name, value)], "completion_s").mean for value in values]) for name in names]
    lines(axes, [(TITLES[name], [100 * value for value in values], times) for name, times in drawn])
    log_scale(axes)
    what = "deviation of the estimates" if part == "errors" else "time that profiling adds"
    axes.set(xlabel=f"{what}, %", ylabel="mean completion time, s")
    axes.legend(fontsize="small")
    return figure


def _smooth(values: Sequence[float]) -> list[float]:
    """Means of SMOOTH successive values each, NaNs left out."""
    parts = np.array(values, np.float64)[: len(values) // SMOOTH * SMOOTH].reshape(-1, SMOOTH)
    there = ~np.isnan(parts)
    found: list[float] = np.divide(
        np.where(there, parts, 0).sum(axis=1), there.sum(axis=1), out=np.full(len(parts), np.nan), where=there.any(axis=1)
    ).tolist()
    return found
