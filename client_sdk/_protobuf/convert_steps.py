"""The steps that runs count, between the API's messages and the SDK's values."""

from dataclasses import replace

from ebb.v1 import job_pb2, scheduler_pb2

from client_sdk import models
from client_sdk._protobuf.convert import duration, duration_message, enum, given, job


def found(answer: scheduler_pb2.GetResponse) -> models.Job:
    return replace(job(answer.job), steps=tuple(map(run_steps, answer.job.steps)))


def run_steps(message: job_pb2.RunSteps) -> models.RunSteps:
    return models.RunSteps(
        job_id=message.job_id,
        run=message.run,
        task=message.task,
        step=message.step,
        total=message.total if message.HasField("total") else None,
        state=enum(models.StepState, message.state),
        since_step=duration(message.since_step),
        step_rate=message.step_rate if message.HasField("step_rate") else None,
        step_rate_error=message.step_rate_error if message.HasField("step_rate_error") else None,
        step_rate_since_start=message.step_rate_since_start if message.HasField("step_rate_since_start") else None,
        mini_batch_time=given(message, "mini_batch_time"),
        mini_batch_spread=given(message, "mini_batch_spread"),
        measured=message.measured,
        remaining=given(message, "remaining"),
    )


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
