"""A job's request for cells, as a tree: tasks, and tasks that are to be together in one cell of a level."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from scheduler_service.core.cells.shape import Shape, level_of
from scheduler_service.core.model import JobSpec, TaskGroup
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest
from scheduler_service.core.model.values import Vector, fits, times


class Need(NamedTuple):
    """A task, which needs leaves of one node."""

    rank: int
    leaves: int
    level: int = -1
    """The leaves are to be one whole cell of this level; -1: any leaves."""


class Together(NamedTuple):
    """Parts that are to be inside one cell of the level."""

    level: int
    required: bool
    parts: tuple["Part", ...]


Part = Need | Together


class RequestedCells(NamedTuple):
    """A request for cells of a pool of a certain shape."""

    parts: tuple[Part, ...]
    """The largest first."""
    needs: tuple[Need, ...]
    """All tasks, the largest first."""


def needs_of(parts: tuple[Part, ...]) -> Iterator[Need]:
    """All tasks in these parts."""
    for part in parts:
        if isinstance(part, Need):
            yield part
        else:
            yield from needs_of(part.parts)


def groups_of(parts: tuple[Part, ...]) -> Iterator[Together]:
    """All groups in these parts that are to be together, at any depth."""
    for part in parts:
        if isinstance(part, Together):
            yield part
            yield from groups_of(part.parts)


def are_alike(one: Part, other: Part) -> bool:
    """Whether they are tasks that ask for the same."""
    return isinstance(one, Need) and isinstance(other, Need) and one[1:] == other[1:]


def enough(needs: Iterable[Need], sizes: Iterable[tuple[int, int]]) -> bool:
    """Whether there are enough leaves for the tasks of each size, wherever they are. `sizes`: numbers of leaves that tasks may
    share, and how many places there are with each. It costs little, and rules out most searches that would fail."""
    waiting, count = Counter(need.leaves for need in needs), 0
    there = [(leaves, many) for leaves, many in sizes if many]
    for leaves in sorted(waiting, reverse=True):
        count += waiting[leaves]
        if sum(available // leaves * many for available, many in there) < count:
            return False
    return True


def requested_cells(spec: JobSpec, shape: Shape, share: Vector) -> RequestedCells | str:
    """The job's request to pools of this shape, in which each leaf carries `share` of its node; or why they cannot meet such a
    request."""
    return _requested_cells(spec.demand, spec.gang, spec.cells, shape, share)


@lru_cache(maxsize=4096)
def _requested_cells(
    demand: Vector, gang: tuple[TaskGroup, ...], cells: CellRequest, shape: Shape, share: Vector
) -> RequestedCells | str:
    needs: list[Need] = []
    groups: list[tuple[Part, ...]] = []
    first = 0
    sizes = [(group.size, group.demand) for group in gang] or [(1, demand)]
    for number, (size, each) in enumerate(sizes):
        level = cells.levels[number] if number < len(cells.levels) else ""
        need = _need(shape, share, each, level)
        if isinstance(need, str):
            return need
        tasks = tuple(need._replace(rank=first + i) for i in range(size))
        first += size
        needs += tasks
        wrapped = _inside_cells(cells, shape, number, tasks)
        if isinstance(wrapped, str):
            return wrapped
        groups.append(wrapped)
    ordered = sorted((part for group in groups for part in group), key=_largest_first)
    whole = _inside_cells(cells, shape, -1, tuple(ordered))
    if isinstance(whole, str):
        return whole
    return RequestedCells(whole, tuple(sorted(needs, key=_largest_first)))


def _largest_first(part: Part) -> tuple[bool, int, int]:
    """Sort key: groups before single tasks, and the largest first; ranks break ties."""
    if isinstance(part, Need):
        return True, -part.leaves, part.rank
    inner = [_largest_first(inside) for inside in part.parts]
    return False, sum(leaves for _, leaves, _ in inner), min(rank for _, _, rank in inner)


def _need(shape: Shape, share: Vector, demand: Vector, level: str) -> Need | str:
    """A task's leaves. CPUs are as many as carry what it asks for, or all of the cell that it names."""
    if bool(demand.devices) != bool(share.devices):
        return "it has no devices" if demand.devices else "its nodes have devices, which the job does not ask for"
    leaves, kind = (demand.devices, "devices") if share.devices else (_cpus(share, demand), "CPUs")
    if leaves > shape.devices:
        return f"its nodes have {shape.devices} {kind}, and a task asks for {leaves}{_as_memory(share, demand)}"
    carried = times(share, leaves)
    if not fits(demand, carried):
        return f"{leaves} of its {shape.levels[0]}s carry {_host(carried)}, and a task asks for {_host(demand)}"
    if not level:
        return Need(0, leaves)
    number = level_of(shape, level)
    if number is None or number > shape.node:
        return f"it has no level {level!r} inside a node"
    size = shape.size(number)
    if size < leaves or (size > leaves and share.devices):
        return f"a {level} of it has {size} {kind}, and a task asks for {leaves}{_as_memory(share, demand)}"
    return Need(0, size, number)


def _cpus(share: Vector, demand: Vector) -> int:
    """How many CPUs carry the demand, each with its share of the memory."""
    return max([1, *(-(-need // each) for need, each in zip(demand[:2], share[:2], strict=True) if each)])


def _as_memory(share: Vector, demand: Vector) -> str:
    """Why the task gets more CPUs than it names, if it does."""
    more = not share.devices and _cpus(share, demand) > _cpus(share, demand._replace(memory_mib=0))
    return f", which carry its {demand.memory_mib} MiB" if more else ""


def _host(amount: Vector) -> str:
    return f"{amount.cpu_milli / 1000:g} CPUs and {amount.memory_mib} MiB"


def _inside_cells(cells: CellRequest, shape: Shape, group: int, parts: tuple[Part, ...]) -> tuple[Part, ...] | str:
    """The parts inside the cells that are asked for them, the smallest innermost. A single task is always inside one cell of
    its node's level and of those above, and if it has one leaf, of any level."""
    one = parts[0] if len(parts) == 1 else None
    anyway = shape.node if isinstance(one, Need) else len(shape.levels)
    if isinstance(one, Need) and one.leaves == 1:
        anyway = 0
    wanted: list[tuple[int, bool]] = []
    for within in cells.within:
        if within.group == group:
            level = level_of(shape, within.level)
            if level is None:
                if within.required:
                    return f"it has no level {within.level!r}"
                continue
            if level < anyway:
                wanted.append((level, within.required))
    for level, required in sorted(wanted):
        parts = (Together(level, required, parts),)
    return parts
