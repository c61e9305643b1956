"""What users are told of runs: every reason, phase and kind of operation has its word."""

import grpc
import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import job_pb2, scheduler_pb2
from google.protobuf.duration_pb2 import Duration

import client_sdk
from scheduler_service.core.model import Reason, Run, RunPhase, StopReason
from scheduler_service.core.model.operations import OperationKind, OperationPhase
from scheduler_service.core.model.values import Vector
from scheduler_service.rpc.convert.runs import run_out
from tests.rpc.server import LIMIT, Agent, Server, failure
from tests.store.waiting import wait_for


@pytest.mark.parametrize("reason", StopReason)
def test_a_run_that_was_stopped_for_any_reason_can_be_listed(reason: StopReason) -> None:
    run = Run(1, 1, 1, (), Vector(1000), RunPhase.STOPPING, 5, stop_reason=reason)
    said = run_out(run, {})
    assert Reason(said.stop_reason) is not Reason.NONE
    assert said.phase == job_pb2.RUN_PHASE_STOPPING


WORDS = [(RunPhase, "RUN_PHASE_"), (OperationKind, "OPERATION_KIND_"), (OperationPhase, "OPERATION_PHASE_")]


@pytest.mark.parametrize(("ours", "prefix"), WORDS)
def test_the_words_of_the_api_and_of_the_sdk_are_those_of_the_core(
    ours: type[RunPhase | OperationKind | OperationPhase], prefix: str
) -> None:
    wire = {number: word for word, number in getattr(job_pb2, ours.__name__).items() if number}
    assert {member.value: f"{prefix}{member.name}" for member in ours} == wire
    assert {member.value for member in getattr(client_sdk, ours.__name__)} == {0, *wire}


def test_what_an_agent_says_of_the_end_of_a_run_is_told(database_url: str) -> None:
    """Also by a scheduler that has read it from the database."""
    why = "it uses 16000 MiB of device 0, which it shares, and may use 10000 MiB"
    with Server(database_url) as server, Agent(server) as agent:
        agent.connect()
        job = server.submit(devices=1)
        agent.started(1, job.id)
        server.until(job.id, "RUNNING")
        named = link_pb.RunCheckpoints(job_id=job.id, run=1, began_from="c-step-10", saved="c-step-15")
        agent.send(observations=link_pb.Observations(checkpoints=[named]))
        wait_for(lambda: server.get(job.id).checkpoint == "c-step-15")
        (run,) = server.scheduler.ListRuns(scheduler_pb2.ListRunsRequest(job_id=job.id), timeout=LIMIT).runs
        assert (run.began_from, run.checkpoint, server.get(job.id).began_from) == ("c-step-10", "c-step-15", "c-step-10")
        agent.send(heartbeat=link_pb.Heartbeat())
        wait_for(lambda: not server.get(job.id).checkpoint)
        how = {"exit_signal": 9, "out_of_memory": True, "out_of_device_memory": why}
        agent.exited(2, job.id, began_from="c-step-10", saved="c-step-20", **how)
        ended = server.until(job.id, "FAILED")
        assert (ended.reason, ended.reason_detail) == (job_pb2.JOB_REASON_OUT_OF_DEVICE_MEMORY, why)
    with Server(database_url) as server:
        (run,) = server.scheduler.ListRuns(scheduler_pb2.ListRunsRequest(job_id=job.id), timeout=LIMIT).runs
        assert (run.began_from, run.checkpoint) == ("c-step-10", "c-step-20")
        assert (server.get(job.id).began_from, server.get(job.id).checkpoint) == ("c-step-10", "c-step-20")
        story = server.scheduler.Story(scheduler_pb2.StoryRequest(job_id=job.id), timeout=LIMIT).events
        assert [(event.reason, event.text) for event in story][-1] == (job_pb2.JOB_REASON_OUT_OF_DEVICE_MEMORY, why)


def test_how_long_a_job_has_executed_is_told_by_two_fields(server: Server) -> None:
    """Whoever asks adds up the same, and a job that executes need not be told of again."""
    with Agent(server) as agent:
        agent.connect()
        job = server.submit(devices=1)
        assert not server.get(job.id).HasField("executing_since")
        agent.started(1, job.id)
        executes = server.until(job.id, "RUNNING")
        assert executes.executed_time == Duration()
        assert executes.executing_since == executes.start_time
        agent.exited(2, job.id)
        ended = server.until(job.id, "SUCCEEDED")
        assert ended.executed_time == ended.run_time != Duration()
        assert not ended.HasField("executing_since")


def test_agents_are_told_which_jobs_ended_long_ago(server: Server) -> None:
    """Of those that they name: one that has not ended, or that nobody knows, is none of them."""
    with Agent(server) as agent:
        agent.connect()
        over, live = server.submit(devices=1), server.submit(devices=1)
        agent.started(1, over.id)
        agent.exited(2, over.id)
        server.until(over.id, "SUCCEEDED")

        def ended(seconds: int) -> list[int]:
            request = link_pb.FindEndedRequest(job_ids=[99, live.id, over.id], after=Duration(seconds=seconds))
            return list(agent.stub.FindEnded(request, timeout=LIMIT).job_ids)

        assert ended(0) == [over.id]
        assert ended(3600) == []
        too_many = link_pb.FindEndedRequest(job_ids=range(1, 1002), after=Duration())
        assert failure(lambda: agent.stub.FindEnded(too_many, timeout=LIMIT)).code is grpc.StatusCode.INVALID_ARGUMENT
