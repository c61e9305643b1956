"""AlloX's machines: slots of several kinds, and when each is free.

Configurations that fit equally often on each empty node need slots of the same kind: one GPU of a pool, two GPUs, a bundle of
CPUs. A slot of a gang has room for all of its tasks. Kinds whose slots share nodes overlap, and then the matching is a lower
bound (docs/matching.md, "Several sizes").
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from scheduler_service.core.model import JobSpec
from scheduler_service.core.model.values import Micros, Vector
from scheduler_service.core.state.holdings import first_of_each, holding, runs_together
from scheduler_service.core.state.resources.suitable_nodes import Suitable
from scheduler_service.core.state.state import State
from scheduler_service.policies.allox.configuration_times import Known
from scheduler_service.policies.remaining_time import expected_end
from scheduler_service.policies.scope import Ints

_CPU, _DEVICES = 0, 2


class Kind(NamedTuple):
    """A kind of slot."""

    need: Vector
    """The need of one task. For a gang with different tasks it is that of the largest, or, if all nodes together have no room
    for so many of these, the least of each resource that any task needs."""
    tasks: int
    """How many tasks a slot has room for."""
    among: Suitable | None
    """The nodes that have such slots; None: all."""
    seats: Ints
    """For each node, the number of tasks that it has room for if it is empty."""
    reserved: int
    """CPU (in thousandths) that it leaves for each free device of a node."""


class Held(NamedTuple):
    """Resources that runs hold, and until when. One row for each run, in the order of nodes, then of time."""

    node: Ints
    amount: Ints
    """(3, runs)."""
    until: Ints


def collect_held(state: State, now: Micros, unknown_us: Micros) -> Held:
    """Collect what runs hold, until their expected ends (`remaining_time.expected_end`)."""
    rows = []
    for job_id in first_of_each(state, state.active):
        until = expected_end(state, state.jobs.rows[job_id], now, unknown_us)
        rows += [(run.node, until, *holding(state, run)) for run in runs_together(state, job_id)]
    rows.sort()
    table = np.array(rows, np.int64).reshape(-1, 5).T
    return Held(table[0], table[2:], table[1])


class Kinds:
    """The kinds of slots of one state, whose nodes do not change meanwhile."""

    def __init__(self, state: State, known: Known, reserved_cpu_milli: int) -> None:
        """`reserved_cpu_milli`: what configurations without devices leave for each free device of a node. One that would then
        never fit leaves nothing."""
        self._state = state
        self._known = known
        self._reserved = reserved_cpu_milli
        self.kinds: list[Kind] = []
        self._of_needs: dict[int, int] = {}
        self._numbers: dict[tuple[bool, int, int, bytes], int] = {}

    def number(self, need: int) -> int:
        """The number of the kind of slot that configurations with this need run on."""
        number = self._of_needs.get(need)
        if number is None:
            kind = self._kind(self._known.specs[need], self._known.needs[need].tasks)
            same = bool(kind.need.devices), kind.tasks, kind.reserved, kind.seats.tobytes()
            number = self._of_needs[need] = self._numbers.setdefault(same, len(self.kinds))
            if number == len(self.kinds):
                self.kinds.append(kind)
            elif _size(kind.need) > _size(self.kinds[number].need):
                self.kinds[number] = self.kinds[number]._replace(need=kind.need)
        return number

    def has_slots(self, need: int) -> bool:
        """Whether the nodes that are open would have a slot of this kind if they were empty."""
        kind = self.kinds[self.number(need)]
        is_open = self._state.free_resources.offered_resources(kind.among)[0] >= 0
        return bool(np.where(is_open, kind.seats, 0).sum() >= kind.tasks)

    def kind_of(self, spec: JobSpec) -> Kind:
        """The kind of slot that a spec without alternatives runs on."""
        return self.kinds[self.number(self._known.need(spec))]

    def _kind(self, spec: JobSpec, tasks: Sequence[Vector]) -> Kind:
        need = max(tasks, key=_size)
        among = self._state.suitable_for(spec)
        capacities = self._state.free_resources.capacities(among)
        for reserved in (0,) if spec.demand.devices else (self._reserved, 0):
            seats = _seats(need, without_reserved(capacities, reserved))
            if seats.sum() >= len(tasks):
                return Kind(need, len(tasks), among, seats, reserved)
        smallest = Vector(*map(min, *tasks)) if len(tasks) > 1 else need
        return Kind(smallest, len(tasks), among, _seats(smallest, capacities), 0)

    def share(self, spec: JobSpec) -> float:
        """The dominant share of a configuration (section 3.3.2): the devices of those on all nodes that suit it, or the CPUs if
        it has no devices, or the memory; the largest of these parts. (The paper's m_c in the share of a configuration on GPUs
        is a slip for m_g.)"""
        capacities = self._state.free_resources.capacities(self._state.suitable_for(spec))
        whole, demand = Vector(*capacities.sum(axis=1).tolist()), spec.demand
        main = (demand.devices, whole.devices) if demand.devices else (demand.cpu_milli, whole.cpu_milli)
        return max(_part(*main), _part(demand.memory_mib, whole.memory_mib))

    def is_free(self, kind: Kind) -> bool:
        """Whether a slot of the kind is free now."""
        return int(self._free(kind, self._state.free_resources.offered_resources(kind.among)).sum()) >= kind.tasks

    def _free(self, kind: Kind, offered: Ints) -> Ints:
        """For each node, the number of tasks that it has room for now."""
        return np.minimum(np.where(offered[0] >= 0, _seats(kind.need, without_reserved(offered, kind.reserved)), 0), kind.seats)

    def free_at(self, kind: Kind, runs: Held, now: Micros) -> Ints:
        """When each slot of the kind is free, the first one first; those that are free now, now."""
        offered = self._state.free_resources.offered_resources(kind.among)
        is_open = offered[0] >= 0
        seats, free = np.where(is_open, kind.seats, 0), self._free(kind, offered)
        times = [np.full(int(free.sum()), now, np.int64)]
        behind = np.flatnonzero(is_open[runs.node] & (free < seats)[runs.node]) if len(runs.node) else runs.node
        if len(behind):
            node, until = runs.node[behind], runs.until[behind]
            total = np.cumsum(runs.amount[:, behind], axis=1)
            starts = np.flatnonzero(np.diff(node, prepend=-1))
            before = np.repeat(starts, np.diff(starts, append=len(node)))
            freed = total - (total[:, before] - runs.amount[:, behind][:, before])
            then = np.minimum(_seats(kind.need, without_reserved(offered[:, node] + freed, kind.reserved)), seats[node])
            last = np.where(np.arange(len(node)) == before, free[node], np.concatenate(([0], then[:-1])))
            times.append(np.repeat(until, np.maximum(then - last, 0)))
        found = np.sort(np.concatenate(times))
        return found[kind.tasks - 1 :: kind.tasks]


def without_reserved(amounts: Ints, reserved: int) -> Ints:
    """(3, nodes): these amounts without the CPU that is reserved for each free device."""
    if not reserved:
        return amounts
    less = amounts.copy()
    less[_CPU] -= reserved * less[_DEVICES]
    return less


def _part(amount: int, whole: int) -> float:
    return amount / whole if whole else (inf if amount else 0.0)


def _size(need: Vector) -> tuple[int, int, int]:
    return need.devices, need.cpu_milli, need.memory_mib


def _seats(need: Vector, amounts: Ints) -> Ints:
    """For each node, the number of tasks with this need that fit into these amounts."""
    least = np.full(amounts.shape[1], np.iinfo(np.int64).max)
    for want, have in zip(need, amounts, strict=True):
        if want:
            np.minimum(least, have // want, out=least)
    seats: Ints = np.maximum(np.minimum(least, 1 << 20), 0)
    return seats
