"""Figures 6 to 12 of HiveD's evaluation, drawn from curves over time, in days."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scheduler_service.sim.experiments.figures import lines, sheet

Curve = Sequence[float]
Curves = Mapping[str, Curve]
"""Curves by their labels."""


class Shared(NamedTuple):
    """The data of figure 7 for one size of cluster, by the way it is shared (delays: by tenant first)."""

    days: Curve
    delays: Mapping[str, Curves]
    """Delays in minutes."""
    used: Curves
    """The share of the GPUs in regular use."""
    fragmentation: Curves


def queueing(days: Curve, delays: Mapping[str, Curves]) -> Figure:
    """Figure 6: one tenant's queueing delay under each scheduler, in its private cluster, in a shared one, and by HiveD."""
    figure, all_axes = sheet(len(delays), 1, height=2 * len(delays))
    for (scheduler, curves), axes in zip(delays.items(), all_axes, strict=True):
        _over_days(axes, days, curves, scheduler, "delay (min)")
        axes.set_yscale("symlog", linthresh=100)  # from minutes to weeks
    return figure


def sharing(of: Shared) -> Figure:
    """Figure 7: delays of some tenants above utilization and fragmentation."""
    figure, all_axes = sheet(len(of.delays) + 2, 1, height=2 * (len(of.delays) + 2))
    for (tenant, curves), axes in zip(of.delays.items(), all_axes, strict=False):
        _over_days(axes, of.days, curves, tenant, "delay (min)")
    below = (("GPUs in regular use", of.used), ("Fragmentation", of.fragmentation))
    for (title, curves), axes in zip(below, all_axes[-2:], strict=True):
        _over_days(axes, of.days, _percent(curves), title, "%")
        axes.set_ylim(0, 105)
    return figure


def preemption(days: Curve, gpus: Curves, bound: Curves) -> Figure:
    """Figure 8: GPUs preempted in 12 hours, and the share of the cells that are bound."""
    figure, (above, below) = sheet(2, 1, height=5)
    _over_days(above, days, gpus, "GPUs preempted in 12 hours", "GPUs")
    _over_days(below, days, _percent(bound), "Cells bound", "%")
    return figure


def fragmentation(days: Curve, curves: Curves) -> Figure:
    """Figure 9: nodes that no 8-GPU regular job could have."""
    figure, (axes,) = sheet()
    _over_days(axes, days, _percent(curves), "Nodes that no 8-GPU regular job could have", "%")
    return figure


def draw_idle(days: Curve, shares: Mapping[str, Curves]) -> Figure:
    """Figure 10: cells that regular jobs leave unused for a minimum time."""
    figure, all_axes = sheet(1, len(shares))
    for (title, curves), axes in zip(shares.items(), all_axes, strict=True):
        _over_days(axes, days, _percent(curves), title, "% of the cells")
        axes.set_ylim(0, 105)
    return figure


def draw_exchanged(days: Curve, given: Mapping[str, Curves]) -> Figure:
    """Figure 11: GPU-hours that each tenant has given to others and had from them up to each time."""
    figure, all_axes = sheet(1, len(given))
    for (tenant, curves), axes in zip(given.items(), all_axes, strict=True):
        _over_days(axes, days, curves, tenant, "GPU-hours")
        axes.legend().remove()  # all have the same legend, and it would cover the lines
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize="small")
    return figure


def usage(days: Curve, used: Curves) -> Figure:
    """Figure 12: GPUs in use relative to those that a tenant owns."""
    figure, all_axes = sheet(len(used), 1, height=1.5 * len(used))
    for (tenant, curve), axes in zip(used.items(), all_axes, strict=True):
        _over_days(axes, days, {tenant: curve}, "", "used / owned")
        axes.axhline(1, color="black", linewidth=0.8)
    return figure


def _over_days(axes: Axes, days: Curve, curves: Curves, title: str, unit: str) -> None:
    lines(axes, [(label, days, values) for label, values in curves.items()])
    axes.set(title=title, ylabel=unit, xlabel="day")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")


def _percent(curves: Curves) -> Curves:
    return {label: [100 * value for value in values] for label, values in curves.items()}
