"""The steps that runs count, between the API's messages and the SDK's values."""

from ebb.v1 import job_pb2

from client_sdk import models
from client_sdk._protobuf.convert import duration_message


def run_steps_message(value: models.RunSteps) -> job_pb2.RunSteps:
    """As `testing` answers it."""
    return job_pb2.RunSteps(
        job_id=value.job_id,
        run=value.run,
        task=value.task,
        step=value.step,
        total=value.total,
        state=job_pb2.StepState.Name(value.state),
        since_step=duration_message(value.since_step),
        step_rate=value.step_rate,
        step_rate_error=value.step_rate_error,
        step_rate_since_start=value.step_rate_since_start,
        mini_batch_time=duration_message(value.mini_batch_time),
        mini_batch_spread=duration_message(value.mini_batch_spread),
        measured=value.measured,
        remaining=duration_message(value.remaining),
    )


def mini_batch_message(value: models.MiniBatch) -> job_pb2.MiniBatch:
    """As `testing` answers it."""
    return job_pb2.MiniBatch(
        job_id=value.job_id,
        run=value.run,
        task=value.task,
        time=duration_message(value.time),
        confidence=value.confidence,
        source=job_pb2.MiniBatchSource.Name(value.source),
    )
