"""What callers are told when the fault is the scheduler's own, or a report comes from a boot that is over."""

import asyncio
import time
from typing import Any

import grpc
import pytest

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import Acknowledged, Reply
from scheduler_service.database import Writer
from scheduler_service.rpc.interceptors import answer_errors
from scheduler_service.rpc.method_table import Method
from scheduler_service.rpc.services import agent_link, scheduler
from scheduler_service.run.dispatch import Dispatch, Link
from scheduler_service.run.ports import CommitRefused, NotCommitted
from tests.rpc.server import Agent, Server, failure
from tests.store.waiting import wait_for


def test_a_commit_that_the_database_refuses(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise CommitRefused("job_id_positive: a row breaks it")

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "commit", refuse)
        said = failure(lambda: server.submit())
    assert (said.code, said.reason) == (grpc.StatusCode.INTERNAL, "COMMIT_REFUSED")
    assert "job_id_positive" in said.text
    assert server.submit().id == 1, "nothing was changed, and it goes on"


def test_a_fault_in_a_handler(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    job = server.submit()

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "job_out", fail)
        said = failure(lambda: server.get(job.id))
    assert (said.code, said.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert "ZeroDivisionError" in said.text
    assert server.get(job.id).id == job.id


@pytest.mark.parametrize("fails", ["write", "abort"])
async def test_a_caller_who_goes_as_it_is_answered_is_no_fault(fails: str, caplog: pytest.LogCaptureFixture) -> None:
    """As an agent that reads nothing and then cancels. The write that fails may be seen before the cancellation is, and gRPC
    logs a traceback of what a call then raises, unless it is that it was cancelled."""

    class Context:
        async def write(self, _: Any) -> None:
            raise grpc.aio.InternalError

        async def abort(self, *_: Any, **_more: Any) -> None:
            raise grpc.aio.InternalError

    async def call(_: Any, context: Any) -> None:
        if fails == "write":
            await context.write(None)
        raise FailedPrecondition("WRONG_STATE", "no")

    method = Method("/ebb.v1.Scheduler/Watch", bytes, streams_requests=False)
    with pytest.raises(asyncio.CancelledError):
        await answer_errors(None, method, call)(None, Context())  # type: ignore[arg-type]
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_report_of_a_boot_that_is_over_ends_the_link() -> None:
    link = Link("n1", "boot-1", None)
    outcome: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    outcome.set_result(Acknowledged("n1", 4, stale=True))
    committed: asyncio.Queue[asyncio.Future[Reply] | None] = asyncio.Queue()
    committed.put_nowait(outcome)
    with pytest.raises(FailedPrecondition) as caught:
        await agent_link._acknowledge(link, committed)
    assert caught.value.reason == "OTHER_BOOT"
    assert await link.next() is None


def test_what_fails_beside_the_engine_ends_the_leadership_and_another_begins(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If nobody watched for silent nodes any more, none would ever be silent."""
    watch, begun = Dispatch.watch_silence, []

    async def fails_at_first(self: Dispatch, *given: Any) -> None:
        begun.append(self)
        if len(begun) == 1:
            raise ZeroDivisionError
        await watch(self, *given)

    monkeypatch.setattr(Dispatch, "watch_silence", fails_at_first)
    with Server(database_url, leads=False) as server:
        wait_for(lambda: len(begun) == 2 and server.backend._leading is not None)
        assert server.submit().id == 1
    (record,) = [record for record in caplog.records if record.exc_info]
    assert "stepping down" in record.message
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_a_node_that_says_hello_while_the_database_is_away_is_not_silent(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lost(*_: object) -> int:
        raise NotCommitted("the database is away")

    with Server(database_url, heartbeat=0.2, silent_after=1) as server:
        with Agent(server) as agent:
            agent.connect()
            job = server.submit()
            agent.orders()
            with monkeypatch.context() as patch:
                patch.setattr(Writer, "commit", lost)
                agent.started(1, job.id)
                ended = agent.ended()
                assert ended is not None
                assert ended.reason == "DATABASE_UNAVAILABLE"
                until = time.monotonic() + 2.5
                while time.monotonic() < until:
                    with Agent(server, agent_version="2") as again:  # what has changed is to be written
                        assert failure(again.connect).reason == "DATABASE_UNAVAILABLE"
        with Agent(server) as agent:
            agent.connect()
        assert not [record.message for record in caplog.records if "is silent" in record.message]
