"""What callers are told when the fault is the scheduler's own, or a report comes from a boot that is over."""

import asyncio

import grpc
import pytest

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import Acknowledged, Reply
from scheduler_service.database import Writer
from scheduler_service.rpc import agent_link, scheduler
from scheduler_service.run.dispatch import Link
from scheduler_service.run.ports import CommitRefused
from tests.rpc.server import Server, failure


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
