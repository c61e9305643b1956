"""Users take turns with the calls that change something."""

import asyncio
from typing import Any

import pytest
from google.rpc import code_pb2, error_details_pb2

from scheduler_service.core.model.tokens import Role
from scheduler_service.rpc import access
from scheduler_service.rpc.access import Caller
from scheduler_service.rpc.interceptors import status_of
from scheduler_service.rpc.method_table import Call, Method
from scheduler_service.rpc.user_turns import CHANGES, FILES, FILES_AT_ONCE, FILES_WAITING_EACH, Turns
from scheduler_service.run.engine_thread import Overloaded

SUBMIT = Method("/ebb.v1.Scheduler/Submit", bytes, streams_requests=False)
LIMIT = 10


class Work:
    """Serves a call when it is told to, one by one."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.at_work: list[asyncio.Future[None]] = []

    async def call(self, request: Any, _context: Any) -> str:
        self.begun.append(request)
        self.at_work.append(asyncio.get_running_loop().create_future())
        await self.at_work[-1]
        return f"{request} is done"

    async def finish(self) -> None:
        """The call that began first ends, and whatever follows from that has happened."""
        self.at_work.pop(0).set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)


def send(call: Call, user: str, request: str) -> "asyncio.Task[Any]":
    async def sending() -> Any:
        access._caller.set(Caller(user, frozenset({Role.USER})))
        return await call(request, None)  # type: ignore[arg-type]

    return asyncio.create_task(sending())


async def test_one_who_floods_does_not_hold_up_another() -> None:
    work = Work()
    call = Turns(at_once=4).serve_in_turn(SUBMIT, work.call)
    flood = [send(call, "ada", f"a{number}") for number in range(100)]
    await asyncio.sleep(0)
    others = [send(call, "bob", "b0"), send(call, "bob", "b1"), send(call, "cy", "c0")]
    await asyncio.sleep(0)
    while work.at_work:
        await work.finish()
    assert work.begun[:9] == ["a0", "a1", "a2", "a3", "a4", "b0", "c0", "a5", "b1"]
    assert await asyncio.wait_for(others[0], LIMIT) == "b0 is done"
    assert [request for request in work.begun if request[0] == "a"] == [f"a{number}" for number in range(100)]
    await asyncio.wait_for(asyncio.gather(*flood, *others), LIMIT)


async def test_a_user_of_whom_too_many_wait_is_refused_and_the_others_are_not() -> None:
    work = Work()
    call = Turns(at_once=1, waiting_each=2).serve_in_turn(SUBMIT, work.call)
    calls = [send(call, "ada", f"a{number}") for number in range(4)]
    await asyncio.sleep(0)
    calls.append(send(call, "bob", "b0"))
    with pytest.raises(Overloaded) as refused:
        await asyncio.wait_for(calls.pop(3), LIMIT)
    status = status_of(refused.value)
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    assert status.code == code_pb2.RESOURCE_EXHAUSTED
    assert status.details[0].Unpack(info)
    assert (info.reason, dict(info.metadata)) == ("TOO_MANY_REQUESTS", {"user": "ada", "most": "2"})
    assert status.details[1].Unpack(retry)
    assert retry.retry_delay.seconds == 1
    while work.at_work:
        await work.finish()
    assert work.begun == ["a0", "a1", "b0", "a2"]
    await asyncio.wait_for(asyncio.gather(*calls), LIMIT)


async def test_turns_of_clients_that_hang_up_are_not_lost() -> None:
    """Before their turn, at the moment it comes, and at work."""
    work = Work()
    call = Turns(at_once=1).serve_in_turn(SUBMIT, work.call)
    at_work, next_one, later, last = [send(call, "ada", f"a{number}") for number in range(4)]
    await asyncio.sleep(0)
    later.cancel()
    work.at_work[0].set_result(None)
    while not at_work.done():
        await asyncio.sleep(0)
    next_one.cancel()
    await asyncio.wait([next_one, later], timeout=LIMIT)
    while work.begun[-1] != "a3":
        await asyncio.sleep(0)
    last.cancel()
    await asyncio.wait([last], timeout=LIMIT)
    again = send(call, "ada", "again")
    await asyncio.sleep(0)
    assert work.begun[-1] == "again"
    again.cancel()
    await asyncio.wait([again], timeout=LIMIT)


async def test_files_have_turns_of_their_own() -> None:
    work = Work()
    method = Method("/ebb.v1.Snapshots/PutSnapshot", bytes, streams_requests=False)
    turns = Turns(FILES_AT_ONCE, FILES_WAITING_EACH, FILES)
    assert turns.serve_in_turn(SUBMIT, work.call) == work.call
    call = turns.serve_in_turn(method, work.call)
    flood = [send(call, "ada", f"a{number}") for number in range(FILES_AT_ONCE + FILES_WAITING_EACH)]
    await asyncio.sleep(0)
    refused, other = send(call, "ada", "more"), send(call, "bob", "b0")
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await asyncio.wait_for(refused, LIMIT)
    while not other.done():
        await work.finish()
    assert work.begun.index("b0") <= FILES_AT_ONCE + 1
    while work.at_work:
        await work.finish()
    await asyncio.wait_for(asyncio.gather(*flood), LIMIT)


def test_what_changes_nothing_waits_for_no_turn() -> None:
    work = Work()
    for name in ("/ebb.v1.Scheduler/Get", "/ebb.agent.v1.AgentLink/Connect", "/grpc.health.v1.Health/Check"):
        method = Method(name, bytes, streams_requests=False)
        assert Turns().serve_in_turn(method, work.call) == work.call
    assert access.MAY.keys() >= CHANGES | FILES
