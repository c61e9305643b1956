"""The SDK's values are read from the API's messages by the names and the types of their fields."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ebb.v1 import cluster_pb2, exchange_pb2, job_pb2, scheduler_pb2, virtual_clusters_pb2
from google.protobuf.message import Message

from client_sdk import models
from client_sdk._protobuf import convert, convert_nodes, convert_virtual_clusters
from client_sdk._protobuf.reading import read

UNKNOWN = 999
"""The number of no word of the API."""


@pytest.mark.parametrize(
    ("kind", "message", "given"),
    [
        (models.Job, job_pb2.Job, {"array_index": 1}),
        (models.JobEvent, job_pb2.JobEvent, {}),
        (models.JobUpdate, scheduler_pb2.SchedulerWatchResponse, {}),
        (models.Explanation, scheduler_pb2.Explanation, {"job": "given"}),
        (models.Preview, scheduler_pb2.Preview, {"job": "given", "explanation": "given"}),
        (models.Node, cluster_pb2.Node, {"devices": "given", "observations": "given"}),
        (models.Device, cluster_pb2.Device, {"job_ids": "given"}),
        (models.Observations, cluster_pb2.NodeObservations, {}),
        (models.Posting, exchange_pb2.Posting, {"id": 1}),
        (models.CellExchange, exchange_pb2.CellExchange, {"id": 1}),
        (models.LedgerEntry, exchange_pb2.LedgerEntry, {}),
        (models.Surplus, exchange_pb2.Surplus, {}),
        (models.VirtualCluster, virtual_clusters_pb2.VirtualCluster, {}),
        (models.Pool, virtual_clusters_pb2.Pool, {}),
    ],
)
def test_every_field_of_a_value_is_read(kind: type[Any], message: type[Message], given: dict[str, Any]) -> None:
    assert not list(_empty(read(kind, _full(message()), **given)))


def _full(message: Message) -> Message:
    """With something in every field, at every depth."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["x"] = (
                1.0 if field.message_type.fields_by_name["value"].type == field.TYPE_DOUBLE else "x"
            )
        elif field.message_type is not None:
            _full(getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name))
        elif field.is_repeated:
            getattr(message, field.name).append("x" if field.type == field.TYPE_STRING else 1)
        else:
            setattr(message, field.name, "x" if field.type == field.TYPE_STRING else 1)
    return message


def _empty(value: Any, path: str = "") -> Iterator[str]:
    """Paths of the fields that are 0, empty or None, at every depth."""
    if isinstance(value, tuple):
        yield from (found for each in value for found in _empty(each, path))
    if not value:
        yield path
    elif is_dataclass(value):
        yield from (found for each in fields(value) for found in _empty(getattr(value, each.name), f"{path}.{each.name}"))


def test_a_field_that_its_message_lacks_is_named() -> None:
    with pytest.raises(AssertionError, match="Surplus has no exchange_id, and LedgerEntry has"):
        read(models.LedgerEntry, exchange_pb2.Surplus())


def test_what_a_message_leaves_out_is_none_or_the_default() -> None:
    job = convert.job(job_pb2.Job(id=1))
    assert (job.cause_job_id, job.node, job.start_time, job.time_limit, job.array) == (None,) * 5
    assert (job.run_time, job.spec.retry, job.spec.cells) == (timedelta(0), models.Retry(), models.CellRequest())
    assert (job.spec.working_directory, job.spec.array, job.spec.task_groups) == (None, None, ())


def test_zero_is_kept_where_the_message_tells_it_from_absence() -> None:
    zero, absent = cluster_pb2.Device(index=1, numa_node=0), cluster_pb2.Device(index=2)
    first, second = convert_nodes.node(cluster_pb2.Node(devices=[zero, absent])).devices
    assert (first.numa_node, second.numa_node) == (0, None)
    spec = job_pb2.JobSpec()
    spec.grace_period.SetInParent()
    assert convert.spec(spec).grace_period == timedelta(0)


def test_words_of_a_newer_scheduler_are_unspecified_or_the_default() -> None:
    message = job_pb2.Job(state=UNKNOWN, reason=UNKNOWN)  # type: ignore[arg-type]
    message.spec.job_class = UNKNOWN  # type: ignore[assignment]
    job = convert.job(message)
    assert (job.state, job.reason) == (models.JobState.UNSPECIFIED, models.JobReason.UNSPECIFIED)
    assert job.spec.job_class == models.JobClass.BEST_EFFORT


def test_times_are_read_to_the_microsecond_in_utc() -> None:
    message = virtual_clusters_pb2.Pool()
    message.exchanged.add(exchange_id=3).end_time.FromNanoseconds(1_500_001_999)
    (exchanged,) = convert_virtual_clusters.pool(message).exchanged
    assert exchanged.end == datetime(1970, 1, 1, 0, 0, 1, 500001, tzinfo=UTC)
