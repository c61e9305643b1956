"""The rows of a share group, made from the runs that share its devices.

Jobs that execute on the same device at the same time are packed: they are one unit, and stay one. The tasks of a gang are
always in the same rows. The rows have weights with which each unit gets its fair part of the cycle (`fair_turns`), and every
unit is in at least one row, so no member of a group starves. If each device has R users, each has one turn of P / R in a
period P.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from scheduler_service.core.model import Run, RunKey
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.sharing.equations import Device
from scheduler_service.policies.gandiva.slicing.fair_turns import fair_turns


class Unit(NamedTuple):
    """Jobs that execute together: one job, or several that are packed."""

    jobs: tuple[int, ...]
    """In order."""
    runs: tuple[RunKey, ...]
    """The runs of all of them, in order."""
    devices: frozenset[Device]


def unit_of(runs: Iterable[Run]) -> Unit:
    """The runs, of one job or of several, as one unit."""
    members = sorted(runs, key=lambda run: run.key)
    jobs = tuple(sorted({run.job_id for run in members}))
    devices = frozenset((run.node, index) for run in members for index in run.devices)
    return Unit(jobs, tuple(run.key for run in members), devices)


def units_of(rows: Sequence[Row], runs: Mapping[RunKey, Run]) -> list[Unit]:
    """The units of these rows, in order. `runs` has all that are in them."""
    members: dict[int, list[Run]] = defaultdict(list)
    for key in sorted({key for row in rows for key in row.runs}):
        members[key.job_id].append(runs[key])
    leader = {job_id: job_id for job_id in members}
    for row in rows:
        holder: dict[Device, int] = {}
        for key in row.runs:
            for index in runs[key].devices:
                other = holder.setdefault((runs[key].node, index), key.job_id)
                if other != key.job_id:
                    _join(leader, other, key.job_id)
    together: dict[int, list[Run]] = defaultdict(list)
    for job_id, its in members.items():
        together[_find(leader, job_id)] += its
    return [unit_of(its) for _, its in sorted(together.items())]


def _find(leader: dict[int, int], job_id: int) -> int:
    while leader[job_id] != job_id:
        job_id = leader[job_id]
    return job_id


def _join(leader: dict[int, int], one: int, other: int) -> None:
    first, second = sorted((_find(leader, one), _find(leader, other)))
    leader[second] = first


def fair_rows(units: Collection[Unit]) -> tuple[Row, ...]:
    """Rows in which units take turns that want the same devices. Each executes for its fair part of a cycle."""
    if not units:
        return ()
    order = sorted(units, key=lambda unit: unit.jobs)
    number = {device: index for index, device in enumerate(sorted(frozenset().union(*(unit.devices for unit in order))))}
    turns = fair_turns(tuple(sum(1 << number[device] for device in unit.devices) for unit in order))
    return tuple(Row(tuple(sorted(key for user in who for key in order[user].runs)), length) for who, length in turns)


def rows_needed(units: Iterable[Unit]) -> int:
    """In how many rows each of these units has a place, as a greedy search finds, the largest first."""
    taken: list[set[Device]] = []
    for unit in sorted(units, key=lambda unit: (-len(unit.devices), unit.jobs)):
        held = next((held for held in taken if held.isdisjoint(unit.devices)), None)
        if held is None:
            taken.append(set(unit.devices))
        else:
            held |= unit.devices
    return len(taken)


def ranked_rows(units: Collection[Unit], outranks: Callable[[Unit, Unit], bool]) -> tuple[Row, ...]:
    """Fair rows of those units that no unit outranks which wants one of their devices. The others have rows without turns: they
    are parked, until the former leave."""
    first, aside, left = list[Unit](), list[Unit](), list(units)
    while left:
        highest = [unit for unit in left if not any(outranks(other, unit) for other in left)]
        for unit in highest:
            taken = any(outranks(other, unit) and not other.devices.isdisjoint(unit.devices) for other in first)
            (aside if taken else first).append(unit)
        left = [unit for unit in left if unit not in highest]
    return (*fair_rows(first), *(row._replace(weight=0) for row in fair_rows(aside)))


def split_units(units: Iterable[Unit], parts: Sequence[Sequence[int]], runs: Mapping[RunKey, Run]) -> list[Unit]:
    """These units; the one in which all of these parts are packed is split into them."""
    pack, found = {job_id for part in parts for job_id in part}, []
    for unit in units:
        if pack <= set(unit.jobs):
            rest = [[job_id for job_id in unit.jobs if job_id not in pack]]
            split = ([key for key in unit.runs if key.job_id in part] for part in [*parts, *rest])
            found += [unit_of(runs[key] for key in keys) for keys in split if keys]
        else:
            found.append(unit)
    return found
