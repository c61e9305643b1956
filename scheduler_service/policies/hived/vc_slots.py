"""The slots of a virtual cluster: room in the cells that it owns, and when that is free.

A job may run in several pools, and in each of them it has a kind of slots of its own. Cells of the virtual cluster that are not
bound yet are free now, and so are leaves of its bound cells that no guaranteed run holds: opportunistic runs do not count, for
they are reclaimed. Other leaves are free when the runs that hold them are expected to end. Kinds of different sizes overlap,
and the slots of a gang are only counted, wherever its tasks are (docs/matching.md, "Several sizes"). The search for cells
decides whether there is room now.

Slots are held by the jobs that hold the cells of the virtual cluster, or are about to.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import repeat
from typing import NamedTuple

import numpy as np

from scheduler_service.core.cells.guaranteed_search import find
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.pool_queries import unbound
from scheduler_service.core.cells.positions import positions
from scheduler_service.core.cells.queries import cells_of
from scheduler_service.core.cells.request import Need, RequestedCells, requested_cells
from scheduler_service.core.cells.shape import Shape, cell_mask
from scheduler_service.core.model import Earmark, Job, JobSpec
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, Owner, VirtualCluster
from scheduler_service.core.model.values import Mask, Micros, mask_of
from scheduler_service.core.state.state import State
from scheduler_service.policies.hived.guaranteed import choices
from scheduler_service.policies.remaining_time import expected_end, work_left
from scheduler_service.policies.scope import Ints


class _Kind(NamedTuple):
    pool: str
    owner: Owner
    wanted: RequestedCells


class _Leaves(NamedTuple):
    """Leaves of a node that are in use until then."""

    until: Micros
    mask: Mask


_InUse = dict[str, dict[int, list[_Leaves]]]
"""Leaves in use, by pool and slot; those that are free first, first."""


class CellSlots:
    """`scope.Slots` of a virtual cluster."""

    def __init__(self, state: State, vc: VirtualCluster, unknown_us: Micros) -> None:
        assert state.pools is not None
        self._state, self._vc, self._pools = state, vc, state.pools
        self._unknown_us = unknown_us
        self._now = state.cluster.clock_us
        self._kinds: list[_Kind] = []
        self._numbers: dict[_Kind, int] = {}
        self._is_free: dict[int, bool] = {}

    def kinds(self, spec: JobSpec) -> Sequence[int]:
        found = []
        for kind in self._kinds_of(spec):
            number = self._numbers.setdefault(kind, len(self._kinds))
            if number == len(self._kinds):
                self._kinds.append(kind)
            found.append(number)
        return found

    def _kinds_of(self, spec: JobSpec) -> Iterator[_Kind]:
        for pool, owner in choices(self._pools, self._vc, spec):
            wanted = requested_cells(spec, self._pools.pools[pool].shape, self._pools.share(pool))
            if not isinstance(wanted, str):
                yield _Kind(pool, owner, wanted)

    def place_of_kind(self, kind: int) -> str:
        return self._kinds[kind].pool

    def is_free(self, kind: int) -> bool:
        if kind not in self._is_free:
            pool, owner, wanted = self._kinds[kind]
            self._is_free[kind] = find(self._pools.pools[pool], owner, wanted) is not None
        return self._is_free[kind]

    def free_at(self, kind: int) -> Ints:
        of = self._kinds[kind]
        needs = of.wanted.needs
        found = sorted(self._places(of, needs[0]))
        if len(found) < len(needs):  # not so many of the largest, as if all tasks were as small as the smallest
            found = sorted(self._places(of, needs[-1]))
        slots = found[len(needs) - 1 :: len(needs)]
        if self.is_free(kind):
            slots = [self._now, *slots[1:]]
        elif slots and slots[0] <= self._now:
            ends = (leaves.until for in_use in self._in_use.get(of.pool, {}).values() for leaves in in_use)
            first = min(ends, default=None)
            slots = [max(at, first) for at in slots] if first is not None else []
        return np.array(slots, np.int64)

    def _places(self, of: _Kind, need: Need) -> Iterator[Micros]:
        """When each place for such a task is free."""
        pool = self._pools.pools[of.pool]
        for level in range(len(pool.shape.fan)):
            free = max(unbound(pool, of.owner, level) - pool.count_doomed(of.owner, level), 0)
            yield from repeat(self._now, free * _seats_in_cell(pool.shape, need, level))
        in_use = self._in_use.get(of.pool, {})
        for slot, mask in _units(pool, of.owner):
            available = pool.available(slot, mask)
            seats = _seats(pool.shape, need, available)
            yield from repeat(self._now, seats)
            for until, leaves in in_use.get(slot, ()):
                available |= leaves & mask & pool.healthy(slot)
                more = _seats(pool.shape, need, available)
                yield from repeat(until, more - seats)
                seats = more

    @cached_property
    def _in_use(self) -> _InUse:
        found: _InUse = defaultdict(lambda: defaultdict(list))

        def add(node: int, mask: Mask, until: Micros) -> None:
            position = self._pools.positions.get(node)
            if position is not None:
                found[position.pool][position.slot].append(_Leaves(until, positions(position, mask)))

        for job, configuration in holders(self._state, self._vc):
            runs = self._state.runs_of(job.id)
            if runs:
                until = expected_end(self._state, job, self._now, self._unknown_us)
            else:
                left = work_left(job, configuration)
                until = self._now + max(self._unknown_us - job.ran_us if left is None else left, 1)
            for run in runs:
                add(run.node, mask_of(run.devices), until)
            for earmark in kept_for(self._state, job):
                add(earmark.node, earmark.mask, until)
        for slots in found.values():
            for leaves in slots.values():
                leaves.sort()
        return found

    def share(self, spec: JobSpec) -> float:
        """The leaves that the job holds, of those of all cells in which it may run: each leaf goes with its share of CPUs and
        memory."""
        kinds = list(self._kinds_of(spec))
        owned = sum(self._count_owned(kind.pool, kind.owner) for kind in kinds)
        return sum(need.leaves for need in kinds[0].wanted.needs) / owned if owned else 0.0

    def _count_owned(self, name: str, owner: Owner) -> int:
        pool = self._pools.pools[name]
        if owner.pin:
            return sum(mask.bit_count() for _, mask in _units(pool, owner))
        return sum(count * size for count, size in zip(cells_of(self._pools, self._vc, name), pool.sizes, strict=True))


def _units(pool: Pool, owner: Owner) -> Iterable[tuple[int, Mask]]:
    """The bound cells of the owner, node by node."""
    for level in range(len(pool.shape.fan)):
        for index in pool.bound_of(owner, level):
            yield from pool.leaves(level, index)


def _seats(shape: Shape, need: Need, available: Mask) -> int:
    """How many such tasks find room in these leaves of a node."""
    if need.level < 0:
        return available.bit_count() // need.leaves
    cells = shape.devices // shape.size(need.level)
    return sum(not cell_mask(shape, need.level, cell) & ~available for cell in range(cells))


def _seats_in_cell(shape: Shape, need: Need, level: int) -> int:
    """The same in a whole cell of the level."""
    inside = min(shape.size(level), shape.devices)
    each = inside // (need.leaves if need.level < 0 else shape.size(need.level))
    return each * (shape.size(level) // inside)


def holders(state: State, vc: VirtualCluster) -> list[tuple[Job, int]]:
    """The jobs of the virtual cluster that run in its cells, or for which something is kept there, and in which configuration;
    in the order of their ids."""
    running = {key.job_id for key in state.guaranteed_runs.get(vc.name, ())}
    found = {job_id: state.jobs.rows[job_id].configuration for job_id in running}
    for job_id in state.earmarks_of:
        job = state.jobs.rows[job_id]
        if job.spec.vc == vc.name and job.spec.guarantee is not Guarantee.OPPORTUNISTIC:
            found[job_id] = next(kept_for(state, job)).configuration
    return [(state.jobs.rows[job_id], found[job_id]) for job_id in sorted(found)]


def kept_for(state: State, job: Job) -> Iterator[Earmark]:
    """The earmarks of the job."""
    return (state.earmarks.rows[earmark_id] for earmark_id in sorted(state.earmarks_of.get(job.id, ())))
