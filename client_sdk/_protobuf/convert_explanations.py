"""Between the API's messages and the SDK's values, for what explains."""

from dataclasses import asdict

from ebb.v1 import scheduler_pb2

from client_sdk import models
from client_sdk._protobuf.convert import duration_message, job
from client_sdk._protobuf.reading import read


def explanation(message: scheduler_pb2.ExplainResponse) -> models.Explanation:
    return read(models.Explanation, message.explanation, job=job(message.job))


def preview(message: scheduler_pb2.SubmitResponse) -> models.Preview:
    found, would_be = message.preview, job(message.job)
    why = read(models.Explanation, found.explanation, job=would_be) if found.HasField("explanation") else None
    return read(models.Preview, found, job=would_be, explanation=why)


def shares(message: scheduler_pb2.SharesResponse) -> models.Shares:
    return read(models.Shares, message)


def shares_message(value: models.Shares) -> scheduler_pb2.SharesResponse:
    """As `testing` answers it."""
    message = scheduler_pb2.SharesResponse(
        half_life=duration_message(value.half_life),
        shares=[scheduler_pb2.Share(**asdict(each)) for each in value.shares],
        more_shares=value.more_shares,
        queued=value.queued,
        next_job_ids=value.next_job_ids,
    )
    if value.time is not None:
        message.time.FromDatetime(value.time)
    return message
