"""What a job asks of cells, between the API's message and the SDK's value."""

from ebb.v1 import job_pb2

from client_sdk import models
from client_sdk._values.options import ANY_CELLS


def cells(message: job_pb2.CellRequest) -> models.CellRequest:
    return models.CellRequest(
        pool=message.pool,
        model=message.model,
        pin=message.pin,
        level=message.level,
        within=tuple(map(_within, message.within)),
        lazy=message.lazy,
        vacates=message.vacates,
    )


def _within(message: job_pb2.Within) -> models.Within:
    return models.Within(message.level, message.preferred, message.task_group if message.HasField("task_group") else None)


def cells_message(value: models.CellRequest) -> job_pb2.CellRequest | None:
    if value == ANY_CELLS:
        return None
    within = [job_pb2.Within(level=w.level, preferred=w.preferred, task_group=w.task_group) for w in value.within]
    return job_pb2.CellRequest(
        pool=value.pool,
        model=value.model,
        pin=value.pin,
        level=value.level,
        within=within,
        lazy=value.lazy,
        vacates=value.vacates,
    )
