"""Who may call what: the table, and a real server that holds to it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from ebb.agent.v1 import agent_link_pb2
from ebb.v1 import cluster_pb2, exchange_pb2, scheduler_pb2, snapshots_pb2, virtual_clusters_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from sqlalchemy import Engine

from client_sdk import AsyncClient, Client, PermissionDenied, Unauthenticated
from node_agent.transport.security import Security
from scheduler_service import store
from scheduler_service.core.errors import Refused
from scheduler_service.core.model.tokens import Role
from scheduler_service.rpc import access
from scheduler_service.rpc.access import MAY, OPEN, Access
from scheduler_service.rpc.backend import Backend
from scheduler_service.rpc.method_table import Method
from scheduler_service.run import token_cache
from scheduler_service.run.token_cache import digest_of, wall_clock
from tests.agent.test_first_message import first_message
from tests.rpc.server import LIMIT, Agent, Failure, Server, closing, failure, submit_request
from tests.store.waiting import wait_for

FILES = (
    scheduler_pb2,
    cluster_pb2,
    virtual_clusters_pb2,
    exchange_pb2,
    snapshots_pb2,
    agent_link_pb2,
    health_pb2,
    reflection_pb2,
)
METHODS = sorted(
    f"/{service.full_name}/{method.name}"
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
)
NAMES = {Role.USER: "ada", Role.OPERATOR: "olga", Role.AGENT: "agents"}

Metadata = tuple[tuple[str, str], ...]


class Tokens:
    """Those of a database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, secret: str, subject: str, role: Role = Role.USER, expires_us: int | None = None) -> int:
        with self._engine.connect() as conn:
            made = store.add_token(conn, digest_of(secret), secret[-6:], subject, role, wall_clock() - 10**9, expires_us)
        return made.id

    def revoke(self, token_id: int) -> None:
        with self._engine.connect() as conn:
            assert store.revoke_token(conn, token_id, wall_clock())


@pytest.fixture
def tokens(engine: Engine) -> Tokens:
    """One for each role: the secret is the name of its owner."""
    made = Tokens(engine)
    for role, name in NAMES.items():
        made.add(name, name, role)
    made.add("bob", "bob")
    return made


@pytest.fixture
def server(database_url: str, tokens: Tokens) -> Iterator[Server]:
    """It asks for tokens."""
    with Server(database_url, auth="token") as made:
        yield made


def bearer(secret: str) -> Metadata:
    return (("authorization", f"Bearer {secret}"),)


def submit(server: Server, secret: str, **spec: Any) -> Any:
    return server.scheduler.Submit(submit_request(**spec), timeout=LIMIT, metadata=bearer(secret)).job


def refusal(server: Server, metadata: Metadata = ()) -> Failure:
    """What a call fails with that every user may make."""
    return failure(lambda: server.scheduler.List(scheduler_pb2.ListRequest(), timeout=LIMIT, metadata=metadata))


def outcome(server: Server, method: str, metadata: Metadata) -> grpc.StatusCode | None:
    """What a call with an empty message comes to; None where it answers. On the wire, all kinds of calls look alike."""
    call = server.channel.stream_stream(method)(iter([b""]), timeout=LIMIT, metadata=metadata)
    with closing(call):
        try:
            next(call)
        except StopIteration:
            return None
        except grpc.RpcError as error:
            return error.code()  # type: ignore[no-any-return]
    return None


# ---- the table ---------------------------------------------------------------------------------------------------------


def test_every_method_of_every_service_is_in_the_table_and_nothing_else() -> None:
    assert sorted(MAY) == METHODS


def test_the_table() -> None:
    """Said a second time, by what each may do, so that a slip in the table is seen."""

    def names(wanted: Callable[[Any], bool]) -> set[str]:
        return {method.rpartition(".")[2] for method, rule in MAY.items() if rule is not OPEN and wanted(rule)}

    only_operators = {"Cluster/Drain", "Cluster/Undrain", "Cluster/Fence", "Cluster/DeleteNode"}
    only_operators |= {f"VirtualClusters/{verb}VirtualCluster" for verb in ("Create", "Update", "Delete")}
    everything = names(lambda _: True)
    of_agents = {name for name in everything if name.startswith("AgentLink/")}
    assert names(lambda rule: Role.AGENT in rule.roles) == of_agents
    assert names(lambda rule: Role.OPERATOR in rule.roles) == everything - of_agents
    assert names(lambda rule: Role.USER in rule.roles) == everything - of_agents - only_operators
    reading = {"Get", "List", "ListRuns", "Watch", "Story", "Explain", "Shares", "Logs"}
    changing = {f"Scheduler/{method.name}" for method in scheduler_pb2.DESCRIPTOR.services_by_name["Scheduler"].methods}
    changing -= {f"Scheduler/{name}" for name in (*reading, "Submit")}
    assert names(lambda rule: rule.own_job) == changing | {"Snapshots/GetResult"}
    opened = {method.split("/")[1] for method, rule in MAY.items() if rule is OPEN}
    assert opened == {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


def test_the_server_holds_to_the_table(server: Server) -> None:
    for method, rule in MAY.items():
        refused = outcome(server, method, ())
        assert (refused is grpc.StatusCode.UNAUTHENTICATED) == (rule is not OPEN), (method, refused)
        for role, name in NAMES.items():
            code = outcome(server, method, bearer(name))
            assert code is not grpc.StatusCode.UNAUTHENTICATED, method
            denied = rule is not OPEN and role not in rule.roles
            assert (code is grpc.StatusCode.PERMISSION_DENIED) == denied, (method, role, code)


@pytest.mark.usefixtures("tokens")
def test_a_method_that_is_not_in_the_table_is_for_nobody(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(MAY, "/ebb.v1.Scheduler/List")  # type: ignore[arg-type]
    with Server(database_url, auth="token") as server:
        assert refusal(server, bearer("olga")).reason == "ROLE"


# ---- tokens ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "reason", "said"),
    [
        ((), "NO_TOKEN", "EBB_TOKEN_FILE"),
        ((("authorization", "ada"),), "NO_TOKEN", "Bearer TOKEN"),
        ((("authorization", "Basic ada"),), "NO_TOKEN", "Bearer TOKEN"),
        ((("authorization", "Bearer "),), "NO_TOKEN", "Bearer TOKEN"),
        ((*bearer("ada"), *bearer("olga")), "NO_TOKEN", "once"),
        (bearer("eve"), "TOKEN_UNKNOWN", "revoked"),
    ],
)
def test_who_is_not_known(server: Server, metadata: Metadata, reason: str, said: str) -> None:
    found = refusal(server, metadata)
    assert (found.code, found.reason) == (grpc.StatusCode.UNAUTHENTICATED, reason)
    assert said in found.text
    with pytest.raises(grpc.RpcError) as agent, Agent(server, metadata=metadata) as made:
        made.connect()
    assert Failure(agent.value).reason == reason


def test_an_expired_token(server: Server, tokens: Tokens) -> None:
    token_id = tokens.add("old-secret", "ada", expires_us=wall_clock() - 1)
    found = refusal(server, bearer("old-secret"))
    assert (found.code, found.reason) == (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_EXPIRED")
    assert f"token {token_id} of ada (...secret) expired on 20" in found.text
    tokens.add("short-lived", "ada", expires_us=wall_clock() + 1_000_000)
    wait_for(lambda: _reason(server, "short-lived") == "TOKEN_EXPIRED")


def _reason(server: Server, secret: str) -> str:
    try:
        server.scheduler.List(scheduler_pb2.ListRequest(), timeout=LIMIT, metadata=bearer(secret))
    except grpc.RpcError as error:
        return Failure(error).reason
    return ""


def test_a_revoked_token_stops_working_and_ends_its_streams(server: Server, tokens: Tokens) -> None:
    token_id = tokens.add("stolen", "ada")
    submit(server, "stolen")
    watch = server.scheduler.Watch(scheduler_pb2.SchedulerWatchRequest(), timeout=LIMIT, metadata=bearer("stolen"))
    kept = server.scheduler.Watch(scheduler_pb2.SchedulerWatchRequest(), timeout=LIMIT, metadata=bearer("bob"))
    with closing(watch), closing(kept):
        assert next(watch).snapshot
        assert next(kept).snapshot
        tokens.revoke(token_id)
        found = failure(lambda: next(watch))
        assert (found.code, found.reason) == (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_UNKNOWN")
        assert refusal(server, bearer("stolen")).reason == "TOKEN_UNKNOWN"
        submit(server, "ada")
        assert [job.user for job in next(kept).jobs] == ["ada"], "who has another token is not disturbed"


def test_who_has_stopped_reading_is_told_too(server: Server, tokens: Tokens) -> None:
    token_id = tokens.add("stolen", "ada")
    large = {f"V{i}": "x" * 30_000 for i in range(4)}
    for _ in range(100):
        submit(server, "ada", environment=large)
    watch = server.scheduler.Watch(scheduler_pb2.SchedulerWatchRequest(), timeout=LIMIT, metadata=bearer("stolen"))
    with closing(watch):
        assert next(watch).snapshot
        tokens.revoke(token_id)
        wait_for(lambda: _reason(server, "stolen") == "TOKEN_UNKNOWN")
        found = failure(lambda: list(watch))
        assert (found.code, found.reason) == (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_UNKNOWN")


async def test_a_stream_goes_on_with_the_new_token_in_the_file(server: Server, tokens: Tokens, tmp_path: Path) -> None:
    old, file = tokens.add("old", "ada"), tmp_path / "token"
    tokens.add("new", "ada")
    file.write_text("old")
    with Client(server.address, token_file=file) as client:
        async with AsyncClient(server.address, token_file=file) as same:
            job = client.submit(["true"])
            watch, also = client.watch(job.id), same.watch(job.id)
            assert next(watch).jobs == (await anext(also)).jobs == (job,)
            file.write_text("new")
            tokens.revoke(old)
            wait_for(lambda: _reason(server, "old") == "TOKEN_UNKNOWN")
            client.cancel(job.id)
            assert [*watch][-1].jobs == [update async for update in also][-1].jobs == (client.get(job.id),)
            other = client.submit(["true"])
            file.write_text("old")
            with pytest.raises(Unauthenticated):
                next(client.watch(other.id))


@pytest.mark.parametrize(
    ("secret", "problem", "remedy"),
    [
        (None, "it asks for a token: name a file with one in token_file", ""),
        ("unheard-of", "the token is not known here, or was revoked. ", "Put another token into {file}"),
        ("of-ada", "Connect is for agents, and the token is of ada as user. ", "Put an agent's token into {file}"),
    ],
)
async def test_an_agent_that_is_refused_says_so_at_once(
    server: Server,
    tokens: Tokens,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    secret: str | None,
    problem: str,
    remedy: str,
) -> None:
    tokens.add("of-ada", "ada")
    file = tmp_path / "agent.token"
    file.write_text(secret or "")
    caplog.clear()
    said = await first_message(server.address, Security(file if secret else None), caplog)
    assert f"The scheduler at {server.address} refuses this node: {problem}{remedy.format(file=file)}" in said
    assert "(`ebb-scheduler token create --user agents --role agent` on the scheduler's machine makes one)" in said


async def test_a_stream_is_heard_before_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is refused as it writes may be told by gRPC that its write failed, and not why."""
    heard: list[bytes] = []

    async def speaking() -> AsyncIterator[bytes]:
        for data in (b"no message", b"no more of it"):
            heard.append(data)
            yield data

    async def silent() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    class Context:
        def invocation_metadata(self) -> Metadata:
            return ()

    async def never(_: Any, _context: Any) -> None:
        raise AssertionError

    backend = Backend(None, "u", 0, 1, 1)  # type: ignore[arg-type]
    known = token_cache.Tokens(dict)  # type: ignore[arg-type]
    method = Method("/ebb.agent.v1.AgentLink/Connect", agent_link_pb2.ConnectRequest.FromString, streams_requests=True)
    connect: Any = Access(backend, known).admit_callers(method, never)
    with pytest.raises(Refused, match="asks for a token"):
        await connect(speaking(), Context())
    assert heard == [b"no message"]
    monkeypatch.setattr(access, "SPEAKING_LIMIT", 0)
    with pytest.raises(Refused, match="asks for a token"):
        await asyncio.wait_for(connect(silent(), Context()), LIMIT)
    known.stop()
    backend.close()


def test_a_revoked_agent_loses_its_link(server: Server, tokens: Tokens) -> None:
    token_id = tokens.add("node-1", "agents", Role.AGENT)
    with Agent(server, metadata=bearer("node-1")) as agent:
        agent.connect()
        tokens.revoke(token_id)
        ended = agent.ended()
    assert ended is not None
    assert (ended.code, ended.reason) == (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_UNKNOWN")
    with Agent(server, metadata=bearer("agents")) as agent:
        agent.connect()


def test_health_asks_for_nothing(server: Server) -> None:
    health: Any = health_pb2_grpc.HealthStub(server.channel)
    assert health.Check(health_pb2.HealthCheckRequest(), timeout=LIMIT).status == health_pb2.HealthCheckResponse.SERVING


# ---- users and their jobs ----------------------------------------------------------------------------------------------


def test_the_subject_of_the_token_is_the_user(server: Server) -> None:
    first = submit(server, "ada", request_id="r")
    assert (first.user, submit(server, "ada", request_id="r").id) == ("ada", first.id)
    other = submit(server, "bob", request_id="r")
    assert (other.user, other.id) == ("bob", first.id + 1), "a request_id is its user's own"
    assert submit(server, "olga").user == "olga"


def test_a_job_is_changed_by_its_user_and_by_operators_alone(server: Server) -> None:
    job, second, ended = (submit(server, "ada").id for _ in range(3))

    def cancel(secret: str, job_id: int) -> Any:
        request = scheduler_pb2.CancelRequest(job_id=job_id)
        return server.scheduler.Cancel(request, timeout=LIMIT, metadata=bearer(secret)).job

    cancel("ada", ended)
    for job_id in (job, ended):
        denied = failure(lambda job_id=job_id: cancel("bob", job_id))
        assert (denied.code, denied.reason) == (grpc.StatusCode.PERMISSION_DENIED, "NOT_YOUR_JOB")
        assert denied.text == f"job {job_id} is ada's, and you are bob: Cancel is for ada and for operators"
        assert dict(denied.info.metadata) == {"job_id": str(job_id), "user": "ada"}
    with Client(server.address, token="bob") as bob:
        assert bob.get(job).user == "ada", "everybody may look"
        assert not bob.get(job).ended
    assert cancel("ada", job).id == job
    assert cancel("olga", second).id == second
    assert failure(lambda: cancel("bob", 99)).reason == "NO_SUCH_JOB"
    assert failure(lambda: cancel("bob", 0)).reason == "INVALID_FIELD"


def test_nothing_is_said_of_a_job_to_whom_is_not_known(server: Server) -> None:
    job = submit(server, "ada").id
    found = failure(lambda: server.scheduler.Cancel(scheduler_pb2.CancelRequest(job_id=job), timeout=LIMIT))
    assert (found.reason, dict(found.info.metadata)) == ("NO_TOKEN", {})


def test_what_the_client_makes_of_it(server: Server) -> None:
    job = submit(server, "ada").id
    with Client(server.address) as nobody, pytest.raises(Unauthenticated) as unknown:
        nobody.get(job)
    assert unknown.value.reason == "NO_TOKEN"
    with Client(server.address, token="bob") as bob:
        began = time.monotonic()
        with pytest.raises(PermissionDenied, match="job 1 is ada's, and you are bob") as denied:
            bob.cancel(job)
        assert denied.value.metadata == {"job_id": str(job), "user": "ada"}
        with bob.another() as same:
            assert [each.user for each in same.list()] == ["ada"]
        theirs = bob.submit(["true"])
        for mine in ({"mine": True}, {"user": "bob"}, {"user": "bob", "mine": True}):
            assert [each.id for each in bob.list(**mine)] == [theirs.id]
        assert ([each.id for each in bob.list(user="ada")], list(bob.list(user="ada", mine=True))) == ([job], [])
        assert time.monotonic() - began < LIMIT, "what is refused is not tried again"
    with Client(server.address, token="agents") as agent, pytest.raises(PermissionDenied) as wrong:
        list(agent.watch())
    assert wrong.value.reason == "ROLE"
    assert str(wrong.value) == "Watch is for users and operators, and the token is of agents as agent"
