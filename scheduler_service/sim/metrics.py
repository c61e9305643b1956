"""Figures of a simulation, all made from its tables of jobs and runs.

A percentile is what numpy calls "linear": the value at the place q (n - 1) of the sorted n, between two of them in proportion.
Levels (a queue's length, devices in use) are step functions of time; their means and percentiles weigh each value by how
long it held. A figure that has no meaning, such as the slowdown of trials where there are none, is absent.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.values import Vector

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

HOUR_US = 3_600_000_000
POINTS = 240
"""Into so many equal parts a curve over time is cut; each point is the mean of its part."""
QUANTILES = (*(float(q) for q in range(100)), 99.5, 99.9, 100.0)
CLASSES = ("trial", "best_effort")
_FAR = np.iinfo(np.int64).max


class Steps:
    """A level that changes by `deltas` at `times`; it is 0 before the first and after the last."""

    def __init__(self, times: Ints, deltas: Ints) -> None:
        order = np.argsort(times, kind="stable")
        self.at = times[order]
        self.level = np.cumsum(deltas[order])

    def _held(self) -> Ints:
        """How long each level holds; the last one, which is 0, not at all."""
        return np.diff(self.at, append=self.at[-1:])

    def means(self, edges: Floats) -> Floats:
        """Between each two of the edges."""
        if not len(self.at):
            return np.zeros(len(edges) - 1)
        area = self._held() * self.level.astype(np.float64)
        np.cumsum(area, out=area)
        before = np.concatenate(([0.0], area[:-1]))
        return np.diff(np.interp(edges, self.at, before)) / np.maximum(np.diff(edges), 1)

    def mean(self, begin: float, end: float) -> float:
        return float(self.means(np.array([begin, end]))[0])

    def quantile(self, share: float) -> float:
        """The least level that is not exceeded for this share of the time."""
        order = np.argsort(self.level, kind="stable")
        held = np.cumsum(self._held()[order])
        return float(self.level[order][min(np.searchsorted(held, share * held[-1]), len(held) - 1)])

    def largest(self) -> float:
        return float(self.level[self._held() > 0].max(initial=0))


class History:
    """The tables as arrays, and what several figures need."""

    def __init__(self, jobs: Any, runs: Any, capacity: Vector) -> None:
        self.capacity = capacity
        self.submit, self.work = _ints(jobs, "submit_us"), _ints(jobs, "work_us")
        self.demand = np.stack([_ints(jobs, name) for name in ("cpu_milli", "memory_mib", "gpus")])
        self.done, self.lost, self.preemptions = (_ints(jobs, name) for name in ("done_us", "lost_us", "preemptions"))
        self.end, self.over = _times(jobs, "end_us")
        self.classes, self.users, self.vcs = (_names(jobs, name) for name in ("class", "user", "vc"))
        self.run_job = _ints(runs, "job")
        self.owner = np.searchsorted(_ints(jobs, "job"), self.run_job)
        """Of each run, the row of its job."""
        self.placed = _ints(runs, "placed_us")
        self.began, self.has_begun = _times(runs, "began_us")
        self.signalled, self.has_signal = _times(runs, "signalled_us")
        codes, names = _names(runs, "why")
        self.preempted, self.reclaimed = (
            codes == (names.index(why) if why in names else -1) for why in ("preempted", "reclaimed")
        )
        self.left, has_left = _times(runs, "ended_us")
        last = [self.submit.max(initial=0), self.end[self.over].max(initial=0), self.left[has_left].max(initial=0)]
        self.begin, self.horizon = int(self.submit.min(initial=0 if not len(self.submit) else _FAR)), int(max(last))
        self.end, self.left = np.where(self.over, self.end, self.horizon), np.where(has_left, self.left, self.horizon)
        self.wait = self.end - self.submit - self.done
        self.slowdown: Floats = 1 + self.wait / np.maximum(self.work, 1)

    def of_class(self, name: str) -> Mask:
        codes, names = self.classes
        return codes == names.index(name) if name in names else np.zeros(len(codes), bool)

    def used(self, resource: int) -> Steps:
        """How much of a resource runs hold, from their placement until they have left."""
        amount = self.demand[resource][self.owner]
        return Steps(np.concatenate((self.placed, self.left)), np.concatenate((amount, -amount)))

    def queue(self, of: Mask) -> Steps:
        """How many jobs are there and have no run."""
        runs = of[self.owner]
        times = (self.submit[of], self.left[runs], self.end[of], self.placed[runs])
        come = np.ones(len(times[0]) + len(times[1]), np.int64)
        return Steps(np.concatenate(times), np.concatenate((come, -come)))

    def intervals(self) -> Ints:
        """From each preemption to the beginning of the job's next run, the grace period included (FitGpp, table 2).

        A run that was told to leave before it began neither ends such a time nor begins another.
        """
        if not len(self.run_job):
            return np.zeros(0, np.int64)
        opens = np.flatnonzero((np.diff(self.run_job, prepend=-1) != 0) | self.has_begun)
        since = np.minimum.reduceat(np.where(self.preempted, self.signalled, _FAR), opens)[:-1]
        until, same = self.began[opens[1:]], self.run_job[opens[1:]] == self.run_job[opens[:-1]]
        closed: Ints = (until - since)[same & (since != _FAR)]
        return closed


def _ints(table: Any, name: str) -> Ints:
    values: Ints = table[name].to_numpy().astype(np.int64, copy=False)
    return values


def _times(table: Any, name: str) -> tuple[Ints, Mask]:
    """The column, and where it has a value."""
    column = table[name]
    values: Ints = column.fill_null(0).to_numpy().astype(np.int64, copy=False)
    return values, column.is_valid().to_numpy()


def _names(table: Any, name: str) -> tuple[Ints, list[str]]:
    column = table[name].unify_dictionaries().combine_chunks()
    if column.num_chunks == 0 if hasattr(column, "num_chunks") else False:
        return np.zeros(0, np.int64), []
    whole = column.chunk(0) if hasattr(column, "chunk") else column
    return whole.indices.to_numpy().astype(np.int64), whole.dictionary.to_pylist()


def numbers(history: History) -> dict[str, float]:
    """The summary: names such as trial.slowdown.p95, and what they come to."""
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
    """Runs that were told to leave so that cells go to those who have a right to them; for no trial."""
    yield "reclaimed", int(h.reclaimed.sum())
    yield "reclaimed.share", len(np.unique(h.owner[h.reclaimed])) / len(h.submit)


def _utilisation(h: History) -> Iterator[tuple[str, float]]:
    """Over all the time, and while jobs still came: at the end of a trace a cluster runs empty, whatever the policy."""
    last = float(h.submit.max())
    for resource, name in enumerate(("cpu", "memory", "gpu")):
        whole = h.capacity[resource]
        if whole:
            used = h.used(resource)
            yield f"utilisation.{name}", used.mean(h.begin, h.horizon) / whole
            if last > h.begin:
                yield f"utilisation.{name}.arrivals", used.mean(h.begin, last) / whole


def _cost(h: History) -> Iterator[tuple[str, float]]:
    """Where the GPU-hours went: each of the capacity is in one of useful, lost, grace, starting and idle."""
    if not h.capacity.devices:
        return
    gpus = h.demand[2].astype(np.float64)
    signalled = h.has_signal & h.has_begun
    grace = np.where(signalled, h.left - h.signalled, 0)
    spent = {
        "capacity": h.capacity.devices * float(h.horizon - h.begin),
        "useful": float(gpus @ h.done),
        "lost": float(gpus @ h.lost),
        "grace": float(gpus[h.owner] @ grace),
    }
    held = float(gpus[h.owner] @ (h.left - h.placed))
    spent["starting"] = held - spent["useful"] - spent["lost"] - spent["grace"]
    spent["idle"] = spent["capacity"] - held
    for name, amount in spent.items():
        yield f"gpu_h.{name}", amount / HOUR_US


def _fairness(h: History) -> Iterator[tuple[str, float]]:
    """Jain's index over users and over VCs: 1 where all are alike, 1/n where one of n has all.

    Of their mean slowdown, and of their share: the GPU time that their jobs got of what they would have had with no wait.
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
        if len(share) > 1:
            yield f"fairness.{kind}.share", jain(share)
        if kind == "vc" and 1 < len(names) <= 64:
            for name, mean in zip(np.array(names)[jobs > 0], slowdown, strict=True):
                yield f"vc.{name}.slowdown.mean", float(mean)
            for name, part in zip(np.array(names)[theirs > 0], share, strict=True):
                yield f"vc.{name}.share", float(part)


def jain(values: Floats) -> float:
    """Jain's fairness index."""
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))


def curves(h: History) -> dict[str, list[float]]:
    """What the figures are drawn from, small enough to be kept of every simulation."""
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
            drawn[f"utilisation.{name}"] = h.used(resource).means(edges) / h.capacity[resource]
    return {name: [round(float(value), 6) for value in values] for name, values in drawn.items()}
