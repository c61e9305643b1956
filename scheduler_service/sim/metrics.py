"""Figures of a simulation, made from its tables of jobs and runs, and from when which nodes were away.

A percentile is what numpy calls "linear": the value at the place q (n - 1) of the sorted n, between two of them in proportion.
Levels (a queue's length, devices in use) are step functions of time; their means and percentiles weigh each value by how
long it held. A figure that has no meaning, such as the slowdown of trials where there are none, is absent.
"""

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.values import Micros, Vector

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


class Span(NamedTuple):
    """An amount, and from when to when it was there; None: to the end."""

    begin_us: Micros
    end_us: Micros | None
    amount: Vector


class History:
    """The tables as arrays, and what several figures need."""

    def __init__(self, jobs: Any, runs: Any, capacity: Vector, down: Iterable[Span] = (), torn: Iterable[Span] = ()) -> None:
        """`down` is what nodes that were away would have had, in the order of its beginnings; `torn` what tasks that died with
        their nodes had asked for, until the last task of their gang had left."""
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
        self.works, self.has_worked = _times(runs, "works_us")
        self.signalled, self.has_signal = _times(runs, "signalled_us")
        self.broken, self.is_broken = _times(runs, "lost_us")
        codes, names = _names(runs, "why")
        self.preempted, self.reclaimed = (
            codes == (names.index(why) if why in names else -1) for why in ("preempted", "reclaimed")
        )
        self.left, self.has_left = _times(runs, "ended_us")
        last = [self.submit.max(initial=0), self.end[self.over].max(initial=0), self.left[self.has_left].max(initial=0)]
        self.begin, self.horizon = int(self.submit.min(initial=0 if not len(self.submit) else _FAR)), int(max(last))
        self.end, self.left = np.where(self.over, self.end, self.horizon), np.where(self.has_left, self.left, self.horizon)
        self.wait = self.end - self.submit - self.done
        self.slowdown: Floats = 1 + self.wait / np.maximum(self.work, 1)
        self.down, self.torn = self._within(down), self._within(torn)

    def _within(self, spans: Iterable[Span]) -> Ints:
        """Of those that began before the horizon: begins, ends, and amounts of each resource."""
        begun = takewhile(lambda span: span.begin_us < self.horizon, spans)
        rows = [(begin, self.horizon if end is None else min(end, self.horizon), *amount) for begin, end, amount in begun]
        columns: Ints = np.array(rows, np.int64).reshape(len(rows), 5).T
        return np.concatenate((np.maximum(columns[:2], self.begin), columns[2:]))

    def of_class(self, name: str) -> Mask:
        codes, names = self.classes
        return codes == names.index(name) if name in names else np.zeros(len(codes), bool)

    def used(self, resource: int) -> Steps:
        """How much of a resource runs hold, from their placement until they have left, or their nodes have died."""
        amount, (begins, ends, *torn) = self.demand[resource][self.owner], self.torn
        dead = torn[resource]
        times = np.concatenate((self.placed, self.left, begins, ends))
        return Steps(times, np.concatenate((amount, -amount, -dead, dead)))

    def up(self, resource: int) -> Steps:
        """How much of a resource the nodes have that are not away."""
        whole, (begins, ends, *down) = self.capacity[resource], self.down
        away = down[resource]
        times = np.concatenate(([self.begin, self.horizon], begins, ends))
        return Steps(times, np.concatenate(([whole, -whole], -away, away)))

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
    """Over all the time, and while jobs still came: at the end of a trace a cluster runs empty, whatever the policy. Nodes that
    are away do not count."""
    last = float(h.submit.max())
    for resource, name in enumerate(("cpu", "memory", "gpu")):
        if h.capacity[resource]:
            used, up = h.used(resource), h.up(resource)
            for suffix, until in (("", h.horizon), (".arrivals", last)):
                if whole := up.mean(h.begin, until):
                    yield f"utilisation.{name}{suffix}", used.mean(h.begin, until) / whole


def _cost(h: History) -> Iterator[tuple[str, float]]:
    """Where the GPU-hours went: each of the capacity is in one of the others.

    A run starts, works, and leaves, for which it has a grace period where it was told to; what it holds between the end of its
    work and the scheduler's hearing of that is of the end. A gang of which a task has died hangs until it has left. What it
    holds on the dead node is not held by anybody: the node is down, or back and has forgotten it.
    """
    if not h.capacity.devices:
        return
    gpus = h.demand[2].astype(np.float64)
    theirs = gpus[h.owner]
    broken = np.where(h.is_broken, np.minimum(h.broken, h.left), h.left)
    stopped = np.where(h.has_signal & h.has_begun, np.minimum(h.signalled, broken), broken)
    works = np.where(h.has_worked, np.minimum(h.works, stopped), stopped)
    worked = stopped - works
    at_work = np.bincount(h.owner[h.has_left], worked[h.has_left], len(gpus))
    capacity = h.capacity.devices * float(h.horizon - h.begin)
    spent = {"useful": float(gpus @ h.done), "ending": float(gpus @ (at_work - h.done - h.lost))}
    for_ever = ~h.has_left  # they hang to the end of the simulation, and nobody goes on from there
    spent["lost"] = float(gpus @ h.lost) + float(theirs[for_ever] @ worked[for_ever])
    spent["starting"] = float(theirs @ (works - h.placed))
    spent["grace"] = float(theirs @ (broken - stopped))
    spent["hanging"] = float(theirs @ (h.left - broken)) - _area(h.torn)
    spent["down"] = _area(h.down)
    spent["idle"] = capacity - sum(spent.values())
    for name, amount in {"capacity": capacity, **spent}.items():
        yield f"gpu_h.{name}", amount / HOUR_US


def _area(spans: Ints) -> float:
    """Of GPUs and microseconds."""
    begins, ends, _cpu, _memory, gpus = spans
    return float(gpus.astype(np.float64) @ (ends - begins))


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
            used, up = h.used(resource).means(edges), h.up(resource).means(edges)
            drawn[f"utilisation.{name}"] = np.divide(used, up, out=np.zeros(POINTS), where=up > 0)
    return {name: [round(float(value), 6) for value in values] for name, values in drawn.items()}
