"""Whatever anybody sends to any method: an answer that says whose fault it is, no traceback, and nothing changes where it is
refused. The seed is in the name of a test that fails."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random
from typing import Any, NamedTuple, TypeVar

import grpc
import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import job_pb2, scheduler_pb2
from ebb.v1 import virtual_clusters_pb2 as vc_pb
from sqlalchemy import Engine

from scheduler_service.core.invariants import check
from scheduler_service.core.model.tokens import Role
from scheduler_service.rpc.access import MAY, OPEN
from scheduler_service.rpc.receiving import LARGEST_MESSAGE
from scheduler_service.rpc.services import logs
from tests.rpc.fuzzing import CASES, KNOWN, METHODS, NODES, Drawing, pieces_of_a_log, walk
from tests.rpc.server import LIMIT, Agent, Failure, Server, submit_request
from tests.rpc.test_access import NAMES, Tokens, bearer
from tests.rpc.test_virtual_clusters import node, quota
from tests.thorough import LONG, examples

T = TypeVar("T")

CONNECT, SEND_LOG = "/ebb.agent.v1.AgentLink/Connect", "/ebb.agent.v1.AgentLink/SendLog"
Code = grpc.StatusCode
NOT_THE_CALLERS = (Code.INTERNAL, Code.UNKNOWN, Code.CANCELLED, Code.UNIMPLEMENTED)
ANSWER = 0.25
"""Seconds in which a stream that waits for something else has been looked at for long enough."""


class Said(NamedTuple):
    code: Code
    """OK also for a stream that was going on when it was left."""
    reason: str
    answers: list[bytes]


class Site:
    """A scheduler that asks for tokens, with nodes, and something of everything that requests are about."""

    def __init__(self, url: str, engine: Engine, virtual_clusters: bool) -> None:
        self._tokens = Tokens(engine)
        for role, name in NAMES.items():
            self._tokens.add(name, name, role)
        self.virtual_clusters = virtual_clusters
        self.agents: list[Agent] = []
        more = {"policy": "fifo", "exchange": "none"} if virtual_clusters else {}
        self.server = Server(url, auth="token", heartbeat=600, silent_after=3600, virtual_clusters=virtual_clusters, **more)

    def __enter__(self) -> "Site":
        with ExitStack() as opened:
            opened.enter_context(self.server)
            for name in NODES[:2]:
                self.agents.append(opened.enter_context(node(self.server, name, metadata=bearer("agents"))))
                self.agents[-1].connect()
            self._furnish()
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _furnish(self) -> None:
        for vc, level in (("a", "node"), ("b", "switch")) if self.virtual_clusters else ():
            asked = vc_pb.CreateVirtualClusterRequest(name=vc, quotas=[quota(level, 1)])
            self.server.vcs.CreateVirtualCluster(asked, timeout=LIMIT, metadata=bearer("olga"))
        for who in (Role.USER, Role.OPERATOR):
            for devices, size in ((1, 0), (4, 0), (1, 3)):
                made = self.submit(who, devices=devices, array=job_pb2.Array(size=size) if size else None)
                assert made.code is Code.OK

    def submit(self, who: Role, **spec: Any) -> Said:
        request = submit_request(virtual_cluster="a" if self.virtual_clusters else "", **spec)
        return self.expect("/ebb.v1.Scheduler/Submit", who, request.SerializeToString())

    def drawing(self, seed: int) -> Drawing:
        return Drawing(Random(seed), KNOWN if self.virtual_clusters else KNOWN | {"virtual_cluster": ("",), "guarantee": (0,)})

    def ask(self, question: Callable[..., T]) -> T:
        """Has the engine answer, after everything that it was asked before."""

        async def asked() -> T:
            return await self.server.backend.leading.service.ask(question)

        return asyncio.run_coroutine_threadsafe(asked(), self.server._loop).result(LIMIT)

    def commit_no(self) -> int:
        """Of the last commit, after everything that was asked before."""
        self.ask(lambda *_: None)
        return self.server.backend.leading.view.commit_no

    def call(self, method: str, who: Role | None, *data: bytes) -> Said:
        """Makes the call, whoever's it is, and leaves it once it has answered, where it might go on for ever."""
        about = METHODS[method]
        metadata = () if who is None else bearer(NAMES[who])
        answers: list[bytes] = []
        if about.client_streaming:
            call = self.server.channel.stream_stream(method)(iter(data), timeout=LIMIT, metadata=metadata)
        else:
            timeout = ANSWER if about.server_streaming else LIMIT
            call = self.server.channel.unary_stream(method)(data[0], timeout=timeout, metadata=metadata)
        try:
            for answer in call:
                answers.append(answer)
                if about.server_streaming and not about.client_streaming:
                    break
        except grpc.RpcError as error:
            code: Code = error.code()  # type: ignore[attr-defined]
            if code is Code.DEADLINE_EXCEEDED and about.server_streaming and not about.client_streaming:
                return Said(Code.OK, "", answers)
            known = any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata())  # type: ignore[attr-defined]
            return Said(code, Failure(error).reason if known else "", answers)
        finally:
            call.cancel()
        return Said(Code.OK, "", answers)

    def expect(self, method: str, who: Role | None, *data: bytes) -> Said:
        """Makes the call, and holds the answer against what is asked of every answer."""
        rule = MAY[method]
        before = self.commit_no()
        said = self.call(method, who, *data)
        what = f"{method} as {who and who.name}: {said.code.name} {said.reason} to {[piece[:200] for piece in data]}"
        assert said.code not in NOT_THE_CALLERS, what
        assert said.code is not Code.DEADLINE_EXCEEDED, what
        assert said.reason not in ("NOT_LEADING", "DATABASE_UNAVAILABLE", "LINK_ENDED"), what
        if rule is not OPEN and who not in rule.roles:
            assert said.code is (Code.UNAUTHENTICATED if who is None else Code.PERMISSION_DENIED), what
            assert said.reason == ("NO_TOKEN" if who is None else "ROLE"), what
        if said.code is not Code.OK:
            too_large = (
                said.code is Code.RESOURCE_EXHAUSTED and max(map(len, data)) > LARGEST_MESSAGE
            )  # which gRPC itself refuses
            assert said.reason or too_large, what
            # Of a stream, messages before the one that is refused may count, and what was answered to them is lost on the way.
            assert len(data) > 1 or self.commit_no() == before, what
        return said


@pytest.fixture(params=[False, True], ids=["plain", "vcs"])
def site(
    database_url: str,
    engine: Engine,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Iterator[Site]:
    monkeypatch.setattr(logs, "ANSWER_LIMIT", 0.2)  # often nobody answers
    with Site(database_url, engine, request.param) as made:
        yield made
        made.ask(lambda state, *_: check(state))
        assert made.ask(lambda state, *_: state.snapshot() == state.rebuild().snapshot())
    assert [(r.levelname, r.getMessage()) for r in caplog.records if r.exc_info or r.levelname == "ERROR"] == []
    with Server(database_url, auth="token", virtual_clusters=request.param) as again:  # and it can be loaded
        assert again.backend.leading.epoch == 2


def every_method(site: Site, seed: int) -> None:
    draw = site.drawing(seed)
    calls = [(method, who, case) for method in METHODS for who in (None, *Role) for case in CASES]
    draw.rng.shuffle(calls)
    for method, who, case in calls[: None if LONG else len(calls) // 2]:
        about = METHODS[method]
        many = draw.rng.randint(1, 3) if about.client_streaming else 1
        site.expect(method, who, *(case(draw, about.input_type) for _ in range(many)))


def agents(site: Site, seed: int, walks: int = 60) -> None:
    """Agents of one node, one after the other. What was acknowledged is known, so that some reports count."""
    draw = site.drawing(seed)
    draw = draw._replace(known=draw.known | {"job_id": range(1, 40)})
    acknowledged = 0
    for i in range(walks):
        if i % 3 == 0:
            site.submit(Role.USER, devices=1)  # which a virtual cluster may refuse, by what became of its nodes
        said = site.expect(CONNECT, Role.AGENT, *walk(draw, acknowledged)[: None if i % 4 else 1])
        for answer in map(link_pb.ConnectResponse.FromString, said.answers):
            if answer.HasField("welcome"):
                acknowledged = answer.welcome.acknowledged
            acknowledged = max(acknowledged, answer.acknowledgement.sequence)


def answers_with_logs(site: Site, seed: int, times: int = 10) -> None:
    """Both sides of a log of which the agent sends what it likes."""
    draw = site.drawing(seed)
    agent = site.agents[0]
    asked = {"timeout": LIMIT, "metadata": bearer("olga")}
    jobs = site.server.scheduler.List(scheduler_pb2.ListRequest(), **asked).jobs
    job = next(job.id for job in jobs if job.node == agent.node)

    def read() -> grpc.StatusCode:
        try:
            for _ in site.server.scheduler.Logs(scheduler_pb2.LogsRequest(job_id=job), **asked):
                pass
        except grpc.RpcError as error:
            return error.code()  # type: ignore[no-any-return]
        return Code.OK

    with ThreadPoolExecutor(1) as pool:
        for _ in range(times):
            reading = pool.submit(read)
            request = next(message.log_request for message in agent.call if message.HasField("log_request"))
            said = site.expect(SEND_LOG, Role.AGENT, *pieces_of_a_log(draw, request.id))
            assert said.reason in ("", "INVALID_FIELD", "MALFORMED", "NO_SUCH_REQUEST"), said
            assert reading.result(LIMIT) not in NOT_THE_CALLERS


def test_every_method(site: Site) -> None:
    every_method(site, 1)


def test_agents(site: Site) -> None:
    agents(site, 1)
    answers_with_logs(site, 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 2 + examples(1)))
def test_for_long(site: Site, seed: int) -> None:
    answers_with_logs(site, seed)
    every_method(site, seed)
    agents(site, seed, 300)


@pytest.mark.parametrize("method", ["/ebb.v1.Scheduler/Get", "/ebb.v1.Scheduler/Watch", CONNECT, SEND_LOG])
def test_what_is_longer_than_grpc_takes(server: Server, method: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        list(server.channel.stream_stream(method)(iter([b"a" * (17 << 20)]), timeout=LIMIT))
    assert refused.value.code() is Code.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]
    assert not [record for record in caplog.records if record.exc_info]
