"""The engine at work: one thread that owns the state, and makes every step durable before anybody hears of it.

Others only enqueue an event and await its outcome, so a client that hangs up cannot break a commit. There are three lanes:
what agents report is taken first and never refused; of agents that connect, a few are taken in each step; what users ask is
refused when too much of it waits. After a commit the event loop gets, in one call and in this order: the view's changes, the
orders for the nodes, the replies.
"""

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from scheduler_service.core.engine import Policy, step
from scheduler_service.core.errors import Refused
from scheduler_service.core.messages import Event, NodeSeen, Order, Reply, Request, Rng, RunStarted, Step
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.randomness import Drawing
from scheduler_service.run.ports import CommitRefused, LeadershipLost, NotCommitted, RequestKnown, Writer
from scheduler_service.run.queue_heads import Heads, heads_of
from scheduler_service.run.recording.record import Recorder
from scheduler_service.run.repeated_requests import answered, done_before
from scheduler_service.run.view import View

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

log = logging.getLogger(__name__)


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


class _Waiting(NamedTuple):
    event: Event
    outcome: "asyncio.Future[Reply]"


Question = Callable[[State, Micros, Rng, Policy], T]
"""What is asked of the state, with the present time, the randomness of the next step, and the policy at work."""


class _Asked(NamedTuple):
    question: Question[Any]
    outcome: "asyncio.Future[Any]"


class _Published(NamedTuple):
    """What the event loop is told after a commit."""

    commit_no: int
    step: Step
    batch: Sequence[_Waiting]
    replies: Sequence[Reply | Exception]
    heads: Heads


class Service:
    """Owns the state while this scheduler leads. Made on the event loop; `start` begins the engine's thread."""

    def __init__(
        self,
        state: State,
        view: View,
        policy: Policy,
        writer: Writer,
        dispatch: Callable[[Sequence[Order]], None],
        now: Callable[[], int],
        recorder: Recorder | None = None,
    ) -> None:
        self.view = view
        self.stopped: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        """Done when the engine has stopped: None after `stop`, else why leadership ended."""
        self._state = state
        self._policy = policy
        self._writer = writer
        self._dispatch = dispatch
        self._now = now
        self._recorder = recorder or Recorder()
        self._loop = asyncio.get_running_loop()
        self._commit_no = view.commit_no
        self._wake = threading.Condition()
        self._reports: deque[_Waiting] = deque()
        self._joining: deque[_Waiting] = deque()
        self._requests: deque[_Waiting] = deque()
        self._questions: deque[_Asked] = deque()
        self._in_hand: Sequence[_Waiting] = ()
        """The batch that the engine has taken, whole or in part not answered yet."""
        self._stopping = False
        self._lost = False
        """Whether the last commit was lost: it is said once."""
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        view.heads = heads_of(state)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Asks the engine to end after the step at hand; `stopped` is done when it has."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    # ---- from the event loop -------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> "asyncio.Future[Reply]":
        """Enqueues an event; the future is done once it is durable, or refused.

        Raises Overloaded, NotLeading. The future raises Refused, NotCommitted, NotLeading.
        """
        lane = self._lane(event)
        waiting = _Waiting(event, self._loop.create_future())
        with self._wake:
            if self._stopping:
                raise NotLeading
            if lane is self._requests and len(lane) >= WAITING_REQUESTS:
                raise Overloaded
            lane.append(waiting)
            self._wake.notify()
        return waiting.outcome

    def _lane(self, event: Event) -> deque[_Waiting]:
        if isinstance(event, NodeSeen):
            return self._joining
        return self._requests if isinstance(event, Request) else self._reports

    def ask(self, question: "Question[T]") -> "asyncio.Future[T]":
        """Has the engine's thread answer a question from the state, between two steps. Whatever the question does to the
        state is undone.

        Raises Overloaded, NotLeading. The future raises NotLeading, and what the question raises.
        """
        asked = _Asked(question, self._loop.create_future())
        with self._wake:
            if self._stopping:
                raise NotLeading
            if len(self._questions) >= WAITING_QUESTIONS:
                raise Overloaded
            self._questions.append(asked)
            self._wake.notify()
        return asked.outcome

    def _publish(self, published: _Published) -> None:
        try:
            self.view.apply(published.commit_no, published.step.changes, published.heads)
            self._dispatch(published.step.orders)
            if published.step.orders:
                # The kernel takes who writes to a socket for one that is about to sleep, and has the reader wait for this
                # core while another is idle. So it gets it, as soon as the orders are sent and before the replies are worded.
                self._loop.call_soon(os.sched_yield)
        except Exception:  # what readers see and nodes were told is not what is true any more: begin again from the database
            log.exception("could not make a commit known")
            self.stop()
        self._answer(published.batch, published.replies)

    def _answer(self, batch: "Sequence[_Waiting | _Asked]", replies: Sequence[Any]) -> None:
        for waiting, reply in zip(batch, replies, strict=True):
            if waiting.outcome.done():  # whoever asked has gone; what was asked is done all the same
                continue
            if isinstance(reply, Exception):
                waiting.outcome.set_exception(reply)
            else:
                waiting.outcome.set_result(reply)

    # ---- the engine's thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        why: Exception | None = None
        try:
            while (batch := self._next_batch()) is not None:
                self._in_hand = batch
                self._take(batch)
                self._in_hand = ()
                self._answer_questions()
        except Exception as fault:  # leadership lost, or a fault: in both cases the state here is worth nothing any more
            why = fault
            self._recorder.failed(fault)
            if not isinstance(fault, LeadershipLost):
                log.error("the engine failed; its state is dropped and loaded again")
        with self._wake:
            self._stopping = True
            left: list[_Waiting | _Asked] = [
                *self._in_hand,
                *self._reports,
                *self._joining,
                *self._requests,
                *self._questions,
            ]
        self._loop.call_soon_threadsafe(self._end, left, why)

    def _end(self, left: "Sequence[_Waiting | _Asked]", why: Exception | None) -> None:
        self._answer(left, [NotLeading()] * len(left))
        self.view.close()
        self.stopped.set_result(why)

    def _next_batch(self) -> list[_Waiting] | None:
        """Waits for events or for the next deadline; None: stop."""
        with self._wake:
            while not (self._events_wait() or self._questions or self._stopping):
                wait = self._until_deadline()
                if wait is not None and wait <= 0:
                    return []
                self._wake.wait(wait)
            if not self._urgent():
                self._wake.wait_for(self._urgent, LINGER)
            if self._stopping:
                return None
            batch: list[_Waiting] = []
            for lane, most in ((self._reports, BATCH), (self._joining, JOINING), (self._requests, BATCH)):
                for _ in range(min(len(lane), most, BATCH - len(batch))):
                    batch.append(lane.popleft())
            return batch

    def _events_wait(self) -> bool:
        return bool(self._reports or self._joining or self._requests)

    def _urgent(self) -> bool:
        """Whether something in the lanes cannot wait. That a run has started changes no decision, and its end may follow."""
        if self._stopping or self._joining or self._requests or self._questions:
            return True
        return not all(isinstance(w.event, RunStarted) for w in self._reports)

    def _is_due(self) -> bool:
        wait = self._until_deadline()
        return wait is not None and wait <= 0

    def _until_deadline(self) -> float | None:
        """Seconds until the soonest deadline of the state."""
        deadlines = self._state.deadlines
        return (deadlines[0][0] - self._now()) / 1e6 if deadlines else None

    def _answer_questions(self) -> None:
        """One, and more of them while nothing else waits: whoever asks again and again holds nobody up."""
        answered = False
        while self._questions and not (answered and (self._events_wait() or self._stopping or self._is_due())):
            answered = True
            asked = self._questions.popleft()
            state = self._state
            flags = state.unsettled, state.board_changed
            try:
                rng = Drawing(state.cluster.seed, self._commit_no + 1)
                answer: Any = asked.question(state, self._now(), rng, self._policy)
            except Exception as fault:
                answer = fault
            finally:
                state.undo()
                state.unsettled, state.board_changed = flags
            self._loop.call_soon_threadsafe(self._answer, [asked], [answer])

    def _take(self, batch: Sequence[_Waiting]) -> None:
        """One step with its commit. What the database refuses is found out and refused alone; the others are taken again."""
        try:
            try:
                self._step(batch)
            except RequestKnown as refusal:
                self._undo()
                answers = done_before(self._state, self._writer, [w.event for w in batch])
                self._take_others(batch, answers, refusal)
            except CommitRefused as refusal:
                self._undo()
                self._take_others(batch, {}, refusal)
        except NotCommitted as lost:
            self._undo()
            if not self._lost:
                log.error("nothing can be committed, and whoever asks is told so: %s", lost)
            self._lost = True
            self._settle_later(batch, [lost] * len(batch))
            if not batch:  # a deadline that could not be kept: not at once again
                time.sleep(0.2)

    def _undo(self) -> None:
        self._state.undo()
        self._recorder.undone()

    def _take_others(self, batch: Sequence[_Waiting], repeated: dict[int, Reply | Exception], refusal: CommitRefused) -> None:
        """After a refusal: answers the repeated submits (by their place in the batch) and takes the rest again."""
        self._settle_later([batch[i] for i in repeated], list(repeated.values()))
        rest = [waiting for i, waiting in enumerate(batch) if i not in repeated]
        if repeated:
            if rest:
                self._take(rest)
        elif len(batch) > 1:
            for waiting in batch:
                self._take([waiting])
        elif batch:
            self._settle_later(batch, [refusal])
        else:
            raise refusal

    def _step(self, batch: Sequence[_Waiting]) -> None:
        state = self._state
        commit_no, now, events = self._commit_no + 1, self._now(), [w.event for w in batch]
        self._recorder.taking(commit_no, now, (state.unsettled, state.board_changed), events)
        taken = step(state, events, now, Drawing(state.cluster.seed, commit_no), self._policy)
        self._recorder.taken(taken)
        for why in taken.refused:
            log.warning("a plan was refused: %s", why)
        for reply in taken.replies:
            if isinstance(reply, Exception) and not isinstance(reply, Refused):
                log.error("an event was rejected", exc_info=reply)
        replies = answered(state, self._writer, events, taken.replies)
        if taken.log or any(change.table != "cluster" for change in taken.changes):
            self._commit_no = self._writer.commit(taken.changes, taken.log)
            if self._lost:
                log.info("commits are possible again")
                self._lost = False
        state.adopt()
        published = _Published(self._commit_no, taken, batch, replies, heads_of(state))
        self._loop.call_soon_threadsafe(self._publish, published)
        self._recorder.adopted()

    def _settle_later(self, batch: Sequence[_Waiting], replies: Sequence[Reply | Exception]) -> None:
        self._loop.call_soon_threadsafe(self._answer, batch, replies)
