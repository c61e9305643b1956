"""Default CPUs and memory of tasks with devices, for which the user has named none: what goes with these devices.

That is the site's amount for each device if it has set one, and otherwise the share of each device of its node. If nodes
differ, it is the smallest share among those on which the job could run, so that it fits on each of them, and a node full of
such jobs has one for each of its devices. There is also room for jobs without devices: a CPU and a GiB of each share are left
to these, unless virtual clusters reserve a part (`host_percent`). If jobs take turns on a device, each has a part of that, less
the memory of the node in which it is parked between its turns. The amounts are fixed when the job is submitted.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from scheduler_service.core.model import JobSpec, ShareMode
from scheduler_service.core.model.configurations import Configuration
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.core.model.values import UNSET, WHOLE, Vector, add, fits, times
from scheduler_service.core.sharing.equations import limit_mib
from scheduler_service.core.sharing.parts import memory_of, part_of
from scheduler_service.core.state.state import State

_LEAST = Vector(1000, 1024, 1)
"""The share of a device as long as there are no nodes; this much of each device's share is left to jobs without devices."""

Fill = Callable[[Vector], Vector]
"""Fills in what is unset in a task's demand."""


def names_all(spec: JobSpec) -> bool:
    """Whether the user has named all CPUs and memory, as is the case for nearly all jobs."""
    return _is_set(spec.demand) and all(_is_set(other.demand) for other in spec.alternatives)


def with_default_resources(state: State, spec: JobSpec) -> tuple[JobSpec, str]:
    """The spec with an amount for everything, and text for the story about it."""
    filled, said = spec, list[str]()
    for number, one in enumerate(spec.in_each_configuration()):
        if _is_set(one.demand):
            continue
        fill = _fill(state, one)
        needs = [need if _is_set(need) else fill(need) for need in _needs(one)]
        said += [_describe(need) for need, asked in zip(needs, _needs(one), strict=True) if not _is_set(asked)]
        filled = _with_configuration(filled, number, _with_needs(one, needs))
    if spec.alternatives:
        ways = enumerate(spec.in_each_configuration())
        left = tuple(number for number, one in ways if one.demand.memory_mib == UNSET and not one.gang)
        filled = with_changes(filled, memory_left=left)
    return filled, f"{', or '.join(dict.fromkeys(said))} by default"


def taken_from(known: JobSpec, asked: JobSpec) -> JobSpec:
    """The spec that is asked for, with the amounts of a known job in place of those that it does not name."""
    taken = asked
    both = zip(asked.in_each_configuration(), known.in_each_configuration(), strict=False)
    for number, (one, theirs) in enumerate(both):
        if not _is_set(one.demand) and len(one.gang) == len(theirs.gang):
            pairs = zip(_needs(one), _needs(theirs), strict=True)
            needs = [Vector(*(b if a == UNSET else a for a, b in zip(*pair, strict=True))) for pair in pairs]
            taken = _with_configuration(taken, number, _with_needs(one, needs))
    return with_changes(taken, memory_left=known.memory_left)


def _is_set(demand: Vector) -> bool:
    return demand[0] >= 0 and demand[1] >= 0


def _needs(one: JobSpec) -> list[Vector]:
    """Demands of the task groups, or of the one task."""
    return [group.demand for group in one.gang] or [one.demand]


def _with_needs(one: JobSpec, needs: Sequence[Vector]) -> JobSpec:
    if not one.gang:
        return with_changes(one, demand=needs[0])
    gang = tuple(group._replace(demand=need) for group, need in zip(one.gang, needs, strict=True))
    demand = Vector()
    for group in gang:
        demand = add(demand, times(group.demand, group.size))
    return with_changes(one, gang=gang, demand=demand)


def _describe(need: Vector) -> str:
    task = f"{need.devices} device{'s' if need.devices > 1 else ''}"
    return f"{need.cpu_milli / 1000:g} CPUs and {need.memory_mib} MiB with {task}"


def _with_configuration(spec: JobSpec, number: int, one: JobSpec) -> JobSpec:
    if number == 0:
        return with_changes(spec, demand=one.demand, gang=one.gang)
    others: list[Configuration] = list(spec.alternatives)
    others[number - 1] = others[number - 1]._replace(demand=one.demand, gang=one.gang)
    return with_changes(spec, alternatives=tuple(others))


def _fill(state: State, one: JobSpec) -> Fill:
    settings = state.settings
    memory_mib = max((traits.memory_mib for traits in state.suitable_nodes.traits.values()), default=0)
    limit = limit_mib(memory_mib, settings)
    part = (part_of(one, limit) or WHOLE) if one.shares else WHOLE
    share = _smallest_share(state, one) or _LEAST
    cpu = settings.cpu_milli_per_device * part or share.cpu_milli * part // settings.default_jobs_per_device
    memory = settings.memory_mib_per_device * part
    if not memory:
        memory = share.memory_mib * part // settings.default_jobs_per_device
        memory = max(memory - _parked_mib(one, limit, settings) * WHOLE, min(memory, _LEAST.memory_mib * WHOLE))

    def fill(need: Vector) -> Vector:
        cpu_milli, memory_mib, devices = need
        return Vector(
            cpu * devices // WHOLE if cpu_milli == UNSET else cpu_milli,
            memory * devices // WHOLE if memory_mib == UNSET else memory_mib,
            devices,
        )

    return fill


def _parked_mib(one: JobSpec, limit: int, settings: Settings) -> int:
    """Memory of the node that the job needs for each device besides its own, while others have their turns."""
    if one.share is ShareMode.SLICED:
        return memory_of(one, limit, settings)
    return limit if one.share is ShareMode.EXCLUSIVE and settings.default_jobs_per_device > 1 else 0


def _smallest_share(state: State, one: JobSpec) -> Vector | None:
    """The smallest share of a device among the nodes on which the job could run; None: no node could run it."""
    least = Vector(*(max(max(need[i] for need in _needs(one)), 0) for i in range(3)))
    shares = list(_shares_of_pools(state, one) if state.pools is not None else _shares_of_nodes(state, one, least))
    return Vector(min(share[0] for share in shares), min(share[1] for share in shares), 1) if shares else None


def _shares_of_nodes(state: State, one: JobSpec, least: Vector) -> Iterable[Vector]:
    room, among = state.free_resources, state.suitable_for(one)
    capacities: Iterable[Vector] = room.shapes()
    if among is not None:
        capacities = (Vector(*column) for column in np.unique(room.capacities(among), axis=1).T.tolist())
    for capacity in capacities:
        if capacity.devices and fits(least, capacity):
            cpu, memory = capacity.cpu_milli // capacity.devices, capacity.memory_mib // capacity.devices
            yield Vector(_share_without(cpu, _LEAST.cpu_milli), _share_without(memory, _LEAST.memory_mib), 1)


def _share_without(share: int, left: int) -> int:
    """The share without what is left to jobs without devices, if that is no more than half of it."""
    return share - left if share >= 2 * left else share


def _shares_of_pools(state: State, one: JobSpec) -> Iterable[Vector]:
    pools = state.pools
    assert pools is not None
    owned = None
    if one.guarantee is Guarantee.GUARANTEED and one.vc in state.vc_ids:
        owned = pools.has_cells_in(state.vcs.rows[state.vc_ids[one.vc]])
    for name in pools.in_order():
        if one.cells.pool not in ("", name) or one.cells.model not in ("", pools.models[name]):
            continue
        if one.device_memory_mib <= pools.device_memory_mib(name) and (owned is None or name in owned):
            yield pools.share(name)
