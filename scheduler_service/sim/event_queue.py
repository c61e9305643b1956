"""What is to happen on simulated nodes, in the order of its times; at one time, in the order in which it was noted."""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from scheduler_service.core.model.values import Micros
from scheduler_service.sim.failures import Failure
from scheduler_service.sim.nodes import Node, Task, What
from scheduler_service.sim.sharing.turns import Turn

Subject = Task | Node | Failure | Turn


class Agenda:
    """Tasks have one next thing that happens to them (`Task.next`); what took its place is skipped by its number."""

    def __init__(self) -> None:
        self._heap: Final[list[tuple[Micros, int, What, Subject]]] = []
        self._number = 0
        self._gathering: Final[list[Micros]] = []
        """When tasks of gangs come together: a heap."""

    def push(self, at: Micros, what: What, subject: Subject) -> None:
        """Happens whatever else does."""
        self._number += 1
        heappush(self._heap, (at, self._number, what, subject))

    def then(self, task: Task, at: Micros, what: What) -> None:
        """Happens to the task in the place of what was to happen next."""
        self.push(at, what, task)
        task.due, task.next = self._number, what

    def gathers(self, task: Task, at: Micros, what: What) -> None:
        """The same, of a gang that comes together."""
        self.then(task, at, what)
        heappush(self._gathering, at)

    def next_us(self) -> Micros | None:
        return self._heap[0][0] if self._heap else None

    def gathering_us(self) -> Micros | None:
        """When the next task of a gang is ready, or begins."""
        return self._gathering[0] if self._gathering else None

    def is_due(self, now: Micros) -> bool:
        return bool(self._heap) and self._heap[0][0] <= now

    def due(self, now: Micros) -> Iterator[tuple[Micros, int, What, Subject]]:
        """Takes what happens up to now, with what is noted meanwhile."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            yield heappop(heap)
        while self._gathering and self._gathering[0] <= now:
            heappop(self._gathering)
