"""ebb.v1.Scheduler against a real engine and a real database: what is refused, and how; what repeats; what is listed."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import grpc
import pytest
from ebb.v1 import job_pb2, scheduler_pb2
from google.protobuf.duration_pb2 import Duration
from sqlalchemy import Connection, text

from scheduler_service import store
from scheduler_service.run import engine_queue as lanes
from tests.rpc.server import LIMIT, USER, Agent, Failure, Server, failure, submit_request
from tests.store.fixtures import new_database
from tests.store.waiting import wait_for

NO_RESOURCES = job_pb2.JobSpec(command=["true"])
FAULTY = [
    (scheduler_pb2.SubmitRequest(), "spec", "required"),
    (scheduler_pb2.SubmitRequest(spec=NO_RESOURCES), "spec.resources", "required"),
    (submit_request(cpu_milli=-1), "spec.resources.cpu_milli", "int64.gte_lte"),
    (submit_request(devices=1025), "spec.resources.devices", "int64.gte_lte"),
    (submit_request(request_id="a b"), "request_id", "string.pattern"),
    (submit_request(request_id="x" * 129), "request_id", "string.max_len"),
    (submit_request(name="-x"), "spec.name", "string.pattern"),
    (submit_request(working_directory="here"), "spec.working_directory", "string.pattern"),
    (submit_request(environment={"EBB_JOB_ID": "1"}), "spec.environment", "environment.reserved"),
    (submit_request(environment={"1": ""}), "spec.environment", "string.pattern"),
    (submit_request(environment={"A": "\0"}), "spec.environment", "string.pattern"),
    (submit_request(grace_period=Duration(seconds=86401)), "spec.grace_period", "duration.gte_lte"),
    (submit_request(job_class=7), "spec.job_class", "enum.defined_only"),
    (submit_request(command=[]), "spec.command", "repeated.min_items"),
    (submit_request(command=["a\0b"]), "spec.command", "string.pattern"),
]


def faulty_id(case: Any) -> str:
    return str(case[1]) + "-" + str(case[2])


@pytest.fixture
def idle(postgres_url: str, migrated_template: str) -> Iterator[Server]:
    """A server that stands by, since another holds the lease: what is refused before a handler needs no engine."""
    with new_database(postgres_url, migrated_template) as url:
        engine = store.open_engine(url)
        with engine.connect() as conn:
            assert store.take(conn, "another", ttl=60)
        engine.dispose()
        with Server(url, leads=False) as made:
            yield made


@pytest.mark.parametrize("case", FAULTY, ids=faulty_id)
def test_a_faulty_submit_is_told_the_field_and_the_rule(idle: Server, case: tuple[Any, str, str]) -> None:
    request, field, rule = case
    said = failure(lambda: idle.scheduler.Submit(request, timeout=LIMIT))
    assert (said.code, said.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert (said.info.metadata["field"], said.info.metadata["rule"]) == (field, rule)
    assert said.text.startswith(f"{field}: ")


def test_other_faulty_requests(idle: Server) -> None:
    requests = {
        "Get": scheduler_pb2.GetRequest(),
        "Cancel": scheduler_pb2.CancelRequest(job_id=-1),
        "Story": scheduler_pb2.StoryRequest(),
    }
    for method, request in requests.items():
        said = failure(lambda method=method, request=request: getattr(idle.scheduler, method)(request, timeout=LIMIT))
        assert (said.code, said.info.metadata["field"]) == (grpc.StatusCode.INVALID_ARGUMENT, "job_id")
    for fields in ({"page_size": 1001}, {"page_size": -1}, {"page_token": "x"}, {"states": [99]}, {"virtual_cluster": "a\0b"}):
        listing = scheduler_pb2.ListRequest(**fields)  # type: ignore[arg-type]
        said = failure(lambda listing=listing: idle.scheduler.List(listing, timeout=LIMIT))
        assert (said.code, said.info.metadata["field"]) == (grpc.StatusCode.INVALID_ARGUMENT, next(iter(fields)))
    said = failure(lambda: next(idle.watch(after_commit=-1)))
    assert (said.code, said.info.metadata["field"]) == (grpc.StatusCode.INVALID_ARGUMENT, "after_commit")


def test_who_does_not_lead_is_unavailable(idle: Server) -> None:
    with Agent(idle) as agent:
        for call in (idle.submit, lambda: idle.cancel(1), agent.connect, lambda: next(idle.watch())):
            said = failure(call)
            assert (said.code, said.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_LEADING")


def test_a_page_token_too_large_for_any_job(server: Server) -> None:
    job = server.submit()
    listing = scheduler_pb2.ListRequest(page_token="9" * 30)
    assert [found.id for found in server.scheduler.List(listing, timeout=LIMIT).jobs] == [job.id]


def test_no_such_job(server: Server) -> None:
    story = scheduler_pb2.StoryRequest(job_id=999)
    calls = {
        "get": lambda: server.get(999),
        "cancel": lambda: server.cancel(999),
        "story": lambda: server.scheduler.Story(story, timeout=LIMIT),
        "watch": lambda: next(server.watch(999)),
    }
    for name, call in calls.items():
        said = failure(call)
        assert (said.code, said.reason, dict(said.info.metadata)) == (
            grpc.StatusCode.NOT_FOUND,
            "NO_SUCH_JOB",
            {"job_id": "999"},
        ), name
        assert "there is no job 999" in said.text
    assert failure(lambda: server.get(2**63 - 1)).code is grpc.StatusCode.NOT_FOUND


def test_what_is_answered(server: Server) -> None:
    job = server.submit(request_id="r", name="a name", environment={"A": "b"})
    assert (job.id, job.user, job.state, job.run) == (1, USER, job_pb2.JOB_STATE_QUEUED, 0)
    assert (job.spec.job_class, job.spec.grace_period.seconds) == (job_pb2.JOB_CLASS_BEST_EFFORT, 30)
    assert dict(job.spec.environment) == {"A": "b"}
    assert server.get(1) == job


# ---- the same request --------------------------------------------------------------------------------------------------


def test_the_same_request_is_the_same_job(server: Server, database_url: str, conn: Connection) -> None:
    job = server.submit(request_id="once")
    assert server.submit(request_id="once") == job
    reused(server, job.id)
    assert server.cancel(job.id).state == job_pb2.JOB_STATE_CANCELLED
    assert server.submit(request_id="once").state == job_pb2.JOB_STATE_CANCELLED  # it has ended: the database knows it
    reused(server, job.id)
    live = server.submit(request_id="live")
    server.stop()
    with Server(database_url) as again:
        assert again.submit(request_id="once").id == job.id
        assert again.submit(request_id="live").id == live.id
        reused(again, job.id)
        assert again.submit().id == live.id + 1
    assert conn.execute(text("SELECT count(*) FROM job")).scalar() == 3


def reused(server: Server, job_id: int) -> None:
    said = failure(lambda: server.submit(request_id="once", cpu_milli=2000))
    assert (said.code, said.reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    assert said.info.metadata["job_id"] == str(job_id)


def test_repeats_at_once_among_others(server: Server, conn: Connection) -> None:
    """Also of jobs that have ended, so that the database refuses whole batches, which are then taken one by one."""
    for i in range(3):
        server.cancel(server.submit(request_id=f"r{i}").id)
    requests = [f"r{i % 10}" for i in range(100)]
    calls = [server.scheduler.Submit.future(submit_request(r), timeout=LIMIT) for r in requests]
    jobs = [call.result().job.id for call in calls]
    assert {r: {j for r2, j in zip(requests, jobs, strict=True) if r2 == r} for r in requests} == {
        row.request_id: {row.id} for row in conn.execute(text("SELECT request_id, id FROM job"))
    }
    ids = sorted(set(jobs))
    assert ids == list(range(ids[0], ids[0] + 10)), "what was undone leaves no gap"


# ---- too much ----------------------------------------------------------------------------------------------------------


def test_too_much_waits(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    commits_kept_out: Callable[[], AbstractContextManager[Callable[[], None]]],
) -> None:
    monkeypatch.setattr(lanes, "WAITING_REQUESTS", 3)
    with Agent(server) as agent:
        with commits_kept_out() as until_one_waits:
            first = server.scheduler.Submit.future(submit_request("first"), timeout=LIMIT)
            until_one_waits()
            calls = [server.scheduler.Submit.future(submit_request(f"r{i}"), timeout=LIMIT) for i in range(6)]
            wait_for(lambda: sum(call.done() for call in calls) == 3)
            for call in calls:
                if call.done():
                    said = Failure(call.exception())
                    assert (said.code, said.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_REQUESTS")
                    assert said.retry is not None
                    assert said.retry.retry_delay.seconds == 1
            waiting = [call for call in (first, *calls) if not call.done()]
            agent.send(hello=agent.hello)  # what agents say is never refused
        assert sorted(call.result().job.id for call in waiting) == [1, 2, 3, 4]
        assert agent.receive("welcome").acknowledged == 0
    assert server.submit().id == 5


def test_larger_than_every_node(server: Server, agent: Agent) -> None:
    said = failure(lambda: server.submit(devices=3))
    assert (said.code, said.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NO_NODE_LARGE_ENOUGH")
    assert "no node of this cluster has 3 devices, 1 CPUs and 1 MiB" in said.text
    assert server.submit(devices=2).id == 1


def test_without_nodes_everything_is_accepted(server: Server) -> None:
    assert server.submit(devices=1000).state == job_pb2.JOB_STATE_QUEUED


# ---- lists -------------------------------------------------------------------------------------------------------------


def listed(server: Server, **fields: Any) -> tuple[list[int], str]:
    answer = server.scheduler.List(scheduler_pb2.ListRequest(**fields), timeout=LIMIT)
    return [job.id for job in answer.jobs], answer.next_page_token


def test_pages_and_states(server: Server) -> None:
    for _ in range(5):
        server.submit()
    server.cancel(2)
    server.cancel(4)
    assert listed(server) == ([5, 4, 3, 2, 1], "")
    first, token = listed(server, page_size=2)
    server.submit()  # a new one does not shift the pages
    second, token2 = listed(server, page_size=2, page_token=token)
    third, last = listed(server, page_size=2, page_token=token2)
    assert (first, second, third, last) == ([5, 4], [3, 2], [1], "")
    cancelled, queued = job_pb2.JOB_STATE_CANCELLED, job_pb2.JOB_STATE_QUEUED
    assert listed(server, states=[cancelled]) == ([4, 2], "")
    assert listed(server, states=[cancelled], page_size=1) == ([4], "4")
    assert listed(server, states=[cancelled, queued], page_size=6) == ([6, 5, 4, 3, 2, 1], "")


def test_reasons_of_those_that_wait(server: Server, agent: Agent) -> None:
    for _ in range(3):
        server.submit(devices=2)
    jobs = server.scheduler.List(scheduler_pb2.ListRequest(), timeout=LIMIT).jobs
    told = {job.id: (job.reason, job.cause_job_id) for job in jobs}
    assert told[2] == (job_pb2.JOB_REASON_NO_ROOM, 0)
    assert told[3] == (job_pb2.JOB_REASON_BEHIND, 2)
