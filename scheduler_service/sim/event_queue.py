"""The queue of events on simulated nodes, by time, and for the same time in the order in which they were added."""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from scheduler_service.core.model.values import Micros
from scheduler_service.sim.failures import Failure
from scheduler_service.sim.nodes import Node, Task, What
from scheduler_service.sim.sharing.turns import Turn

Subject = Task | Node | Failure | Turn


class Agenda:
    """The events to come. Each task has one next event (`Task.next`); an event that was replaced is skipped by its number."""

    def __init__(self) -> None:
        self._heap: Final[list[tuple[Micros, int, What, Subject]]] = []
        self._number = 0
        self._gathering: Final[list[Micros]] = []
        """A heap of the times at which tasks of gangs gather."""

    def push(self, at: Micros, what: What, subject: Subject) -> None:
        """Add an event that happens in any case."""
        self._number += 1
        heappush(self._heap, (at, self._number, what, subject))

    def set_next(self, task: Task, at: Micros, what: What) -> None:
        """Set the next event of a task in place of its previous one."""
        self.push(at, what, task)
        task.due, task.next = self._number, what

    def gathers(self, task: Task, at: Micros, what: What) -> None:
        """Set the next event of a task whose gang gathers."""
        self.set_next(task, at, what)
        heappush(self._gathering, at)

    def next_us(self) -> Micros | None:
        return self._heap[0][0] if self._heap else None

    def gathering_us(self) -> Micros | None:
        """When the next task of a gang is ready or begins."""
        return self._gathering[0] if self._gathering else None

    def is_due(self, now: Micros) -> bool:
        return bool(self._heap) and self._heap[0][0] <= now

    def pop_due(self, now: Micros) -> Iterator[tuple[Micros, int, What, Subject]]:
        """Take the events up to now, including those that are added meanwhile."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            yield heappop(heap)
        while self._gathering and self._gathering[0] <= now:
            heappop(self._gathering)
