"""The runs that a trial may preempt, as columns, so that FitGpp scores all of them in one computation.

A run has a slot while it is a candidate. No decision depends on which slot it is.
"""

from collections.abc import Iterable
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.model import Job, Run, RunKey
from scheduler_service.core.model.values import Vector


def size_of(demand: Vector, capacity: Vector) -> float:
    """Return the size by Eqn 1 (FitGpp): the Euclidean length of demand / capacity of the node. A zero capacity adds 0."""
    square = 0.0
    for have, whole in zip(demand, capacity, strict=True):
        if whole:
            square += (have / whole) ** 2
    return sqrt(square)


class Candidates:
    """Columns over slots: `demand` (3 rows), `size`, `grace` (microseconds), `node`, `count` (preemptions), `job`,
    `priority`, `tasks` (of its job: each task of a gang has a slot of its own), `task` (its rank), `unit`.

    Slots of the same unit are preempted together: those of a job, by its id, or those of a share group, by its negative id.
    What a share group holds on a node is in the slot of its first member there; the `demand` of other members is zero.

    Beyond `used` slots nothing is live; within, a free slot has `job` 0.
    """

    __slots__ = (
        "_free",
        "_slots",
        "count",
        "demand",
        "gangs",
        "grace",
        "job",
        "keys",
        "node",
        "priority",
        "size",
        "task",
        "tasks",
        "unit",
        "used",
    )

    def __init__(self) -> None:
        self._slots: dict[RunKey, int] = {}
        self._free: list[int] = []
        self.used = 0
        self.gangs = 0
        """Number of slots whose runs are tasks of gangs, or in share groups."""
        self.keys: list[RunKey | None] = []
        self.demand: NDArray[np.int64] = np.zeros((3, 16), dtype=np.int64)
        self.size: NDArray[np.float64] = np.zeros(16)
        self.grace: NDArray[np.int64] = np.zeros(16, dtype=np.int64)
        self.node: NDArray[np.int64] = np.zeros(16, dtype=np.int64)
        self.count: NDArray[np.int64] = np.zeros(16, dtype=np.int64)
        self.job: NDArray[np.int64] = np.zeros(16, dtype=np.int64)
        self.priority: NDArray[np.int64] = np.zeros(16, dtype=np.int64)
        self.tasks: NDArray[np.int64] = np.zeros(16, dtype=np.int64)
        self.task: NDArray[np.int64] = np.zeros(16, dtype=np.int64)
        self.unit: NDArray[np.int64] = np.zeros(16, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._slots)

    def put(self, key: RunKey, run: Run, job: Job, capacity: Vector, holding: Vector | None = None) -> None:
        """Adds or updates a run. `capacity` is that of its node; `holding` is what counts for the run (see `holdings.holding`),
        None: its demand."""
        demand = run.demand if holding is None else holding
        slot = self._slots.get(key)
        if slot is None:
            slot = self._take_slot()
            self._slots[key] = slot
            self.keys[slot] = key
        self.demand[0, slot], self.demand[1, slot], self.demand[2, slot] = demand
        self.size[slot] = size_of(demand, capacity)
        self.grace[slot] = job.spec.grace_us
        self.node[slot] = run.node
        self.count[slot] = job.preempted_for_trial
        self.job[slot] = key.job_id
        self.priority[slot] = job.priority
        tasks = sum(group.size for group in job.launch_spec.gang) or 1
        self.gangs -= self._is_part(slot)
        self.tasks[slot] = tasks
        self.task[slot] = key.task
        self.unit[slot] = -run.group or key.job_id
        self.gangs += self._is_part(slot)

    def drop(self, key: RunKey) -> None:
        """Removes a run, if it is a candidate."""
        slot = self._slots.pop(key, None)
        if slot is None:
            return
        self.keys[slot] = None
        self.job[slot] = 0
        self.size[slot] = 0.0
        self.grace[slot] = 0
        self.node[slot] = 0
        self.gangs -= self._is_part(slot)
        self.tasks[slot] = 0
        self.unit[slot] = 0
        self._free.append(slot)

    def _is_part(self, slot: int) -> bool:
        """Whether other runs may be preempted with the one in this slot."""
        return bool(self.tasks[slot] > 1 or self.unit[slot] < 0)

    def slots_of(self, keys: Iterable[RunKey]) -> NDArray[np.intp]:
        """Return the slots of those of these runs that are candidates."""
        return np.array([self._slots[key] for key in keys if key in self._slots], dtype=np.intp)

    def _take_slot(self) -> int:
        if self._free:
            return self._free.pop()
        slot = self.used
        self.used += 1
        self.keys.append(None)
        if slot == len(self.size):
            self.demand = np.concatenate([self.demand, np.zeros_like(self.demand)], axis=1)
            for name in ("size", "grace", "node", "count", "job", "priority", "tasks", "task", "unit"):
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
        return slot

    def snapshot(self) -> dict[RunKey, tuple[object, ...]]:
        return {
            key: (
                tuple(self.demand[:, i].tolist()),
                float(self.size[i]),
                int(self.grace[i]),
                int(self.node[i]),
                int(self.count[i]),
                int(self.priority[i]),
                int(self.tasks[i]),
                *([int(self.unit[i])] if self.unit[i] < 0 else ()),
            )
            for key, i in self._slots.items()
        }
