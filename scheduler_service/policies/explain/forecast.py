"""When a job may start, if all jobs take as long as they are expected to, and none comes before it.

Those before it are placed in order, each when there is room; running jobs end by their estimates, or else time limits. An array
is placed once for each element to begin; one that has begun as many as may run together comes back when one of them ends.
"""

from bisect import insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.model import Job, JobClass, JobState
from scheduler_service.core.model.values import Micros, Vector
from scheduler_service.core.operations.estimators import expected_us
from scheduler_service.core.state.holdings import first_of_each, holding, runs_together
from scheduler_service.core.state.queue_order import QueueKey
from scheduler_service.core.state.resources.packing import pack
from scheduler_service.core.state.state import State
from scheduler_service.policies.explain.explanation import Estimate, number_of
from scheduler_service.policies.placing.first_fit import take_promised
from scheduler_service.policies.remaining_time import remaining_together
from scheduler_service.policies.stages import Stages

LOOKS = 300
"""How often an estimate may look for room: some 10 ms with thousands of nodes."""


class _End(NamedTuple):
    at_us: Micros
    job_id: int
    """The job's id, or that of its array, if it is one that is placed here."""
    number: int
    array: int
    freed: tuple[tuple[int, Vector], ...]


class _Elements:
    """The elements of an array: how many are to begin, and how many may now."""

    def __init__(self, array: Job) -> None:
        spec, told = array.spec.array, array.elements
        assert spec is not None
        assert told is not None
        self.to_begin = spec.size - told.begun
        self.may = spec.at_once - told.live if spec.at_once else self.to_begin


def estimate(state: State, job: Job, before: list[Job], now: Micros, stages: Stages) -> Estimate:
    """Estimate when a job without a virtual cluster starts. `before` are those that are served before it, in order."""

    def order(other: Job) -> tuple[bool, QueueKey]:
        last = stages.trials_first and other.spec.job_class is not JobClass.TRIAL
        return last, state.place_of(other)

    aside = {array.id: array for array in _at_their_limit(state) if order(array) < order(job)}
    arrays = {array.id: _Elements(array) for array in (*before, *aside.values()) if array.elements is not None}
    ends, known, unknown = _ends(state, now)
    heapify(ends)
    offered = state.free_resources.offered_resources().copy()
    take_promised(state, job, offered)
    at, line, endless = now, [*before, job], 0
    for look in range(LOOKS):
        head = line[0]
        found = _first_fit(state, head, offered)
        if found is None:
            if not ends:
                return Estimate(None, _why_unforeseen(state, head, job, unknown, endless), unknown)
            at, _, _, array, freed = heappop(ends)
            for node, demand in freed:
                offered[:, node] += demand
            if array in arrays:
                arrays[array].may += 1
                if array in aside:
                    insort(line, aside.pop(array), hi=len(line) - 1, key=order)
            continue
        if head is job:
            ahead = number_of(len(before), "job")
            return Estimate(at, f"estimates and time limits of {number_of(known, 'run')} and {ahead} ahead", unknown)
        one, freed = found
        for node, demand in freed:
            offered[:, node] -= demand
        elements = arrays.get(head.id)
        takes = expected_us(one, one.configuration) or head.time_limit_us
        if takes:
            heappush(ends, _End(at + takes, head.id, look, head.id if elements is not None else 0, freed))
        else:
            endless += 1
        if elements is not None:
            elements.to_begin -= 1
            elements.may -= 1
        if elements is None or not elements.to_begin:
            line.pop(0)
        elif not elements.may:
            aside[head.id] = line.pop(0)
    return Estimate(None, f"too much is before it to be foreseen: {number_of(len(before), 'job')} ahead", unknown)


def _at_their_limit(state: State) -> Iterator[Job]:
    """Arrays that begin their next element when one ends."""
    for array_id in state.elements_of:
        array = state.jobs.rows[array_id]
        spec, told = array.spec.array, array.elements
        if array.state is not JobState.QUEUED or array.held or array.spec.vc or spec is None or told is None:
            continue
        if told.begun < spec.size and 0 < spec.at_once <= told.live:
            yield array


def _ends(state: State, now: Micros) -> tuple[list[_End], int, int]:
    """The expected ends of jobs whose end makes room; how many ends are known, and how many are not."""
    ends, unknown = [], 0
    for job_id in first_of_each(state, state.active):
        running, runs = state.jobs.rows[job_id], runs_together(state, job_id)
        freed = tuple((run.node, holding(state, run)) for run in runs if state.free_resources.is_open(run.node))
        if not freed:
            continue
        left = remaining_together(state, running, now)
        if left is None:
            unknown += 1
        else:
            ends.append(_End(now + left, job_id, 0, running.array_job, freed))
    return ends, len(ends), unknown


def _why_unforeseen(state: State, head: Job, job: Job, unknown: int, endless: int) -> str:
    """Why nothing is foreseen: `head`, which is the job or one before it, finds no room when all has ended of which it is known
    when it does."""
    whose = [*([number_of(unknown, "run")] if unknown else []), *([f"{number_of(endless, 'job')} ahead"] if endless else [])]
    if whose and may_fit(state, head):
        return f"it waits for the end of {' and '.join(whose)} of unknown length"
    lacking = "open nodes that are large enough" if head.spec.gang else "an open node that is large enough"
    return f"it waits for {lacking}" if head is job else f"it waits for job {head.id}, and that for {lacking}"


def may_fit(state: State, job: Job) -> bool:
    """Whether it finds room on the open nodes when nothing runs there any more."""
    return _first_fit(state, job, _empty(state)) is not None


def _first_fit(state: State, job: Job, offered: NDArray[np.int64]) -> tuple[Job, tuple[tuple[int, Vector], ...]] | None:
    """The first of its configurations that fits, and what its tasks then take of which nodes; None: none fits."""
    for one in job.in_each_configuration():
        among, tasks = state.suitable_for(one.spec), one.spec.tasks()
        nodes = pack(tasks, offered.copy() if among is None else np.where(among.mask, offered, -1))
        if nodes is not None:
            return one, tuple(zip(nodes, tasks, strict=True))
    return None


def _empty(state: State) -> NDArray[np.int64]:
    """(3, nodes + 1): what each node will have free when nothing runs and nothing is kept; what is faulty is not."""
    offered = state.free_resources.offered_resources().copy()
    for run in state.runs.rows.values():
        if state.free_resources.is_open(run.node):
            offered[:, run.node] += holding(state, run)
    for node, held in state.held_devices.items():
        if state.free_resources.is_open(node):
            offered[2, node] -= (held & state.faulty_devices.get(node, 0)).bit_count()
    for earmark in state.earmarks.rows.values():
        if state.free_resources.is_open(earmark.node):
            offered[:, earmark.node] += earmark.kept
    return offered
