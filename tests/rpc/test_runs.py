"""What users are told of runs: every reason, phase and kind of operation has its word."""

import pytest
from ebb.v1 import job_pb2

import client_sdk
from scheduler_service.core.model import Reason, Run, RunPhase, StopReason
from scheduler_service.core.model.operations import OperationKind, OperationPhase
from scheduler_service.core.model.values import Vector
from scheduler_service.rpc.convert.runs import run_out


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
