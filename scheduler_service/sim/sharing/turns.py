"""The turns in a share group, and the cost of each change of turns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scheduler_service.core.messages import SharePlan
from scheduler_service.core.model import RunKey
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.values import Micros
from scheduler_service.sim.nodes import Party
from scheduler_service.sim.sharing.model import BILLION
from scheduler_service.sim.sharing.setup import Switching


@dataclass(slots=True)
class Group:
    """A share group, as the agents of its nodes know it."""

    number: int
    generation: int
    rows: tuple[Row, ...]
    period_us: Micros
    since_us: Micros
    """When the first cycle of this plan began."""
    due: int = 0
    """The number of the next change of turns; changes with other numbers are obsolete."""
    counted_us: Micros = 0
    """The time until which its changes of turns are counted."""

    def takes(self, plan: SharePlan, now: Micros) -> bool:
        """Adopt the plan, unless it is older than the present one; return whether it was adopted."""
        if plan.generation <= self.generation:
            return False
        self.generation, self.period_us, self.since_us = plan.generation, plan.period_us, now
        self.rows = plan.rows
        return True

    def active(self, at: Micros) -> tuple[int, Micros]:
        """The number of the row that is active at this time, and when the next one will be. If the weights do not divide the
        period evenly, a turn ends at the last whole microsecond."""
        cycles, into = divmod(at - self.since_us, self.period_us)
        each = weights(self.rows)
        whole, ends, passed = sum(each), self.since_us + cycles * self.period_us, 0
        for number, weight in enumerate(each):
            passed += weight
            until = self.period_us * passed // whole
            if into < until:
                return number, ends + until
        raise AssertionError("the last row ends with the cycle")


class Turn(NamedTuple):
    """An event on the heap of the agents: the next row of a group becomes active."""

    group: Group
    due: int
    """The number of this change in the group."""


def keys_of(rows: Iterable[Row]) -> set[RunKey]:
    return {key for row in rows for key in row.runs}


def weights(rows: Iterable[Row]) -> list[int]:
    """Rows of weight 0 have turns only if there are no others."""
    each = [row.weight for row in rows]
    return each if any(each) else [1] * len(each)


def with_turns(rows: Sequence[Row]) -> list[Row]:
    """The rows that have a turn."""
    return [row for row, weight in zip(rows, weights(rows), strict=True) if weight]


def users(row: Row, parties: Mapping[RunKey, Party], of: Party) -> list[Party]:
    """The other parties of the row that have a device of this one, in order."""
    found: dict[int, Party] = {}
    for key in row.runs:
        party = parties.get(key)
        if party is not None and party is not of and overlap(party, of):
            found[id(party)] = party
    return list(found.values())


def overlap(one: Party, other: Party) -> bool:
    """Whether the two have a device in common."""
    mine = {(id(task.node), device) for task in one.tasks for device in task.devices}
    return any((id(task.node), device) in mine for task in other.tasks for device in task.devices)


def is_in(row: Row, party: Party) -> bool:
    return party.tasks[0].key in row.runs


def entry_us(group: Group, number: int, of: Party, parties: Mapping[RunKey, Party], switching: Switching) -> Micros:
    """The time of the party's turn that is lost until it executes in this row: runs with its devices in the row before are
    parked first, and then it is resumed. 0 if it executes in the row before, too."""
    row, turns = group.rows[number], with_turns(group.rows)
    before = turns[turns.index(row) - 1] if row in turns else row
    if len(turns) == 1 or is_in(before, of):
        return 0
    parked = [other for other in users(before, parties, of) if not is_in(row, other)]
    return max((switching.parks(other.kind) for other in parked), default=0) + switching.resumes(of.kind)


def part_of_cycle(group: Group, number: int, lost_us: Micros) -> int:
    """The part of the time in which a party executes in this row, in billionths, if `lost_us` of each of its turns are lost."""
    each = weights(group.rows)
    turn = group.period_us * each[number] * BILLION // sum(each)
    return max(turn - lost_us * BILLION, 0) // group.period_us


def leaving(rows: Sequence[Row]) -> int:
    """The number of runs that are parked in one cycle."""
    turns = with_turns(rows)
    return sum(len(set(turns[number - 1].runs) - set(row.runs)) for number, row in enumerate(turns))
