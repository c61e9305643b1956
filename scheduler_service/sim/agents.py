"""Agents that are not there: they obey orders at once, and their processes do nothing but pass the time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

from scheduler_service.core.job import RunKey
from scheduler_service.core.messages import RunExited, RunStarted, Start
from scheduler_service.core.values import Micros

Delay = Callable[[Random], Micros]


def none(_rng: Random) -> Micros:
    return 0


class Delays(NamedTuple):
    """How long what a node does takes. The defaults are the FitGpp paper's: a run takes all of its grace period to leave, and
    everything else takes no time."""

    start: Delay = none
    """From the order to the process."""
    resume: Delay = none
    """Until a run that goes on from a checkpoint works again."""
    checkpoint: Delay | None = None
    """From the signal until the run has left, at most its grace period; None: all of that."""


AT_ONCE = Delays()


class What(IntEnum):
    """What happens to a run on its node."""

    STARTED = 1
    FINISHED = 2
    LEFT = 3


class Happened(NamedTuple):
    at: Micros
    number: int
    key: RunKey
    what: What


@dataclass(slots=True)
class Task:
    """A run on its node."""

    node: int
    due: int = 0
    """The number of what happens to it next; what has another number happens no more."""
    works_from: Micros | None = None


class Node(NamedTuple):
    name: str
    boot: str


class Agents:
    """The agents of all nodes, and the heap of what is to happen on them."""

    def __init__(self, delays: Delays, rng: Random) -> None:
        self._delays = delays
        self._rng = rng
        self._heap: list[Happened] = []
        self._number = 0
        self._nodes: dict[int, Node] = {}
        self._sequences: dict[int, int] = {}
        self._tasks: dict[RunKey, Task] = {}

    def join(self, node: int, name: str, boot: str) -> None:
        self._nodes[node] = Node(name, boot)
        self._sequences[node] = 0

    def next_us(self) -> Micros | None:
        return self._heap[0].at if self._heap else None

    def start(self, order: Start, now: Micros) -> None:
        task = self._tasks[order.run.key] = Task(order.node)
        self._then(task, now + self._delays.start(self._rng), order.run.key, What.STARTED)

    def stop(self, key: RunKey, grace_us: Micros, now: Micros) -> Micros:
        """Returns for how long the run has worked. It leaves at the end of its grace period, or when its checkpoint is made."""
        task = self._tasks[key]
        if task.works_from is None:  # its process is not there yet
            self._then(task, now, key, What.LEFT)
            return 0
        takes = grace_us if self._delays.checkpoint is None else min(self._delays.checkpoint(self._rng), grace_us)
        self._then(task, now + takes, key, What.LEFT)
        return max(now - task.works_from, 0)

    def works(self, key: RunKey, at: Micros, left_us: Micros, resumes: bool) -> None:
        """The run's process began: it works until nothing is left to do."""
        task = self._tasks[key]
        task.works_from = at + (self._delays.resume(self._rng) if resumes else 0)
        self._then(task, task.works_from + left_us, key, What.FINISHED)

    def _then(self, task: Task, at: Micros, key: RunKey, what: What) -> None:
        self._number += 1
        task.due = self._number
        heappush(self._heap, Happened(at, self._number, key, what))

    def happened(self, now: Micros) -> Iterator[tuple[Happened, RunStarted | RunExited]]:
        """All that has happened up to now, in order, and how it is reported. What is said of it may make more happen."""
        while self._heap and self._heap[0].at <= now:
            this = heappop(self._heap)
            task = self._tasks.get(this.key)
            if task is None or task.due != this.number:
                continue
            node, sequence = self._nodes[task.node], self._sequences[task.node] + 1
            self._sequences[task.node] = sequence
            if this.what is What.STARTED:
                yield this, RunStarted(node.name, node.boot, sequence, this.key, "")
            else:
                del self._tasks[this.key]
                yield this, RunExited(node.name, node.boot, sequence, this.key, yielded=this.what is What.LEFT)
