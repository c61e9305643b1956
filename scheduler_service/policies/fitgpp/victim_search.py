"""The runs that a trial may preempt, from which every rule chooses, and how runs are drawn from them.

Of the rules in the design about who may preempt whom, this is one: a trial may preempt any best-effort run of no higher
priority that was preempted fewer than P times and has run for its guaranteed time. A choice is a plan; nothing has changed
until it is carried out.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.messages import Rng
from scheduler_service.core.model import Job
from scheduler_service.core.model.values import Vector, add, fits, sub
from scheduler_service.core.state.holdings import holding, runs_together
from scheduler_service.core.state.preemption_rights import RULES, claim_of
from scheduler_service.core.state.resources.packing import largest_first
from scheduler_service.core.state.state import State

Mask = NDArray[np.bool_]


class Field:
    """J, the runs that one trial may preempt, as columns; and what is free, as victims go and tasks of the trial come.

    A place of the columns is a task. Those of one unit, a gang or a share group with all jobs in it, share its size, and go
    together.
    """

    def __init__(self, state: State, trial: Job, slots: NDArray[np.intp], cap: int) -> None:
        c = state.candidates
        self.state, self.trial, self.slots = state, trial, slots
        self.job, self.node = c.job.take(slots), c.node.take(slots)
        self.unit = c.unit.take(slots) if c.gangs else self.job
        self.size, self.grace = c.size.take(slots), c.grace.take(slots)
        self.demand: NDArray[np.int64] = c.demand.take(slots, axis=1)
        self.under_cap: Mask = c.count.take(slots) < cap
        self.offered: NDArray[np.int64] = state.free_resources.offered_resources(state.suitable_for(trial.spec))
        self.victims: list[int] = []
        """Jobs, in the order in which they were chosen; with each go the others of its share group."""
        self.chosen: list[int] = []
        """The units of the victims."""
        self.task_nodes: dict[int, int] = {}
        """Rank -> node."""
        self._tasks = trial.spec.tasks()
        self._last_node = 0
        """The node on which the victim that was chosen last makes room."""
        self.gangs: Mask = (c.tasks.take(slots) > 1) | (self.unit < 0) if c.gangs else np.zeros(len(slots), np.bool_)
        """Places of which others may be of the same unit."""
        if c.gangs and self.gangs.any():
            self._gather()
        if len(self._tasks) > 1:
            self.offered = self.offered.copy()

    def _gather(self) -> None:
        """Gives every task of a unit the size and the grace period of the whole, and what the unit holds on its node. A share
        group is under the cap if all of its jobs are."""
        places = np.nonzero(self.gangs)[0]
        units, unit = np.unique(self.unit[places], return_inverse=True)
        self.size, self.grace, self.under_cap = self.size.copy(), self.grace.copy(), self.under_cap.copy()
        self.size[places] = np.bincount(unit, weights=self.size[places])[unit]
        longest, spared = np.zeros(len(units), np.int64), np.zeros(len(units), np.bool_)
        np.maximum.at(longest, unit, self.grace[places])
        np.logical_or.at(spared, unit, ~self.under_cap[places])
        self.grace[places], self.under_cap[places] = longest[unit], ~spared[unit]
        _, here = np.unique(np.stack([self.unit[places], self.node[places]]), axis=1, return_inverse=True)
        here = here.reshape(-1)
        self.demand = self.demand.copy()
        for resource in range(3):
            self.demand[resource, places] = np.bincount(here, weights=self.demand[resource, places])[here].astype(np.int64)

    def ranks(self) -> list[int]:
        """The trial's tasks, the largest first."""
        return largest_first(self._tasks)

    def need(self, rank: int) -> Vector:
        return self._tasks[rank]

    def place_task(self, rank: int) -> bool:
        """Give the task a node that has room, if there is one. The only task of a trial gets one only once there are victims,
        since the queue would have placed it otherwise."""
        if len(self._tasks) == 1:
            if not self.victims:
                return False
            self.task_nodes[rank] = self._last_node
            return True
        cpu, memory, devices = self._tasks[rank]
        enough = (self.offered[2] >= devices) & (self.offered[0] >= cpu) & (self.offered[1] >= memory)
        enough[0] = False
        node = int(enough.argmax())
        if not enough[node]:
            return False
        self.offered[:, node] -= self._tasks[rank]
        self.task_nodes[rank] = node
        return True

    def sufficient(self, rank: int) -> Mask:
        """Eqn 2, `D_TE <= D_BE + N`, for each place."""
        enough: Mask = np.ones(len(self.job), dtype=np.bool_)
        for resource, need in enumerate(self._tasks[rank]):
            enough &= self.demand[resource] + self.offered[resource].take(self.node) >= need
        return enough

    def free_to_go(self) -> Mask:
        """The places under the cap that are not chosen already."""
        if not self.victims:
            return self.under_cap
        return self.under_cap & ~np.isin(self.unit, self.chosen)

    def release(self, place: int) -> None:
        """Chooses the unit at this place: all of its tasks go, on whatever nodes."""
        job, unit = int(self.job[place]), int(self.unit[place])
        self._last_node = int(self.node[place])
        if unit in self.chosen:  # it was chosen at another place, for what it holds there
            return
        self.victims.append(job)
        self.chosen.append(unit)
        if len(self._tasks) > 1:
            for run in runs_together(self.state, job):
                if self.state.is_usable(self.trial.spec, run.node):
                    self.offered[:, run.node] += holding(self.state, run)


def field_for(state: State, trial: Job, cap: int) -> Field | None:
    """Return the field of a trial. None: there is nothing that it may preempt."""
    c, claim = state.candidates, claim_of(state, trial)
    if claim is None:
        return None
    used = slice(0, c.used)
    offered = state.free_resources.offered_resources(state.suitable_for(trial.spec))
    mask = (c.job[used] > 0) & (offered[2].take(c.node[used]) >= 0) & RULES[claim].outranks(c.priority[used], trial.priority)
    slots = np.nonzero(mask)[0]
    if c.gangs and len(slots):
        slots = _whole_units(state, slots)
    return Field(state, trial, slots, cap) if len(slots) else None


def _whole_units(state: State, slots: NDArray[np.intp]) -> NDArray[np.intp]:
    """Leave out units of which some task cannot be stopped now, as on a silent node. The order is that of jobs and ranks: a
    unit's size is a sum of fractions, whose last bits depend on their order, and that of the slots depends on history."""
    c = state.candidates
    slots = slots[np.lexsort((c.task[slots], c.job[slots]))]
    parts = np.nonzero((c.tasks[slots] > 1) | (c.unit[slots] < 0))[0]
    unit, first, count = np.unique(c.unit[slots[parts]], return_index=True, return_counts=True)
    jobs = c.job[slots[parts[first]]].tolist()
    whole = np.array([count[i] == len(runs_together(state, job)) for i, job in enumerate(jobs)], dtype=np.bool_)
    keep = np.ones(len(slots), dtype=np.bool_)
    keep[parts] = np.isin(c.unit[slots[parts]], unit[whole])
    return slots[keep]


def draw(field: Field, rank: int, order: Iterable[int], sparing: bool = True) -> bool:
    """Takes runs in this order (places of the field) until those of one node make room there for the task. Sparing: those of
    other nodes stay, and so does any not needed. False, and none is chosen, if all of them together do not."""
    need = field.need(rank)
    drawn: list[int] = []
    room: dict[int, Vector] = {}
    for place in order:
        node = int(field.node[place])
        had = room.get(node, Vector(*field.offered[:, node].tolist()))
        room[node] = add(had, Vector(*field.demand[:, place].tolist()))
        drawn.append(place)
        if fits(need, room[node]):
            for chosen in _needed_victims(field, need, room[node], drawn, node) if sparing else drawn:
                field.release(chosen)
            return field.place_task(rank)
    return False


def random_order(field: Field, rank: int, rng: Rng, sparing: bool = True) -> Iterator[int]:
    """The paper preempts "a random BE job" when no single one suffices."""
    pool = pool_for(field, rank, sparing)
    while pool:
        drawn = rng.randrange(len(pool))
        pool[drawn], pool[-1] = pool[-1], pool[drawn]
        yield pool.pop()


def pool_for(field: Field, rank: int, sparing: bool = True) -> list[int]:
    """Places of runs that may be drawn, in order of their jobs: those under the cap; of tasks of one unit on one node, one.

    Sparing: those on nodes where they make room for the task all together. Runs on several nodes would not add up, so that
    drawing others is of no use, and as those are spared, of no harm.
    """
    places = np.nonzero(field.free_to_go())[0]
    places = places[np.lexsort((field.node[places], field.job[places]))]
    if len(places) and field.gangs[places].any():
        _, first = np.unique(np.stack([field.unit[places], field.node[places]]), axis=1, return_index=True)
        places = places[np.sort(first)]
    if sparing:
        places = places[_promising(field, rank, places)]
    pool: list[int] = places.tolist()
    return pool


def _promising(field: Field, rank: int, places: NDArray[np.intp]) -> Mask:
    """Which of the places are on a node where all of them that are there make room for the task together."""
    node = field.node[places]
    enough: Mask = np.ones(field.offered.shape[1], dtype=np.bool_)
    for resource, need in enumerate(field.need(rank)):
        together = np.bincount(node, weights=field.demand[resource, places], minlength=field.offered.shape[1])
        enough &= together + field.offered[resource] >= need
    promising: Mask = enough[node]
    return promising


def _needed_victims(field: Field, demand: Vector, room: Vector, drawn: list[int], node: int) -> list[int]:
    """Those drawn on this node; leaves out, first drawn first, every run without which there is room all the same."""
    kept = []
    for place in drawn:
        if int(field.node[place]) != node:
            continue
        without = sub(room, Vector(*field.demand[:, place].tolist()))
        if fits(demand, without):
            room = without
        else:
            kept.append(place)
    return kept
