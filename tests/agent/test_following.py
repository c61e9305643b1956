"""An agent that was given several schedulers, and one whose scheduler has forgotten what was done."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from ebb.agent.v1 import agent_link_pb2 as pb
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from examples.cluster import free_port
from node_agent.transport import link
from node_agent.transport.security import Security
from tests.agent.conftest import AgentProcess, alive, of_state, until
from tests.agent.fake_scheduler import FakeScheduler
from tests.agent.test_link import QuietNode

PACE = link.Pace(first=0.05, longest=0.2)


class Standby(FakeScheduler):
    """Says that another leads, once it has heard who is asking, as a scheduler does."""

    leader = ""
    connects = 0

    def Connect(self, request_iterator: Iterator[pb.ConnectRequest], context: Any) -> Iterator[pb.ConnectResponse]:  # noqa: N802
        self.connects += 1
        next(request_iterator)
        detail = any_pb2.Any()
        metadata = {"leader": self.leader} if self.leader else {}
        detail.Pack(error_details_pb2.ErrorInfo(reason="NOT_LEADING", domain="ebb", metadata=metadata))
        status = status_pb2.Status(code=14, message="this scheduler stands by", details=[detail])
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(grpc.StatusCode.UNAVAILABLE, status.message)
        yield pb.ConnectResponse()


@pytest.fixture
def standby() -> Iterator[Standby]:
    fake = Standby()
    yield fake
    fake.close()


@asynccontextmanager
async def linked(schedulers: str, security: Security | None = None) -> Any:
    task = asyncio.create_task(link.run(schedulers, QuietNode(), PACE, security))  # type: ignore[arg-type]
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_it_goes_where_the_standby_says(standby: Standby, scheduler: FakeScheduler) -> None:
    standby.leader = scheduler.address
    async with linked(standby.address):
        await asyncio.to_thread(scheduler.connected)
    assert standby.connects == 1


@pytest.mark.parametrize("named", ["", "192.0.2.1:7737"])
async def test_else_to_the_next_that_it_knows(standby: Standby, scheduler: FakeScheduler, named: str) -> None:
    """Also where it was named one that is not this machine: without TLS it goes to none of those."""
    standby.leader = named
    async with linked(f"{standby.address},{scheduler.address}"):
        await asyncio.to_thread(scheduler.connected)
    assert standby.connects == 1


async def test_past_a_standby_that_names_a_leader_who_is_not_there(standby: Standby, scheduler: FakeScheduler) -> None:
    standby.leader = f"127.0.0.1:{free_port()}"
    async with linked(f"{standby.address},{scheduler.address}"):
        await asyncio.to_thread(scheduler.connected)
    assert standby.connects == 1


async def test_one_that_is_gone_or_was_replaced_is_passed_over(standby: Standby, scheduler: FakeScheduler) -> None:
    """The welcome of one with a lower epoch is not accepted, and the next is asked."""
    replaced = FakeScheduler(epoch=3)
    scheduler.epoch = 5

    class Ahead(QuietNode):
        def hello(self) -> Any:
            return link.Hello("n1", "b", "c1", 4, super().hello().inventory, (), "1")

    node: Any = Ahead()
    schedulers = f"127.0.0.1:{free_port()},{replaced.address},{standby.address},{scheduler.address}"
    task = asyncio.create_task(link.run(schedulers, node, PACE))
    try:
        await asyncio.to_thread(scheduler.connected)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        replaced.close()
    assert (len(replaced.hellos), standby.connects) == (1, 1)


async def test_it_follows_when_the_leader_hangs_up(standby: Standby, scheduler: FakeScheduler) -> None:
    second = FakeScheduler(epoch=2)
    try:
        async with linked(f"{scheduler.address},{second.address}"):
            await asyncio.to_thread(scheduler.connected)
            scheduler.hang_up()
            await asyncio.to_thread(second.connected)
    finally:
        second.close()


def test_a_scheduler_that_has_forgotten_what_it_had_acknowledged(
    agent: Callable[..., AgentProcess], scheduler: FakeScheduler, state: Path
) -> None:
    """The node begins afresh in the same cluster: nothing of before is alive when it says hello."""
    process = agent()
    before = scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", "exec sleep 100")
    scheduler.started(1)
    scheduler.start(2, "true")
    scheduler.exited(2)
    (job,) = [r.started.pid for r in scheduler.of(1)]
    scheduler.wait(lambda: scheduler.committed >= 3)
    assert before.acknowledged == 0
    alive_at_hello: list[bool] = []
    scheduler.on_hello = lambda: alive_at_hello.append(alive(job))
    scheduler.committed = 1  # as after a backup was restored
    scheduler.epoch = 7
    scheduler.hang_up()
    afresh = scheduler.wait(lambda: next((h for h in scheduler.hellos if h.boot_id != before.boot_id), None))
    assert (afresh.cluster_id, afresh.epoch, list(afresh.runs), afresh.acknowledged) == ("c1", 7, [], 0)
    assert [hello.acknowledged for hello in scheduler.hellos if hello.boot_id == before.boot_id] == [0, 3]
    assert alive_at_hello == [True, False]
    assert process.process.poll() is None
    assert "as after a reboot" in process.log.read_text()
    scheduler.start(1, "true")  # the same number, and another process
    assert scheduler.wait(lambda: [r for r in scheduler.of(1) if r.WhichOneof("event") == "exited"])[0].exited.exit_code == 0
    until(lambda: job not in of_state(state))


def test_one_that_knows_what_it_acknowledged_changes_nothing(
    agent: Callable[..., AgentProcess], scheduler: FakeScheduler
) -> None:
    agent()
    before = scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", "exec sleep 100")
    scheduler.started(1)
    scheduler.wait(lambda: scheduler.committed >= 1)
    scheduler.acknowledging = False
    scheduler.start(2, "true")
    scheduler.exited(2)
    scheduler.hang_up()
    again = scheduler.connected(2)
    assert again.boot_id == before.boot_id
    assert {run.job_id for run in again.runs} == {1, 2}
