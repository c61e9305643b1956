"""The engine's thread against a store that fails in every way it may: nobody who asked is left without an answer."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from itertools import chain

import pytest

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.errors import AlreadyExists
from scheduler_service.core.messages import Accepted, Order, Rng, Submitted
from scheduler_service.core.model import Job, JobEvent, JobSpec, JobState
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.journal import Change
from scheduler_service.core.state.state import State
from scheduler_service.memory_database import MemoryWriter
from scheduler_service.policies.fifo import fifo
from scheduler_service.run.engine_queue import JOINING
from scheduler_service.run.engine_thread import EngineThread, NotLeading
from scheduler_service.run.ports import CommitRefused, LeadershipLost, NotCommitted
from scheduler_service.store import memory
from scheduler_service.store.memory import Memory
from tests.run.live import CONFIG, Agent, load_state

LIMIT = 10
SPEC = JobSpec(("true",), Vector(1000, 100, 0))


class FailingWriter(MemoryWriter):
    """The writer over the store in memory, with a cluster of its own, and with what goes wrong in it."""

    def __init__(
        self,
        *ended: Job,
        fail: Callable[[Sequence[Change]], None] = lambda _changes: None,
        look_up: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended` jobs are in the database and not in the state any more."""
        database = Memory()
        epoch = memory.take(database, "tester", 60)
        assert epoch is not None
        memory.commit(database, epoch, [Change("job", job.id, None, job) for job in ended], [])
        self.state, self.view, _ = load_state(database, epoch, CONFIG)
        super().__init__(database, epoch, self.view.commit_no)
        self.commits: list[list[str]] = []
        """The request ids of the new jobs of each commit."""
        self.asked = threading.Event()
        self.fail = fail
        self._look_up = look_up

    def commit(self, changes: Sequence[Change], events: Sequence[JobEvent]) -> int:
        self.asked.set()
        self.fail(changes)
        number = super().commit(changes, events)
        self.commits.append([change.new.request_id for change in changes if change.table == "job" and change.old is None])
        return number

    def find_requests(self, requests: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        self._look_up()
        return super().find_requests(requests)


@asynccontextmanager
async def serving(
    writer: FailingWriter, policy: Policy = fifo, dispatch: Callable[[Sequence[Order]], None] = lambda _orders: None
) -> AsyncIterator[EngineThread]:
    service = EngineThread(writer.state, writer.view, policy, writer, dispatch, lambda: 1)
    service.start()
    try:
        yield service
    finally:
        service.stop()
        await asyncio.wait_for(service.stopped, LIMIT)


def ended_job(number: int, request_id: str, spec: JobSpec = SPEC) -> Job:
    return Job(number, spec, "u", request_id, 0, JobState.SUCCEEDED, ended_us=1)


async def submit(service: EngineThread, *names: str, spec: JobSpec = SPEC) -> list[object]:
    """Submits all at once, before the engine can have taken the first; the replies, exceptions among them."""
    asked = [service.handle(Submitted("u", name, spec)) for name in names]
    return list(await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), LIMIT))


def _wait(event: threading.Event) -> None:
    assert event.wait(LIMIT)


def failing(error: Exception, times: int = 1) -> Callable[..., None]:
    left = [times]

    def fail(*_: object) -> None:
        if left[0]:
            left[0] -= 1
            raise error

    return fail


async def test_an_answer_means_committed() -> None:
    writer = FailingWriter()
    async with serving(writer) as service:
        assert await submit(service, "a", "b") == [Accepted(1), Accepted(2)]
    assert sorted(chain(*writer.commits)) == ["a", "b"]


async def test_whoever_asks_again_and_again_holds_nobody_up() -> None:
    """Questions are answered one by one between steps while requests wait."""
    asked = 0
    async with serving(FailingWriter()) as service:
        loop = asyncio.get_running_loop()
        over, there = threading.Event(), threading.Event()

        def ask() -> None:
            service.ask(question)
            there.set()

        def question(*_: object) -> None:
            nonlocal asked
            asked += 1
            if not over.is_set():  # the next one is there before this one is answered
                there.clear()
                loop.call_soon_threadsafe(ask)
                _wait(there)

        ask()
        try:
            for name in "abc":
                assert await asyncio.wait_for(submit(service, name), LIMIT)
        finally:
            over.set()
    assert asked >= 3


async def test_the_agents_get_this_core_after_their_orders_and_before_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(os, "sched_yield", lambda: done.append("yield"))
    loop = asyncio.get_running_loop()

    def dispatch(orders: Sequence[Order]) -> None:
        if orders:
            loop.call_soon(done.append, "orders")  # as a link's task does, which these wake

    async with serving(FailingWriter(), dispatch=dispatch) as service:
        await asyncio.wait_for(service.handle(Agent("n").seen()), LIMIT)
        assert done == []
        answer = service.handle(Submitted("u", "a", SPEC))
        answer.add_done_callback(lambda _: done.append("answer"))
        assert await asyncio.wait_for(answer, LIMIT) == Accepted(1)
    assert done == ["orders", "yield", "answer"]


async def test_what_could_not_be_committed_is_undone_and_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    writer = FailingWriter(fail=failing(NotCommitted("no database")))
    async with serving(writer) as service:
        (lost,) = await submit(service, "a")
        assert isinstance(lost, NotCommitted)
        assert await submit(service, "a") == [Accepted(1)]
        assert await submit(service, "b") == [Accepted(2)]
    assert [record.levelname for record in caplog.records if "commit" in record.message] == ["ERROR", "INFO"]
    assert "whoever asks is told so: no database" in caplog.text


async def test_repeats_of_ended_jobs_get_them_and_the_rest_is_one_commit() -> None:
    together = threading.Event()
    writer = FailingWriter(ended_job(7, "old"), ended_job(8, "other"), fail=lambda _changes: _wait(together))
    async with serving(writer) as service:
        hold = service.handle(Submitted("u", "first", SPEC))
        await asyncio.to_thread(_wait, writer.asked)  # the engine has the first in hand, so the others come together
        asked = [service.handle(Submitted("u", name, SPEC)) for name in ("a", "old", "b", "old")]
        changed = service.handle(Submitted("u", "other", JobSpec(("false",), Vector(1, 1, 0))))
        together.set()
        await asyncio.wait_for(hold, LIMIT)
        replies = await asyncio.wait_for(asyncio.gather(*asked), LIMIT)
        with pytest.raises(AlreadyExists):
            await asyncio.wait_for(changed, LIMIT)
    assert [replies[1], replies[3]] == [Accepted(7), Accepted(7)]
    assert writer.commits == [["first"], ["a", "b"]]


async def test_the_same_request_with_another_default_grace_is_the_same_request() -> None:
    known = ended_job(7, "r", JobSpec(("true",), Vector(1000, 100, 0), grace_us=30))
    async with serving(FailingWriter(known)) as service:
        now = JobSpec(("true",), Vector(1000, 100, 0), grace_us=10)
        assert await asyncio.wait_for(service.handle(Submitted("u", "r", now, grace_given=False)), LIMIT) == Accepted(7)
        with pytest.raises(AlreadyExists):
            await asyncio.wait_for(service.handle(Submitted("u", "r", now, grace_given=True)), LIMIT)


async def test_one_refused_event_does_not_take_the_others_with_it() -> None:
    def refuse_b(changes: Sequence[Change]) -> None:
        if any(change.table == "job" and change.new.request_id == "b" for change in changes):
            raise CommitRefused("constraint")

    async with serving(FailingWriter(fail=refuse_b)) as service:
        a, b, c = await submit(service, "a", "b", "c")
        assert isinstance(b, CommitRefused)
        assert isinstance(a, Accepted)
        assert isinstance(c, Accepted)


async def test_a_database_that_fails_while_a_repeat_is_looked_up() -> None:
    writer = FailingWriter(ended_job(7, "old"), look_up=failing(NotCommitted("no database")))
    async with serving(writer) as service:
        replies = await submit(service, "a", "old")
        assert any(isinstance(reply, NotCommitted) for reply in replies)
        assert await submit(service, "old") == [Accepted(7)]


@pytest.mark.parametrize("error", [LeadershipLost("fenced"), RuntimeError("a fault")])
async def test_when_the_engine_stops_everybody_who_waits_is_told(error: Exception) -> None:
    async with serving(FailingWriter(fail=failing(error))) as service:
        replies = await submit(service, "a", "b", "c")
        assert [type(reply) for reply in replies] == [NotLeading] * 3
        assert await asyncio.wait_for(asyncio.shield(service.stopped), LIMIT) is error
        with pytest.raises(NotLeading):
            service.handle(Submitted("u", "d", SPEC))


async def test_leadership_lost_while_a_refused_batch_is_taken_again() -> None:
    errors = iter([CommitRefused("constraint"), LeadershipLost("fenced")])

    def fail(_changes: Sequence[Change]) -> None:
        raise next(errors)

    async with serving(FailingWriter(fail=fail)) as service:
        replies = await submit(service, "a", "b", "c")
        assert NotLeading in [type(reply) for reply in replies]


async def test_a_policy_that_raises_stops_the_engine_and_answers() -> None:
    def broken(_state: State, _rng: Rng) -> Proposals:
        raise RuntimeError("a fault")
        yield ()

    async with serving(FailingWriter(), broken) as service:
        assert [type(reply) for reply in await submit(service, "a")] == [NotLeading]


async def test_readers_that_cannot_follow_end_the_leadership(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(FailingWriter()) as service:
        monkeypatch.setattr(service.view, "apply", failing(RuntimeError("a fault")))
        assert await submit(service, "a") == [Accepted(1)]  # it is durable, and said
        await asyncio.wait_for(asyncio.shield(service.stopped), LIMIT)


async def test_a_submit_does_not_wait_for_all_agents_that_connect() -> None:
    """The agents of a whole cluster connect at once: a few are taken with each step, and requests are in the first of them."""
    joined: list[int] = []
    at_work, go = threading.Event(), threading.Event()

    def fail(changes: Sequence[Change]) -> None:
        joined.append(sum(change.table == "node" for change in changes))
        at_work.set()
        _wait(go)

    writer = FailingWriter(fail=fail)
    async with serving(writer) as service:
        first = service.handle(Agent("first").seen())
        await asyncio.to_thread(_wait, at_work)
        seen = [service.handle(Agent(f"n{number}").seen()) for number in range(300)]
        submitted = submit(service, "a")
        go.set()
        assert await submitted == [Accepted(1)]
        await asyncio.wait_for(asyncio.gather(first, *seen), LIMIT)
    assert writer.commits[1] == ["a"]
    assert sum(joined) == 301
    assert max(joined) <= JOINING
