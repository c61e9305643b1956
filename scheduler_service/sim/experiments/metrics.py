"""Metrics of a simulation, computed from its tables of jobs and runs, and the times in which nodes were away.

A percentile is numpy's "linear" one: the value at index q (n - 1) of the n sorted values, interpolated between two of them.
A metric that has no meaning, such as the slowdown of trials if there are no trials, is absent.
"""

from collections.abc import Iterator

import numpy as np

from scheduler_service.sim.experiments.history import Floats, History, Ints, Phase

HOUR_US = 3_600_000_000
POINTS = 240
"""The number of equal parts into which a curve over time is cut; each point is the mean of its part."""
QUANTILES = (*(float(q) for q in range(100)), 99.5, 99.9, 100.0)
CLASSES = ("trial", "best_effort")


def numbers(history: History) -> dict[str, float]:
    """The summary: values by names such as trial.slowdown.p95."""
    return dict(_numbers(history))


def _numbers(h: History) -> Iterator[tuple[str, float]]:
    yield "jobs", len(h.submit)
    yield "unfinished", int((~h.over).sum())
    if not len(h.submit):
        return
    yield "makespan_h", (h.horizon - h.begin) / HOUR_US
    for name, of in (("all", np.ones(len(h.submit), bool)), *((name, h.of_class(name)) for name in CLASSES)):
        yield f"{name}.jobs", int(of.sum())
        over = of & h.over
        if over.any():
            yield from _spread(f"{name}.slowdown", h.slowdown[over], (50, 75, 90, 95, 99))
            yield from _spread(f"{name}.wait_s", h.wait[over] / 1e6, (50, 95, 99))
            yield from _spread(f"{name}.completion_s", (h.end - h.submit)[over] / 1e6, (50, 95, 99))
            yield f"{name}.queue.mean", h.queue(of).mean(h.begin, h.horizon)
    yield from _queue(h)
    yield from _preemptions(h)
    yield from _reclaims(h)
    yield from _utilisation(h)
    yield from _cost(h)
    yield "lost.share", _lost_share(h)
    yield from _fairness(h)


def _spread(name: str, values: Floats, quantiles: tuple[int, ...]) -> Iterator[tuple[str, float]]:
    yield f"{name}.mean", float(values.mean())
    yield from zip((f"{name}.p{q}" for q in quantiles), map(float, np.percentile(values, quantiles)), strict=True)
    yield f"{name}.max", float(values.max())


def _queue(h: History) -> Iterator[tuple[str, float]]:
    queue = h.queue(np.ones(len(h.submit), bool))
    yield "queue.mean", queue.mean(h.begin, h.horizon)
    yield "queue.p95", queue.quantile(0.95)
    yield "queue.max", queue.largest()


def _preemptions(h: History) -> Iterator[tuple[str, float]]:
    count = len(h.preemptions)
    yield "preemptions", int(h.preemptions.sum())
    for name, which in (
        ("share", h.preemptions > 0),
        ("once", h.preemptions == 1),
        ("twice", h.preemptions == 2),
        ("more", h.preemptions > 2),
    ):
        yield f"preempted.{name}", int(which.sum()) / count
    intervals = h.intervals() / 1e6
    if len(intervals):
        yield from _spread("interval_s", intervals, (50, 75, 95, 99))


def _reclaims(h: History) -> Iterator[tuple[str, float]]:
    """Runs that were stopped to return their cells to their owners, not for a trial."""
    yield "reclaimed", int(h.reclaimed.sum())
    yield "reclaimed.share", len(np.unique(h.owner[h.reclaimed])) / len(h.submit)


def _utilisation(h: History) -> Iterator[tuple[str, float]]:
    """Utilization over the whole time, and while jobs arrived: at the end of a trace a cluster runs empty under any policy.
    Nodes that are away do not count."""
    last = float(h.submit.max())
    for resource, name in enumerate(("cpu", "memory", "gpu")):
        if h.capacity[resource]:
            used, up = h.amount_used(resource), h.amount_up(resource)
            for suffix, until in (("", h.horizon), (".arrivals", last)):
                if whole := up.mean(h.begin, until):
                    yield f"utilisation.{name}{suffix}", used.mean(h.begin, until) / whole


def _lost_share(h: History) -> float:
    """The share of the work of all jobs that was lost: done after the last checkpoint of a run that was killed.

    Work is weighted by GPUs; if jobs have none, or ran in configurations with other numbers of them, it counts by time alone.
    """
    by_gpus = bool(h.capacity.devices) and not h.configured and h.demand[2].any()
    weights = h.demand[2].astype(np.float64) if by_gpus else np.ones(len(h.submit))
    lost = _product(weights, h.lost)
    whole = _product(weights, h.done) + lost
    return lost / whole if whole else 0.0


def _cost(h: History) -> Iterator[tuple[str, float]]:
    """GPU-hours by how they were spent: each hour of the capacity is in one of the other parts.

    A run starts, works and exits, with a grace period if it was told to stop. What it holds between the end of its work and the
    scheduler's learning of it is `ending`. A gang with a dead task hangs until it has exited. Its share of the dead node is
    held by no run: the node is down, or back and has forgotten it. The same is true of a task that exited before the others. If
    jobs ran in several configurations, hours of work are not hours of GPUs, and these metrics are absent.
    """
    if not h.capacity.devices or h.configured:
        return
    gpus = h.demand[2].astype(np.float64)
    theirs = gpus[h.owner]
    broken = np.where(h.is_broken, np.minimum(h.broken, h.left), h.left)
    stopped = np.where(h.has_signal & h.has_begun, np.minimum(h.signalled, broken), broken)
    works = np.where(h.has_worked, np.minimum(h.works, stopped), stopped)
    worked = stopped - works
    at_work = np.bincount(h.owner[h.has_left], worked[h.has_left], len(gpus))
    capacity = h.capacity.devices * float(h.horizon - h.begin)
    spent = {"useful": _product(gpus, h.done), "ending": _product(gpus, at_work - h.done - h.lost)}
    for_ever = ~h.has_left  # they hang to the end of the simulation, and no run continues from there
    spent["lost"] = _product(gpus, h.lost) + _product(theirs[for_ever], worked[for_ever])
    whole = {Phase.STARTING: works - h.placed, Phase.GRACE: broken - stopped, Phase.HANGING: h.left - broken}
    spent["ending"] -= _area(h.torn[Phase.PARKED])  # its work resumed later; meanwhile others could have its GPUs
    for phase, lasted in whole.items():
        spent[phase] = _product(theirs, lasted) - _area(h.torn[phase])
    spent["down"] = _area(h.down)
    spent["idle"] = capacity - sum(spent.values())
    for name, amount in {"capacity": capacity, **spent}.items():
        yield f"gpu_h.{name}", amount / HOUR_US


def _product(a: Floats, b: Ints) -> float:
    """The scalar product. BLAS would start threads for it, which take longer, and add in another order on each machine."""
    return float((a * b).sum())


def _area(spans: Ints) -> float:
    """The product of GPUs and microseconds."""
    begins, ends, _cpu, _memory, gpus = spans
    return _product(gpus.astype(np.float64), ends - begins)


def _fairness(h: History) -> Iterator[tuple[str, float]]:
    """Jain's index over users and over VCs: 1 if all are alike, 1/n if one of n has everything.

    The index of their mean slowdown, and of their share: their jobs' GPU time, relative to that without waiting.
    """
    gpus = h.demand[2].astype(np.float64)
    got, wanted = gpus * h.done, gpus * (h.end - h.submit)
    for kind, (codes, names) in (("user", h.users), ("vc", h.vcs)):
        jobs = np.bincount(codes[h.over], minlength=len(names))
        slowdown = np.bincount(codes[h.over], h.slowdown[h.over], len(names))[jobs > 0] / jobs[jobs > 0]
        theirs = np.bincount(codes, wanted, len(names))
        share = np.bincount(codes, got, len(names))[theirs > 0] / theirs[theirs > 0]
        if len(slowdown) > 1:
            yield f"fairness.{kind}.slowdown", jain(slowdown)
            yield f"fairness.{kind}.slowdown.worst", float(slowdown.max())
        if len(share) > 1 and share.any() and not h.configured:
            yield f"fairness.{kind}.share", jain(share)
        if kind == "vc" and any(names) and len(names) <= 64:
            for name, mean in zip(np.array(names)[jobs > 0], slowdown, strict=True):
                yield f"vc.{name}.slowdown.mean", float(mean)
            if h.configured:
                continue
            for name, part in zip(np.array(names)[theirs > 0], share, strict=True):
                yield f"vc.{name}.share", float(part)


def jain(values: Floats) -> float:
    """Jain's fairness index of values that are not all 0."""
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))


def curves(h: History) -> dict[str, list[float]]:
    """The data of the figures, small enough to be kept for every simulation."""
    if not len(h.submit):
        return {}
    edges = np.linspace(h.begin, max(h.horizon, h.begin + 1), POINTS + 1)
    drawn = {"hours": (edges[:-1] + edges[1:] - 2 * h.begin) / 2 / HOUR_US}
    for name in CLASSES:
        if (of := h.of_class(name)).any():
            drawn[f"{name}.queue"] = h.queue(of).means(edges)
        if (over := of & h.over).any():
            drawn[f"{name}.slowdown"] = np.percentile(h.slowdown[over], QUANTILES)
    for resource, name in enumerate(("cpu", "memory", "gpu")):
        if h.capacity[resource]:
            used, up = h.amount_used(resource).means(edges), h.amount_up(resource).means(edges)
            drawn[f"utilisation.{name}"] = np.divide(used, up, out=np.zeros(POINTS), where=up > 0)
    return {name: [round(float(value), 6) for value in values] for name, values in drawn.items()}
