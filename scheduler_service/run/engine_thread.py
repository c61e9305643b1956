"""The engine at work: one thread that owns the state, and makes every step durable before anybody hears of it.

Others only enqueue an event (see `lanes`) and await its outcome, so a client that hangs up cannot break a commit. After a
commit the event loop gets, in one call and in this order: the view's changes, the orders for the nodes, the replies.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from scheduler_service.core.engine import Policy, step
from scheduler_service.core.errors import Refused
from scheduler_service.core.messages import Delegate, Event, Order, Part, Reply, Step
from scheduler_service.core.model import EventKind
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.randomness import Drawing
from scheduler_service.run.engine_queue import Asked, Lanes, Question, Waiting
from scheduler_service.run.engine_queue import NotLeading as NotLeading
from scheduler_service.run.engine_queue import Overloaded as Overloaded
from scheduler_service.run.ports import CommitRefused, LeadershipLost, NotCommitted, RequestKnown, Writer
from scheduler_service.run.queue_heads import Heads, heads_of
from scheduler_service.run.read_model import View
from scheduler_service.run.recording.record import Recorder
from scheduler_service.run.refused_commits import RefusedCommits, Tried
from scheduler_service.run.repeated_requests import answer_repeats, done_before

T = TypeVar("T")

log = logging.getLogger(__name__)


class _Published(NamedTuple):
    """The outcome of a commit, for the event loop."""

    commit_no: int
    step: Step
    batch: Sequence[Waiting]
    replies: Sequence[Reply | Exception]
    heads: Heads
    introspecting: Mapping[str, Micros]


class EngineThread:
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
        delegate: Callable[[Sequence[Delegate]], None] = lambda _: None,
    ) -> None:
        """`dispatch` and `delegate` are called on the event loop, once what they get is durable."""
        self.view = view
        self.stopped: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        """Done when the engine has stopped: None after `stop`, else why leadership ended."""
        self._state = state
        self._policy = policy
        self._writer = writer
        self._dispatch = dispatch
        self._delegate = delegate
        self._now = now
        self._recorder = recorder or Recorder()
        self._loop = asyncio.get_running_loop()
        self._commit_no = view.commit_no
        self._lanes = Lanes()
        self._in_hand: Sequence[Waiting] = ()
        """The batch that the engine has taken, whole or in part not answered yet."""
        self._refused = RefusedCommits(state, self._attempt, self._tell, now)
        self._lost = False
        """Whether the last commit was lost: it is said once."""
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        view.heads = heads_of(state)
        self.introspecting = _introspecting(state)
        """The virtual clusters whose policies introspect (empty: the site), and how long after a measurement of a run they
        get the next one."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Asks the engine to end after the step at hand; `stopped` is done when it has."""
        self._lanes.stop()

    # ---- from the event loop -------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> "asyncio.Future[Reply]":
        """Enqueues an event; the future is done once it is durable, or refused.

        Raises Overloaded, NotLeading. The future raises Refused, NotCommitted, NotLeading.
        """
        return self._lanes.put(event)

    def ask(self, question: "Question[T]") -> "asyncio.Future[T]":
        """Answer a question from the state on the engine's thread, between two steps. Changes that the question makes to the
        state are undone.

        Raises Overloaded, NotLeading. The future raises NotLeading, and what the question raises.
        """
        return self._lanes.ask(question)

    def _publish(self, published: _Published) -> None:
        try:
            self.view.apply(published.commit_no, published.step.changes, published.heads)
            self.introspecting = published.introspecting
            self._dispatch(published.step.orders)
            if published.step.delegated:
                self._delegate(published.step.delegated)
            if published.step.orders:
                # The kernel takes who writes to a socket for one that is about to sleep, and has the reader wait for this
                # core while another is idle. So it gets it, as soon as the orders are sent and before the replies are worded.
                self._loop.call_soon(os.sched_yield)
        except Exception:  # what readers see and nodes were told is not what is true any more: begin again from the database
            log.exception("could not make a commit known")
            self.stop()
        self._answer(published.batch, published.replies)

    def _answer(self, batch: "Sequence[Waiting | Asked]", replies: Sequence[Any]) -> None:
        for waiting, reply in zip(batch, replies, strict=True):
            if waiting.outcome.done():  # the caller has gone; the request is carried out all the same
                continue
            if isinstance(reply, Exception):
                waiting.outcome.set_exception(reply)
            else:
                waiting.outcome.set_result(reply)

    # ---- the engine's thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        why: Exception | None = None
        try:
            while (batch := self._lanes.next_batch(self._until_deadline)) is not None:
                self._in_hand = batch
                self._take_batch(batch)
                self._in_hand = ()
                self._answer_questions()
        except Exception as fault:  # leadership lost, or a fault: in both cases the state here is worth nothing any more
            why = fault
            self._recorder.note_failed(fault)
            if not isinstance(fault, LeadershipLost):
                log.error("the engine failed; its state is dropped and loaded again")
        left = [*self._in_hand, *self._lanes.stop()]
        self._loop.call_soon_threadsafe(self._end, left, why)

    def _end(self, left: "Sequence[Waiting | Asked]", why: Exception | None) -> None:
        self._answer(left, [NotLeading()] * len(left))
        self.view.close()
        self.stopped.set_result(why)

    def _is_due(self) -> bool:
        wait = self._until_deadline()
        return wait is not None and wait <= 0

    def _until_deadline(self) -> float | None:
        """Seconds until something is to be done without an event."""
        soonest = self._refused.soonest_us()
        return None if soonest is None else (soonest - self._now()) / 1e6

    def _answer_questions(self) -> None:
        """Answer one question, and more while nothing else waits: frequent questions must not delay events."""
        answered = False
        while not (answered and self._is_due()) and (asked := self._lanes.next_question(not answered)) is not None:
            answered = True
            state = self._state
            with state.supposing():
                try:
                    rng = Drawing(state.cluster.seed, self._commit_no + 1)
                    answer: Any = asked.question(state, self._now(), rng, self._policy)
                except Exception as fault:
                    answer = fault
            self._loop.call_soon_threadsafe(self._answer, [asked], [answer])

    def _take_batch(self, batch: Sequence[Waiting]) -> None:
        """One step with its commit. Of what the database refuses, all is done that can be."""
        try:
            if self._attempt(batch, self._refused.part()).refusal is None:
                self._refused.note_done()
            else:
                self._refused.serve_apart(batch)
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
        self._recorder.note_undone()

    def _attempt(self, batch: Sequence[Waiting], part: Part, own: Sequence[Event] = ()) -> Tried:
        """Takes a step of the batch and of events of its own, and commits it. Callers whose request was done before are
        answered so, and the step is taken without them. A step that is refused is undone.

        Raises NotCommitted, LeadershipLost.
        """
        taken = self._step([*(w.event for w in batch), *own], part)
        try:
            self._commit(taken, batch)
        except CommitRefused as refusal:
            self._undo()
            repeated = (
                done_before(self._state, self._writer, [w.event for w in batch]) if isinstance(refusal, RequestKnown) else {}
            )
            if not repeated:
                return Tried(taken, refusal)
            self._settle_later([batch[i] for i in repeated], list(repeated.values()))
            rest = [waiting for i, waiting in enumerate(batch) if i not in repeated]
            return self._attempt(rest, part, own) if rest or own else Tried(taken, None)
        return Tried(taken, None)

    def _step(self, events: Sequence[Event], part: Part) -> Step:
        state = self._state
        commit_no, now = self._commit_no + 1, self._now()
        self._recorder.taking(commit_no, now, (state.pending.policies, state.pending.market), events, part)
        taken = step(state, events, now, Drawing(state.cluster.seed, commit_no), self._policy, part)
        self._recorder.note_taken(taken)
        for why in taken.refused:
            log.warning("a plan was refused: %s", why)
        for reply in taken.replies:
            if isinstance(reply, Exception) and not isinstance(reply, Refused):
                log.error("an event was rejected", exc_info=reply)
        return taken

    def _commit(self, taken: Step, batch: Sequence[Waiting]) -> None:
        """Makes the step durable, and then known."""
        state = self._state
        replies = answer_repeats(state, self._writer, [w.event for w in batch], taken.replies[: len(batch)])
        commits = bool(taken.log) or any(change.table != "cluster" for change in taken.changes)
        if commits:
            self._commit_no = self._writer.commit(taken.changes, taken.log)
            for line in taken.log:
                if line.kind is EventKind.STOP_OVERDUE:
                    log.warning("job %d does not stop: %s", line.job_id, line.text)
            if self._lost:
                log.info("commits are possible again")
                self._lost = False
        state.adopt()
        published = _Published(self._commit_no, taken, batch, replies, heads_of(state), _introspecting(state))
        self._loop.call_soon_threadsafe(self._publish, published)
        self._recorder.note_adopted(commits)

    def _tell(self, waiting: Waiting, refusal: CommitRefused) -> None:
        self._settle_later([waiting], [refusal])

    def _settle_later(self, batch: Sequence[Waiting], replies: Sequence[Reply | Exception]) -> None:
        self._loop.call_soon_threadsafe(self._answer, batch, replies)


def _introspecting(state: State) -> Mapping[str, Micros]:
    if not state.introspects:
        return {}
    orders = {"": state.site_order, **state.vc_orders}
    return {name: order.measured_us for name, order in orders.items() if order.introspects}
