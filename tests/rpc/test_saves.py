"""What is told of the saves of runs: which jobs lose their work if they are stopped, and what a stop has lost."""

from collections.abc import Callable
from typing import Any

import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import cluster_pb2, job_pb2, scheduler_pb2
from google.protobuf.duration_pb2 import Duration

from tests.rpc.server import LIMIT, Agent, Server, wait_for

SAVED, NOT_SAVED = job_pb2.SAVE_OUTCOME_SAVED, job_pb2.SAVE_OUTCOME_NOT_SAVED


def sees(agent: Agent, job_id: int, means: Any) -> None:
    known = link_pb.RunCheckpoints(job_id=job_id, run=1, means=means)
    agent.send(observations=link_pb.Observations(checkpoints=[known]))


def risks(server: Server, ask: Callable[[bool], Any], only: bool) -> list[int]:
    return [risk.job_id for risk in ask(only).jobs_at_risk]


@pytest.mark.parametrize("verb", ["suspend", "park", "requeue", "drain", "evict"])
@pytest.mark.parametrize("means", [link_pb.SAVE_MEANS_NONE, link_pb.SAVE_MEANS_HANDLER, link_pb.SAVE_MEANS_REGISTERED])
def test_a_job_that_nothing_saves_is_named_before_and_after(server: Server, verb: str, means: Any) -> None:
    def ask(only: bool) -> Any:
        match verb:
            case "suspend" | "park":
                asked = scheduler_pb2.SuspendRequest(job_id=job.id, park=verb == "park", validate_only=only)
                return server.scheduler.Suspend(asked, timeout=LIMIT)
            case "requeue":
                return server.scheduler.Requeue(scheduler_pb2.RequeueRequest(job_id=job.id, validate_only=only), timeout=LIMIT)
            case _:
                drain = cluster_pb2.DrainRequest(node="n1", evict=verb == "evict", validate_only=only)
                return server.cluster.Drain(drain, timeout=LIMIT)

    with Agent(server) as agent:
        agent.connect()
        job = server.submit(devices=1)
        agent.started(1, job.id)
        server.until(job.id, "RUNNING")
        sees(agent, job.id, means)
        leading = server.get(job.id)
        expected = [job.id] if means == link_pb.SAVE_MEANS_NONE and verb in ("suspend", "requeue", "evict") else []
        assert risks(server, ask, True) == expected
        assert server.get(job.id).state == leading.state, "nothing has changed"
        wait_for(lambda: risks(server, ask, False) == expected)
        if verb != "drain":
            assert server.get(job.id).state != leading.state


def test_what_an_older_agent_does_not_say_is_no_risk(server: Server) -> None:
    with Agent(server) as agent:
        agent.connect()
        job = server.submit(devices=1)
        agent.started(1, job.id)
        server.until(job.id, "RUNNING")
        asked = scheduler_pb2.SuspendRequest(job_id=job.id, validate_only=True)
        assert not server.scheduler.Suspend(asked, timeout=LIMIT).jobs_at_risk


def test_what_a_stop_has_lost_is_told_of_the_run_and_of_the_job(database_url: str) -> None:
    with Server(database_url) as server, Agent(server) as agent:
        agent.connect()
        job = server.submit(devices=1)
        agent.started(1, job.id)
        server.until(job.id, "RUNNING")
        server.scheduler.Suspend(scheduler_pb2.SuspendRequest(job_id=job.id), timeout=LIMIT)
        save = job_pb2.SaveResult(outcome=NOT_SAVED, step=900, detail="No space left on device")
        agent.exited(2, job.id, exit_code=1, told=True, save=save)
        server.until(job.id, "SUSPENDED")
    with Server(database_url) as server:
        (run,) = server.scheduler.ListRuns(scheduler_pb2.ListRunsRequest(job_id=job.id), timeout=LIMIT).runs
        assert run.save == server.get(job.id).last_save == save
        story = server.scheduler.Story(scheduler_pb2.StoryRequest(job_id=job.id), timeout=LIMIT).events
        (line,) = (event for event in story if event.kind == job_pb2.JOB_EVENT_KIND_SUSPENDED)
        assert line.text.startswith(
            "left with exit code 1, and did not save (No space left on device); its last checkpoint is of step 900"
        )


def test_failing_saves_and_long_steps_are_told_seldom(server: Server) -> None:
    def told(kind: Any) -> list[str]:
        story = server.scheduler.Story(scheduler_pb2.StoryRequest(job_id=job.id), timeout=LIMIT).events
        return [event.text for event in story if event.kind == kind]

    with Agent(server) as agent:
        agent.connect()
        job = server.submit(devices=1, grace_period=Duration(seconds=30))
        agent.started(1, job.id)
        server.until(job.id, "RUNNING")
        for failures in (1, 1, 2, 3, 4, 5):
            known = link_pb.RunCheckpoints(job_id=job.id, run=1, failed="No space left on device", failures=failures, step=900)
            known.longest_step.seconds = 30 + 10 * failures
            agent.send(observations=link_pb.Observations(checkpoints=[known]))
        wait_for(lambda: len(told(job_pb2.JOB_EVENT_KIND_SAVE_FAILED)) == 3)
        wait_for(lambda: len(told(job_pb2.JOB_EVENT_KIND_GRACE_TOO_SHORT)) == 3)
        assert "No space left on device" in told(job_pb2.JOB_EVENT_KIND_SAVE_FAILED)[0]
        assert told(job_pb2.JOB_EVENT_KIND_GRACE_TOO_SHORT)[0].startswith("a step takes 40 s, the grace period is 30 s")
