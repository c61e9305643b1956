"""Results as figures, PNG and SVG, each drawn by one function from the kept results of every simulation.

They are made as objects, without pyplot and its global state, so that any program can draw them.
With several seeds, bars are means with their 95 % interval, curves over time are of the first seed, and quantiles
are means over seeds. Colors suit color-blind people, and lines also differ by their dashes.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from scheduler_service.sim.experiments.estimates import Group
from scheduler_service.sim.experiments.metrics import QUANTILES
from scheduler_service.sim.experiments.tables import CLASS_NAMES

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#444444", "#7a5195")
DASHES = ("-", "--", "-.", ":")
WIDTH, HEIGHT = 7.2, 3.6
"""Size in inches: as wide as a page of documentation."""
COSTS = {
    "useful": "#009e73",
    "starting": "#56b4e9",
    "ending": "#0072b2",
    "grace": "#e69f00",
    "lost": "#d55e00",
    "hanging": "#cc79a7",
    "down": "#444444",
    "idle": "#dddddd",
}
"""Parts of the GPU-hours, and their colors."""


def sheet(rows: int = 1, columns: int = 1, height: float = HEIGHT) -> tuple[Figure, list[Axes]]:
    """An empty figure and its axes, row by row."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(rows, columns)).ravel())


def lines(axes: Axes, curves: Sequence[tuple[str, Sequence[float], Sequence[float]]]) -> None:
    """Draw named lines. The caller adds the legend."""
    for (label, x, y), colour, dashes in zip(curves, cycle(COLOURS), cycle(DASHES)):
        shown = f" {label}" if label.startswith("_") else label  # a legend leaves out labels that begin with _
        axes.plot(x, y, dashes, color=colour, label=shown, linewidth=1.5)
    axes.grid(alpha=0.3)


def log_scale(axes: Axes) -> None:
    """Set a logarithmic axis with numbers as people write them: 1, 2, 5, 10."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def slowdown(groups: Sequence[Group]) -> Figure | None:
    """The slowdown at each percentile, by class."""
    names = [name for name in CLASS_NAMES if any(_curve(group, f"{name}.slowdown") for group in groups)]
    if not names:
        return None
    figure, all_axes = sheet(1, len(names))
    for name, axes in zip(names, all_axes, strict=True):
        drawn = [(group, _mean_curve(group, f"{name}.slowdown")) for group in groups]
        lines(axes, [(group.label, QUANTILES, values) for group, values in drawn if values])
        axes.set(title=f"Slowdown of {CLASS_NAMES[name]}", xlabel="percentile of the jobs", ylabel="slowdown (1: no wait)")
        log_scale(axes)
    all_axes[0].legend(fontsize="small")
    return figure


def queue(groups: Sequence[Group]) -> Figure | None:
    """The number of waiting jobs over time, by class."""
    return _over_time(groups, {f"{name}.queue": f"Waiting {title}" for name, title in CLASS_NAMES.items()}, "jobs in the queue")


def utilisation(groups: Sequence[Group]) -> Figure | None:
    """The share of each resource in use over time."""
    titles = {"gpu": "GPUs in use", "cpu": "CPUs in use", "memory": "Memory in use"}
    figure = _over_time(groups, {f"utilisation.{name}": title for name, title in titles.items()}, "% of the cluster", 100)
    for axes in figure.axes if figure else ():
        axes.set_ylim(0, 105)
    return figure


def _over_time(groups: Sequence[Group], titles: Mapping[str, str], unit: str, scale: float = 1) -> Figure | None:
    """Draw those of the metrics, each with its title, that some group has."""
    shown = [metric for metric in titles if any(_curve(group, metric) for group in groups)]
    if not shown:
        return None
    figure, all_axes = sheet(len(shown), 1, height=0.8 + 2.2 * len(shown))
    for metric, axes in zip(shown, all_axes, strict=True):
        told = [(group.label, _curve(group, "hours"), _curve(group, metric)) for group in groups]
        lines(axes, [(label, hours, [scale * value for value in values]) for label, hours, values in told if values])
        axes.set(title=titles[metric], ylabel=unit)
    several = any(len(group.curves) > 1 for group in groups)
    all_axes[-1].set_xlabel(f"hours since the first submit{' (of the first seed)' if several else ''}")
    all_axes[0].legend(fontsize="small")
    return figure


def preemptions(groups: Sequence[Group]) -> Figure | None:
    """The share of jobs that were preempted, and how long they waited for their next run; and, if there are any, runs that were
    stopped because their cells were reclaimed."""
    panels: list[tuple[str, float, str, str]] = []
    if _any(groups, "preemptions"):
        panels.append(("preempted.share", 100, "Jobs preempted", "% of all jobs"))
        panels.append(("interval_s.p50", 1 / 60, "From preemption to next start", "minutes (median)"))
    if _any(groups, "reclaimed"):
        panels.append(("reclaimed.share", 100, "Jobs told to leave cells", "% of all jobs"))
        panels.append(("reclaimed", 1, "Runs told to leave cells", "runs"))
    if not panels:
        return None
    rows = len(panels) // 2
    figure, all_axes = sheet(rows, 2, HEIGHT * rows)
    for (metric, scale, title, unit), axes in zip(panels, all_axes, strict=True):
        _bars(axes, groups, metric, scale)
        axes.set(title=title, ylabel=unit)
    return figure


def _any(groups: Sequence[Group], metric: str) -> bool:
    return any((estimate := group.estimate(metric)) and estimate.mean for group in groups)


def cost(groups: Sequence[Group]) -> Figure | None:
    """GPU-hours by how they were spent."""
    having = [group for group in groups if group.estimate("gpu_h.capacity") is not None]
    if not having:
        return None
    figure, (axes,) = sheet(height=1.2 + 0.45 * len(having))
    left = np.zeros(len(having))
    shown = 0
    for part, colour in COSTS.items():
        hours = np.array([estimate.mean if (estimate := group.estimate(f"gpu_h.{part}")) else 0.0 for group in having])
        if not hours.any():
            continue
        axes.barh([group.label for group in having], hours, left=left, color=colour, label=part)
        left += hours
        shown += 1
    axes.invert_yaxis()
    axes.set(title="Where the GPU-hours went", xlabel="GPU-hours")
    figure.legend(loc="outside lower center", ncols=shown, fontsize="small")
    return figure


def fairness(groups: Sequence[Group]) -> Figure | None:
    """Jain's index of the mean slowdown, over users and over virtual clusters."""
    kinds = {"user": "users", "vc": "virtual clusters"}
    shown = [kind for kind in kinds if any(group.estimate(f"fairness.{kind}.slowdown") for group in groups)]
    if not shown:
        return None
    figure, all_axes = sheet(1, len(shown))
    for kind, axes in zip(shown, all_axes, strict=True):
        _bars(axes, groups, f"fairness.{kind}.slowdown", 1)
        axes.set(title=f"Fairness between {kinds[kind]}", ylabel="Jain's index of the slowdown", ylim=(0, 1.05))
    return figure


def _bars(axes: Axes, groups: Sequence[Group], metric: str, scale: float) -> None:
    for place, (group, colour) in enumerate(zip(groups, cycle(COLOURS))):
        if (estimate := group.estimate(metric)) is not None:
            half = None if estimate.half is None else scale * estimate.half
            axes.bar(place, scale * estimate.mean, yerr=half, color=colour, capsize=4)
    labels = [group.label for group in groups]
    tilted: dict[str, Any] = {"rotation": 30, "ha": "right"} if sum(map(len, labels)) > 24 else {}
    axes.set_xticks(range(len(labels)), labels, **tilted)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)


def _curve(group: Group, name: str) -> Sequence[float]:
    """A curve of the first seed; empty if it has none."""
    return next(iter(group.curves.values())).get(name, ())


def _mean_curve(group: Group, name: str) -> list[float]:
    found = [curves[name] for curves in group.curves.values() if name in curves]
    return [float(value) for value in np.mean(found, axis=0)] if found else []


FIGURES: dict[str, Callable[[Sequence[Group]], Figure | None]] = {
    function.__name__: function for function in (slowdown, queue, utilisation, preemptions, cost, fairness)
}


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Save a figure as NAME.png and NAME.svg; the same figure gives the same files, byte for byte."""
    folder.mkdir(parents=True, exist_ok=True)
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    FigureCanvasAgg(figure)
    figure.savefig(png, dpi=144, metadata={"Software": None})
    FigureCanvasSVG(figure)
    with rc_context({"svg.hashsalt": name}):  # else its ids are random
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return [png, svg]


def draw(groups: Sequence[Group], folder: Path) -> list[Path]:
    """Draw all figures that have something to show."""
    with rc_context({"text.parse_math": False}):  # a $ in a label is just a $
        drawn = [(name, function(groups)) for name, function in FIGURES.items()]
        return [path for name, figure in drawn if figure is not None for path in save(figure, folder, name)]
