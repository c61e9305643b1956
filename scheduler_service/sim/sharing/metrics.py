"""Metrics of a simulation with shared devices.

A device that several runs hold is one device. So utilization here is that of the devices, as the Gandiva paper counts it: the
part of its time in which a device computes, averaged over all devices, no matter which runs hold them.
"""

from collections.abc import Iterator

import numpy as np

from scheduler_service.core.model.values import SECOND
from scheduler_service.sim.experiments.history import History, Steps
from scheduler_service.sim.sharing.kinds import MILLION
from scheduler_service.sim.sharing.model import BILLION
from scheduler_service.sim.sharing.usage import Level, Usage

HOUR_US = 3600 * SECOND


def steps(level: Level) -> Steps:
    return Steps(np.array(level.times, np.int64), np.array(level.deltas, np.int64))


def numbers(usage: Usage, h: History, stable_s: tuple[float, float] | None = None) -> Iterator[tuple[str, float]]:
    """`stable_s`: begin and end of the time over which utilization is averaged separately."""
    devices = h.capacity.devices
    if not devices or not len(h.submit):
        return
    spans = {"": (h.begin, h.horizon), ".arrivals": (h.begin, int(h.submit.max()))}
    if stable_s is not None:
        spans[".stable"] = (round(stable_s[0] * SECOND), round(stable_s[1] * SECOND))
    utilised, working, lost = steps(usage.utilised), steps(usage.working), steps(usage.lost)
    for suffix, (begin, end) in spans.items():
        if len(utilised.at):  # else the use of a device by jobs is unknown
            yield f"sharing.utilisation{suffix}", utilised.mean(begin, end) / (devices * MILLION)
        yield f"sharing.rate{suffix}", working.mean(begin, end) / (devices * BILLION)
    whole = h.horizon - h.begin
    yield "sharing.switching_gpu_h", lost.mean(h.begin, h.horizon) * whole / (BILLION * HOUR_US)
    yield "sharing.packed.mean", steps(usage.packed).mean(h.begin, h.horizon)
    for name in ("groups", "switches", "parks", "packings", "unpackings"):
        yield f"sharing.{name}", getattr(usage, name)
    yield "sharing.migrations", int(h.migrated.sum())
    if usage.early_us:
        early = np.array(sorted(usage.early_us.values())) / SECOND
        yield "sharing.early_s.mean", float(early.mean())
        for q in (50, 95):
            yield f"sharing.early_s.p{q}", float(np.percentile(early, q))
        yield "sharing.early.jobs", len(early)


def curves(usage: Usage, h: History, points: int) -> dict[str, list[float]]:
    devices = h.capacity.devices
    if not devices or not len(h.submit):
        return {}
    edges = np.linspace(h.begin, max(h.horizon, h.begin + 1), points + 1)
    drawn = {
        "sharing.utilisation": steps(usage.utilised).means(edges) / (devices * MILLION),
        "sharing.rate": steps(usage.working).means(edges) / (devices * BILLION),
        "sharing.packed": steps(usage.packed).means(edges),
    }
    return {name: [round(float(value), 6) for value in values] for name, values in drawn.items()}
