"""Grace periods over the link and the API: what a run asks for, and what its user says."""

from collections.abc import Iterator

import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import job_pb2, scheduler_pb2
from google.protobuf.duration_pb2 import Duration

from tests.rpc.server import LIMIT, Agent, Server, failure
from tests.store.waiting import wait_for


@pytest.fixture
def server(database_url: str) -> Iterator[Server]:
    with Server(database_url, default_grace=20, grace_limit=100) as made:
        yield made


def asks(agent: Agent, job: int, seconds: int, **other: int) -> None:
    asked = {"run": 1, **other}
    agent.send(
        observations=link_pb.Observations(
            graces=[link_pb.RunGrace(job_id=job, grace_period=Duration(seconds=seconds), **asked)]
        )
    )


def running(server: Server, agent: Agent, sequence: int, **spec: object) -> int:
    job = server.submit(**spec)
    agent.orders()
    agent.started(sequence, job.id)
    agent.acknowledged()
    return int(job.id)


def period(server: Server, job: int) -> int:
    return int(server.get(job).spec.grace_period.seconds)


def update(server: Server, job: int, **what: object) -> job_pb2.Job:
    return server.scheduler.Update(scheduler_pb2.UpdateRequest(job_id=job, **what), timeout=LIMIT).job


def story(server: Server, job: int) -> list[str]:
    events = server.scheduler.Story(scheduler_pb2.StoryRequest(job_id=job), timeout=LIMIT).events
    return [event.text for event in events if event.kind == job_pb2.JOB_EVENT_KIND_UPDATED]


def test_what_a_run_asks_for_is_given_and_sent_with_its_stop(server: Server) -> None:
    with Agent(server, "n1") as agent:
        agent.connect()
        job = running(server, agent, 1)
        assert (period(server, job), server.get(job).grace_follows) == (20, True)
        for seconds, has in ((5, 20), (45, 45), (50, 45), (60, 60)):
            asks(agent, job, seconds)
            wait_for(lambda has=has: period(server, job) == has, LIMIT)
        asks(agent, job, 90, run=2)
        assert story(server, job) == [
            "grace period 20 s -> 45 s: its saves take so long",
            "grace period 45 s -> 60 s: its saves take so long",
        ]
        asks(agent, job, 101)
        found = wait_for(lambda: told if (told := server.get(job)).grace_wanted.seconds == 101 else None, LIMIT)
        assert found.spec.grace_period.seconds == 60
        server.cancel(job)
        (order,) = agent.orders()
        assert order.stopped.grace_period.seconds == 60


def test_what_a_user_gives_stays_until_it_is_to_follow(server: Server) -> None:
    with Agent(server, "n1") as agent:
        agent.connect()
        job = running(server, agent, 1, grace_period=Duration(seconds=10))
        assert not server.get(job).grace_follows
        asks(agent, job, 45)
        wait_for(lambda: server.get(job).grace_wanted.seconds == 45, LIMIT)
        assert period(server, job) == 10
        assert update(server, job, grace_period=Duration(seconds=15)).spec.grace_period.seconds == 15
        told = update(server, job, grace_follows=True)
        assert (told.spec.grace_period.seconds, told.grace_follows) == (45, True)


def test_steps_to_skip_go_with_the_next_launch(server: Server) -> None:
    with Agent(server, "n1") as agent:
        agent.connect()
        job = running(server, agent, 1)
        assert update(server, job, skip_steps=5000).skip_steps == 5000
        assert story(server, job) == ["its next launch skips the steps up to 5000"]
        server.scheduler.Requeue(scheduler_pb2.RequeueRequest(job_id=job, run=1), timeout=LIMIT)
        (stop,) = agent.orders()
        assert stop.HasField("stopped")
        agent.exited(2, job, yielded=True)
        (order,) = agent.orders()
        assert (order.run, order.running.skip_steps) == (2, 5000)
        assert "skip_steps" in failure(lambda: update(server, job, skip_steps=-1)).text


def test_a_grace_period_that_cannot_be_is_refused(server: Server) -> None:
    job = server.submit(checkpoint_signal="USR1@15")
    refused = failure(lambda: update(server, job.id, grace_period=Duration(seconds=14)))
    assert refused.reason == "GRACE_TOO_SHORT"
    assert "grace_period" in failure(lambda: update(server, job.id, grace_period=Duration(seconds=86401))).text
    assert period(server, job.id) == 20
