"""The queue of the engine's thread: events in three lanes, and questions.

What agents report is taken first and never refused; of agents that connect, a few are taken in each step; what users ask is
refused when too much of it waits.
"""

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from scheduler_service.core.engine import Policy
from scheduler_service.core.messages import Event, NodeSeen, Reply, Request, Rng, RunStarted
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State

BATCH = 200
"""Events of one step: about 20 ms of work."""
JOINING = 32
"""Agents that connect in one step, of however many: about 15 ms of work, which is what users wait for them."""
LINGER = 0.005
"""Seconds that a report which nothing waits for may wait for others, to be committed with them."""
WAITING_REQUESTS = 2000
"""Requests of users that may wait; more are refused."""
WAITING_QUESTIONS = 100
"""The same for questions, which cost more."""

T = TypeVar("T")


class Overloaded(Exception):
    """Too many requests wait already, of one user where `user` is given; try again in a moment."""

    def __init__(self, user: str = "", most: int = 0) -> None:
        super().__init__(f"{most} requests of {user} wait" if user else "too many requests wait")
        self.user = user
        self.most = most
        """How many of a user may wait."""


class NotLeading(Exception):
    """This scheduler does not lead (any more). `leader` is the address of the one that does, where that is known."""

    def __init__(self, leader: str = "") -> None:
        super().__init__(f"the leader is {leader}" if leader else "it is not known who leads")
        self.leader = leader


class Waiting(NamedTuple):
    event: Event
    outcome: "asyncio.Future[Reply]"


Question = Callable[[State, Micros, Rng, Policy], T]
"""A function of the state, the present time, the randomness of the next step, and the current policy."""


class Asked(NamedTuple):
    question: Question[Any]
    outcome: "asyncio.Future[Any]"


class Lanes:
    """Filled from the event loop, on which it is made, and emptied by the engine's thread."""

    def __init__(self) -> None:
        self.stopping = False
        self._loop = asyncio.get_running_loop()
        self._wake = threading.Condition()
        self._reports: deque[Waiting] = deque()
        self._joining: deque[Waiting] = deque()
        self._requests: deque[Waiting] = deque()
        self._questions: deque[Asked] = deque()

    def put(self, event: Event) -> "asyncio.Future[Reply]":
        """Raises Overloaded, NotLeading."""
        outcome: asyncio.Future[Reply] = self._loop.create_future()
        if isinstance(event, NodeSeen):
            self._add(self._joining, Waiting(event, outcome))
        elif isinstance(event, Request):
            self._add(self._requests, Waiting(event, outcome), WAITING_REQUESTS)
        else:
            self._add(self._reports, Waiting(event, outcome))
        return outcome

    def ask(self, question: "Question[T]") -> "asyncio.Future[T]":
        """Raises Overloaded, NotLeading."""
        outcome: asyncio.Future[T] = self._loop.create_future()
        self._add(self._questions, Asked(question, outcome), WAITING_QUESTIONS)
        return outcome

    def _add(self, lane: deque[Any], waiting: Waiting | Asked, most: float = math.inf) -> None:
        with self._wake:
            if self.stopping:
                raise NotLeading
            if len(lane) >= most:
                raise Overloaded
            lane.append(waiting)
            self._wake.notify()

    def stop(self) -> "list[Waiting | Asked]":
        """Close the queue, and return what still waits."""
        with self._wake:
            self.stopping = True
            self._wake.notify()
            return [*self._reports, *self._joining, *self._requests, *self._questions]

    # ---- for the engine's thread ---------------------------------------------------------------------------------------

    def next_batch(self, until_deadline: Callable[[], float | None]) -> list[Waiting] | None:
        """Wait for events or the next deadline, and return the events; None means stop. Empty if a deadline has passed or a
        question waits. `until_deadline` returns the seconds until the next deadline."""
        with self._wake:
            while not (self._events_wait() or self._questions or self.stopping):
                wait = until_deadline()
                if wait is not None and wait <= 0:
                    return []
                self._wake.wait(wait)
            if not self._urgent():
                self._wake.wait_for(self._urgent, LINGER)
            if self.stopping:
                return None
            batch: list[Waiting] = []
            for lane, most in ((self._reports, BATCH), (self._joining, JOINING), (self._requests, BATCH)):
                for _ in range(min(len(lane), most, BATCH - len(batch))):
                    batch.append(lane.popleft())
            return batch

    def next_question(self, in_turn: bool) -> Asked | None:
        """Return the next question if it is `in_turn` or nothing else waits: frequent questions must not delay events."""
        if not self._questions or (not in_turn and (self._events_wait() or self.stopping)):
            return None
        return self._questions.popleft()

    def _events_wait(self) -> bool:
        return bool(self._reports or self._joining or self._requests)

    def _urgent(self) -> bool:
        """Whether something cannot wait. The start of a run changes no decision, and its end may follow soon."""
        if self.stopping or self._joining or self._requests or self._questions:
            return True
        return not all(isinstance(w.event, RunStarted) for w in self._reports)
