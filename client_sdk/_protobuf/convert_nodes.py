"""Nodes and what is observed there, between the API's messages and the SDK's values."""

from ebb.v1 import cluster_pb2, job_pb2

from client_sdk import models
from client_sdk._protobuf.convert import duration_message
from client_sdk._protobuf.reading import read


def node_with_observations(answer: cluster_pb2.GetNodeResponse) -> models.Node:
    return node(answer.node, observations(answer.observations) if answer.HasField("observations") else None)


def node(message: cluster_pb2.Node, seen: models.Observations | None = None) -> models.Node:
    holders = {group.device: tuple(group.job_ids) for group in message.share_groups}
    devices = (read(models.Device, device, job_ids=holders.get(device.index, ())) for device in message.devices)
    return read(models.Node, message, devices=tuple(devices), observations=seen)


def observations(message: cluster_pb2.NodeObservations) -> models.Observations:
    return read(models.Observations, message)


def observations_message(value: models.Observations) -> cluster_pb2.NodeObservations:
    """As `testing` answers it."""
    message = cluster_pb2.NodeObservations(
        devices=[
            cluster_pb2.DeviceObservation(
                index=each.index,
                memory_used_mib=each.memory_used_mib,
                utilisation_percent=each.utilisation_percent,
                fault=each.fault,
            )
            for each in value.devices
        ],
        cycles=map(_cycle_message, value.cycles),
        steps=map(run_steps_message, value.steps),
        mini_batches=map(mini_batch_message, value.mini_batches),
    )
    if value.time is not None:
        message.time.FromDatetime(value.time)
    return message


def _cycle_message(value: models.MemoryCycle) -> cluster_pb2.MemoryCycle:
    return cluster_pb2.MemoryCycle(
        job_id=value.job_id,
        run=value.run,
        task=value.task,
        device=value.device,
        period=duration_message(value.period),
        minimum_mib=value.minimum_mib,
        maximum_mib=value.maximum_mib,
        confidence=value.confidence,
        source=cluster_pb2.MemorySource.Name(value.source),
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
