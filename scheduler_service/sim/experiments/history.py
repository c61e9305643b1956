"""A simulation's tables as arrays, and the levels that follow from them: the data of every figure.

Levels (a queue's length, devices in use) are step functions of time; means and quantiles weight each value by how long it held.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum, auto
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.model.values import Micros, Vector

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_FAR = np.iinfo(np.int64).max


class Steps:
    """A level that changes by `deltas` at `times`; it is 0 before the first and after the last."""

    def __init__(self, times: Ints, deltas: Ints) -> None:
        order = np.argsort(times, kind="stable")
        self.at = times[order]
        self.level = np.cumsum(deltas[order])

    def _durations(self) -> Ints:
        """How long each level holds; 0 for the last one, which is 0."""
        return np.diff(self.at, append=self.at[-1:])

    def means(self, edges: Floats) -> Floats:
        """Means between consecutive edges."""
        if not len(self.at):
            return np.zeros(len(edges) - 1)
        area = self._durations() * self.level.astype(np.float64)
        np.cumsum(area, out=area)
        before = np.concatenate(([0.0], area[:-1]))
        return np.diff(np.interp(edges, self.at, before)) / np.maximum(np.diff(edges), 1)

    def mean(self, begin: float, end: float) -> float:
        return float(self.means(np.array([begin, end]))[0])

    def quantile(self, share: float) -> float:
        """The least level that is not exceeded for this share of the time."""
        order = np.argsort(self.level, kind="stable")
        held = np.cumsum(self._durations()[order])
        return float(self.level[order][min(np.searchsorted(held, share * held[-1]), len(held) - 1)])

    def largest(self) -> float:
        return float(self.level[self._durations() > 0].max(initial=0))


class Span(NamedTuple):
    """An amount, and the time in which it applies; an end of None means the end of the simulation."""

    begin_us: Micros
    end_us: Micros | None
    amount: Vector


class Phase(StrEnum):
    """Phase of a run in which it may hold less than it asked for: one of its tasks ended before others, or it is parked."""

    STARTING = auto()
    GRACE = auto()
    HANGING = auto()
    PARKED = auto()


class History:
    """The tables as arrays, with values that several figures need."""

    def __init__(
        self, jobs: Any, runs: Any, capacity: Vector, down: Iterable[Span] = (), torn: Collection[tuple[Phase, Span]] = ()
    ) -> None:
        """`down`: resources of nodes while they were away, in order of time. `torn`: demands of tasks that exited, or died with
        their nodes, until the last task of their gang had exited, and the devices of parked runs."""
        self.capacity = capacity
        self.submit, self.work = _ints(jobs, "submit_us"), _ints(jobs, "work_us")
        self.demand = np.stack([_ints(jobs, name) for name in ("cpu_milli", "memory_mib", "gpus")])
        self.done, self.lost, self.preemptions = (_ints(jobs, name) for name in ("done_us", "lost_us", "preemptions"))
        self.end, self.over = _times(jobs, "end_us")
        self.classes, self.users, self.vcs = (_names(jobs, name) for name in ("class", "user", "vc"))
        self.run_job = _ints(runs, "job")
        self.owner = np.searchsorted(_ints(jobs, "job"), self.run_job)
        """The row of each run's job."""
        self.configured = "configuration" in runs.column_names
        """Whether some run was in another configuration than its job's first one."""
        self.run_demand = self.demand[:, self.owner]
        if self.configured:
            self.run_demand = np.stack([_ints(runs, name) for name in ("cpu_milli", "memory_mib", "gpus")])
        self.placed = _ints(runs, "placed_us")
        self.began, self.has_begun = _times(runs, "began_us")
        self.works, self.has_worked = _times(runs, "works_us")
        self.signalled, self.has_signal = _times(runs, "signalled_us")
        self.broken, self.is_broken = _times(runs, "lost_us")
        codes, names = _names(runs, "why")
        self.preempted, self.reclaimed, self.migrated = (
            codes == (names.index(why) if why in names else -1) for why in ("preempted", "reclaimed", "migrated")
        )
        self.left, self.has_left = _times(runs, "ended_us")
        last = [self.submit.max(initial=0), self.end[self.over].max(initial=0), self.left[self.has_left].max(initial=0)]
        self.begin, self.horizon = int(self.submit.min(initial=0 if not len(self.submit) else _FAR)), int(max(last))
        self.end, self.left = np.where(self.over, self.end, self.horizon), np.where(self.has_left, self.left, self.horizon)
        self.wait = self.end - self.submit - self.done
        self.slowdown: Floats = 1 + self.wait / np.maximum(np.where(self.done, self.done, self.work), 1)  # see Life.slowdown
        self.down = self._spans_within(takewhile(lambda span: span.begin_us < self.horizon, down))
        self.torn = {phase: self._spans_within(span for of, span in torn if of is phase) for phase in Phase}

    def _spans_within(self, spans: Iterable[Span]) -> Ints:
        """Spans that began before the horizon, as arrays: begins, ends, and amounts of each resource."""
        rows = [
            (begin, self.horizon if end is None else min(end, self.horizon), *amount)
            for begin, end, amount in spans
            if begin < self.horizon
        ]
        columns: Ints = np.array(rows, np.int64).reshape(len(rows), 5).T
        return np.concatenate((np.maximum(columns[:2], self.begin), columns[2:]))

    def of_class(self, name: str) -> Mask:
        codes, names = self.classes
        return codes == names.index(name) if name in names else np.zeros(len(codes), bool)

    def amount_used(self, resource: int) -> Steps:
        """The amount of a resource that runs hold, from their placement until they have exited or their nodes have died: each
        task of a gang by itself."""
        amount = self.run_demand[resource]
        begins, ends, *torn = np.concatenate(list(self.torn.values()), axis=1)
        gone = torn[resource]
        times = np.concatenate((self.placed, self.left, begins, ends))
        return Steps(times, np.concatenate((amount, -amount, -gone, gone)))

    def amount_up(self, resource: int) -> Steps:
        """The amount of a resource on nodes that are not away."""
        whole, (begins, ends, *down) = self.capacity[resource], self.down
        away = down[resource]
        times = np.concatenate(([self.begin, self.horizon], begins, ends))
        return Steps(times, np.concatenate(([whole, -whole], -away, away)))

    def queue(self, of: Mask) -> Steps:
        """The number of jobs without a run."""
        runs = of[self.owner]
        times = (self.submit[of], self.left[runs], self.end[of], self.placed[runs])
        come = np.ones(len(times[0]) + len(times[1]), np.int64)
        return Steps(np.concatenate(times), np.concatenate((come, -come)))

    def intervals(self) -> Ints:
        """Times from each preemption to the begin of the job's next run, with the grace period (FitGpp, table 2).

        A run that was told to stop before it began neither ends such a time nor begins another.
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
    """The column, and a mask of its values that are not null."""
    column = table[name]
    values: Ints = column.fill_null(0).to_numpy().astype(np.int64, copy=False)
    return values, column.is_valid().to_numpy()


def _names(table: Any, name: str) -> tuple[Ints, list[str]]:
    column = table[name].unify_dictionaries().combine_chunks()
    return column.indices.to_numpy().astype(np.int64), column.dictionary.to_pylist()
