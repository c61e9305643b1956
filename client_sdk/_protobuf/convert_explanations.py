"""Between the API's messages and the SDK's values, for what explains."""

from ebb.v1 import scheduler_pb2

from client_sdk import models
from client_sdk._protobuf.convert import job
from client_sdk._protobuf.reading import read


def explained(message: scheduler_pb2.ExplainResponse) -> models.Explanation:
    return read(models.Explanation, message.explanation, job=job(message.job))


def preview(message: scheduler_pb2.SubmitResponse) -> models.Preview:
    found, would_be = message.preview, job(message.job)
    why = read(models.Explanation, found.explanation, job=would_be) if found.HasField("explanation") else None
    return read(models.Preview, found, job=would_be, explanation=why)
