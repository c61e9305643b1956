"""ebb.v1.Snapshots, and the agents' end of it: whose files are whose, how large they may be, and what is refused."""

import asyncio
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import grpc
import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import snapshots_pb2 as pb
from ebb.v1 import snapshots_pb2_grpc

from scheduler_service.core.model.tokens import Role
from scheduler_service.rpc import file_expiry
from scheduler_service.rpc.backend import Backend
from scheduler_service.run.ports import NotCommitted
from scheduler_service.run.token_cache import wall_clock
from tests.rpc.server import LIMIT, Agent, Server, failure, submit_request
from tests.rpc.test_access import Tokens, bearer

DATA = bytes(range(256)) * 10_000  # 2.4 MiB
DIGEST = sha256(DATA).hexdigest()


class Caller:
    """Of the service, by a token or without."""

    def __init__(self, server: Server, metadata: Any = ()) -> None:
        self.snapshots: Any = snapshots_pb2_grpc.SnapshotsStub(server.channel)
        self.server = server
        self.metadata = metadata

    def find(self, digest: str = DIGEST) -> Any:
        return self.snapshots.FindSnapshot(pb.FindSnapshotRequest(digest=digest), timeout=LIMIT, metadata=self.metadata)

    def put(self, data: bytes = DATA, digest: str = DIGEST, piece: int = 1 << 20) -> Any:
        at, size = 0, len(data)
        while at < size:
            part = pb.PutSnapshotRequest(digest=digest, size=size, offset=at, data=data[at : at + piece])
            answer = self.snapshots.PutSnapshot(part, timeout=LIMIT, metadata=self.metadata)
            at = answer.stored
        return answer

    def submit(self, **spec: Any) -> Any:
        return self.server.scheduler.Submit(submit_request(**spec), timeout=LIMIT, metadata=self.metadata).job

    def result(self, job_id: int, offset: int = 0) -> Any:
        request = pb.GetResultRequest(job_id=job_id, offset=offset)
        return self.snapshots.GetResult(request, timeout=LIMIT, metadata=self.metadata)


def fetched(agent: Agent, job_id: int, digest: str = DIGEST, metadata: Any = ()) -> bytes:
    data = b""
    while True:
        request = link_pb.GetSnapshotRequest(job_id=job_id, digest=digest, offset=len(data))
        answer = agent.stub.GetSnapshot(request, timeout=LIMIT, metadata=metadata)
        data += answer.data
        if len(data) >= answer.size:
            return data


def test_a_snapshot_goes_from_a_user_to_an_agent(server: Server, agent: Agent) -> None:
    user = Caller(server)
    assert (user.find().stored, user.find().complete) == (0, False)
    refused = failure(lambda: user.submit(snapshots=[DIGEST]))
    assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NO_SUCH_SNAPSHOT")
    first = pb.PutSnapshotRequest(digest=DIGEST, size=len(DATA), offset=0, data=DATA[: 1 << 20])
    assert user.snapshots.PutSnapshot(first, timeout=LIMIT).stored == 1 << 20
    assert user.snapshots.PutSnapshot(first, timeout=LIMIT).stored == 1 << 20, "a repeat"
    assert failure(lambda: user.submit(snapshots=[DIGEST])).reason == "NO_SUCH_SNAPSHOT"
    assert user.put().complete
    job = user.submit(snapshots=[DIGEST])
    assert list(job.spec.snapshots) == [DIGEST]
    assert list(agent.orders()[0].running.spec.snapshots) == [DIGEST]
    assert fetched(agent, job.id) == DATA
    other = user.submit()
    assert failure(lambda: fetched(agent, other.id)).reason == "NO_SUCH_SNAPSHOT", "that job does not name it"


def test_what_is_wrong_is_not_kept(server: Server) -> None:
    user = Caller(server)
    damaged = failure(lambda: user.put(DATA[:-1] + b"x"))
    assert (damaged.code, damaged.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "DAMAGED")
    assert user.find().stored == 0
    for request, field in (
        (pb.PutSnapshotRequest(digest="../x", size=1, data=b"x"), "digest"),
        (pb.PutSnapshotRequest(digest=DIGEST, size=0, data=b"x"), "size"),
        (pb.PutSnapshotRequest(digest=DIGEST, size=1), "data"),
        (pb.PutSnapshotRequest(digest=DIGEST, size=1 << 21, data=bytes((1 << 20) + 1)), "data"),
    ):
        said = failure(lambda request=request: user.snapshots.PutSnapshot(request, timeout=LIMIT))
        assert (said.reason, said.info.metadata["field"]) == ("INVALID_FIELD", field)
    for digests in (["x"], [DIGEST, DIGEST], [sha256(bytes([n])).hexdigest() for n in range(5)]):
        assert failure(lambda digests=digests: user.submit(snapshots=digests)).reason == "INVALID_FIELD"


def test_there_are_limits(database_url: str) -> None:
    with Server(database_url, snapshot_mib=2, files_of_user_mib=3, result_mib=1) as server:
        user = Caller(server)
        large = failure(lambda: user.put(bytes(3 << 20), "0" * 64))
        assert (large.code, large.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE")
        assert "a snapshot may have 2 MiB, and this one has 3.0 MiB" in large.text
        one, other = bytes(2 << 20), bytes([1]) * (2 << 20)
        user.put(one, sha256(one).hexdigest())
        full = failure(lambda: user.put(other, sha256(other).hexdigest()))
        assert (full.code, full.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MUCH_STORED")
        with Agent(server) as agent:
            agent.connect()
            job = user.submit()
            piece = link_pb.PutResultRequest(job_id=job.id, run=1, size=(1 << 20) + 1, data=b"x")
            assert failure(lambda: agent.stub.PutResult(piece, timeout=LIMIT)).reason == "TOO_LARGE"
            while_full = [link_pb.PutResultRequest(job_id=job.id, run=run, size=1 << 20, data=bytes(1 << 20)) for run in (1, 2)]
            for piece in while_full:  # 4 MiB with the snapshot: no result is lost for want of room
                assert agent.stub.PutResult(piece, timeout=LIMIT).stored == 1 << 20


def test_a_result_comes_back(server: Server, agent: Agent) -> None:
    user = Caller(server)
    job = user.submit()
    agent.orders()
    none = failure(lambda: user.result(job.id))
    assert (none.code, none.reason) == (grpc.StatusCode.NOT_FOUND, "NO_RESULT")
    for at, data in ((0, b"re"), (0, b"re"), (2, b"sult")):
        piece = link_pb.PutResultRequest(job_id=job.id, run=1, size=6, offset=at, data=data)
        stored = agent.stub.PutResult(piece, timeout=LIMIT).stored
    assert stored == 6
    assert (user.result(job.id).data, user.result(job.id).size) == (b"re", 6)
    assert user.result(job.id, 2).data == b"sult"
    assert user.result(job.id, 6).data == b""
    nobodys = link_pb.PutResultRequest(job_id=99, run=1, size=6, data=b"x")
    assert failure(lambda: agent.stub.PutResult(nobodys, timeout=LIMIT)).reason == "NO_SUCH_JOB"


@pytest.fixture
def guarded(database_url: str, engine: Any) -> Iterator[Server]:
    tokens = Tokens(engine)
    for role, name in {Role.USER: "ada", Role.OPERATOR: "olga", Role.AGENT: "agents"}.items():
        tokens.add(name, name, role)
    tokens.add("bob", "bob")
    with Server(database_url, auth="token") as made:
        yield made


def test_they_are_their_owners(guarded: Server) -> None:
    ada, bob, olga, agents = (Caller(guarded, bearer(name)) for name in ("ada", "bob", "olga", "agents"))
    ada.put()
    assert not bob.find().complete
    assert failure(lambda: bob.submit(snapshots=[DIGEST])).reason == "NO_SUCH_SNAPSHOT"
    assert failure(agents.find).code is grpc.StatusCode.PERMISSION_DENIED
    with Agent(guarded, metadata=agents.metadata) as agent:
        agent.connect()
        job = ada.submit(snapshots=[DIGEST])
        assert fetched(agent, job.id, metadata=agents.metadata) == DATA
        request = link_pb.GetSnapshotRequest(job_id=job.id, digest=DIGEST)
        told = failure(lambda: agent.stub.GetSnapshot(request, timeout=LIMIT, metadata=ada.metadata))
        assert told.code is grpc.StatusCode.PERMISSION_DENIED, "users do not read what agents do"
        agent.orders()
        piece = link_pb.PutResultRequest(job_id=job.id, run=1, size=1, data=b"x")
        agent.stub.PutResult(piece, timeout=LIMIT, metadata=agents.metadata)
        assert ada.result(job.id).data == olga.result(job.id).data == b"x"
        assert failure(lambda: bob.result(job.id)).reason == "NOT_YOUR_JOB"


async def test_what_no_job_needs_is_deleted_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_expiry, "INTERVAL", 0)
    asked: list[int] = []
    twice = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Files:
        def expire(self, before: int) -> int:
            asked.append(before)
            if len(asked) == 1:
                raise NotCommitted("the database is away")
            loop.call_soon_threadsafe(twice.set)
            return 1

    backend = Backend(None, "u", 0, 1, 1, files=Files())  # type: ignore[arg-type]
    before = wall_clock()
    task = asyncio.create_task(file_expiry.expire_files(backend, keep_days=2))
    try:
        await asyncio.wait_for(twice.wait(), LIMIT)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        backend.close()
    assert abs(asked[0] - (before - 2 * 86400 * 10**6)) < 60 * 10**6
