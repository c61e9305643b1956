"""What `Explain` tells of the past."""

import pytest
from ebb.v1 import cluster_pb2, job_pb2, scheduler_pb2
from google.protobuf.duration_pb2 import Duration

from scheduler_service.core.model import EventKind, Job, JobEvent, JobSpec, JobState
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.rpc.services.explain import preempted_out
from scheduler_service.run.read_model import JobView
from tests.rpc.server import LIMIT, Agent, Server


@pytest.mark.parametrize("back", [EventKind.STARTED, EventKind.SUSPENDED, EventKind.HELD])
def test_a_preemption_costs_until_the_job_is_back_or_set_aside_by_its_user(back: EventKind) -> None:
    told = [
        (0, EventKind.PREEMPTED, 7),
        (5, EventKind.STARTED, 0),
        (100, EventKind.PREEMPTED, 9),
        (130, back, 0),
        (200, EventKind.STARTED, 0),
    ]
    story = [JobEvent(1, at * SECOND, kind, cause_job=cause) for at, kind, cause in told]
    job = Job(1, JobSpec(("true",), Vector(0, 0, 120)), "ann", "", 0, JobState.RUNNING)
    cost = preempted_out(story, JobView(job, ()))
    assert cost is not None
    assert (cost.by_job_id, cost.time.seconds, cost.away.seconds, cost.device_hours) == (9, 100, 30, pytest.approx(1))


def test_why_a_configuration_was_chosen_is_told_while_the_job_runs_and_after_it_has_ended(database_url: str) -> None:
    """From the story: whatever is free now, and also by a scheduler that was started since."""
    on_cpus = job_pb2.Configuration(resources=job_pb2.Resources(cpu_milli=1000), estimate=Duration(seconds=30))
    spec = {"devices": 2, "estimate": Duration(seconds=60), "alternatives": [on_cpus]}
    settings = {"policy": "allox", "policy_settings": {"alpha": 1.0}}

    def why(server: Server, job_id: int) -> str:
        asked = scheduler_pb2.ExplainRequest(job_id=job_id)
        said: str = server.scheduler.Explain(asked, timeout=LIMIT).explanation.configuration_reason
        return said

    with Server(database_url, **settings) as server, Agent(server) as agent:
        agent.connect()
        job = server.submit(**spec)
        agent.started(1, job.id)
        job = server.until(job.id, "RUNNING")
        compared = "estimated: configuration 0 60 s, configuration 1 30 s"
        assert (job.configuration, why(server, job.id)) == (1, compared)
        agent.exited(2, job.id)
        server.until(job.id, "SUCCEEDED")
        simple, waits = (server.submit(devices=2).id for _ in range(2))
        assert [why(server, job_id) for job_id in (simple, waits)] == ["", ""], "they have no other configuration"
    with Server(database_url) as server:
        assert why(server, job.id) == compared


def test_a_job_that_others_joined_says_who_takes_turns_with_it(database_url: str) -> None:
    devices = [cluster_pb2.Device(index=index, uuid=f"n1-{index}", memory_mib=2_000) for index in range(2)]
    with Server(database_url, policy="gandiva") as server, Agent(server) as agent:
        agent.hello.devices.clear()
        agent.hello.devices.extend(devices)
        agent.connect()
        first = server.submit(devices=2).id
        agent.started(1, first)
        server.until(first, "RUNNING")

        def why() -> str:
            asked = scheduler_pb2.ExplainRequest(job_id=first)
            said: str = server.scheduler.Explain(asked, timeout=LIMIT).explanation.sharing_reason
            return said

        assert why() == ""
        joins = server.submit(devices=2).id
        server.until(joins, "STARTING")
        assert why() == f"overload: job {joins} came to take turns with it"
