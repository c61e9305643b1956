"""Nodes, between the API's messages and the SDK's values."""

from ebb.v1 import cluster_pb2

from client_sdk import models
from client_sdk._protobuf.convert import duration_message, enum, given, resources, time
from client_sdk._protobuf.convert_steps import run_steps, run_steps_message


def found(answer: cluster_pb2.GetNodeResponse) -> models.Node:
    return node(answer.node, observations(answer.observations) if answer.HasField("observations") else None)


def node(message: cluster_pb2.Node, seen: models.Observations | None = None) -> models.Node:
    holders = {group.device: tuple(group.job_ids) for group in message.share_groups}
    return models.Node(
        name=message.name,
        state=enum(models.NodeState, message.state),
        capacity=resources(message.capacity),
        free=resources(message.free),
        earmarked=resources(message.earmarked),
        levels=tuple(message.levels),
        devices=tuple(_device(device, holders.get(device.index, ())) for device in message.devices),
        address=message.address,
        agent_version=message.agent_version,
        state_time=time(message, "state_time"),
        drain=models.NodeDrain(reason=message.drain.reason, user=message.drain.user, time=time(message.drain, "time"))
        if message.HasField("drain")
        else None,
        strikes=message.strikes,
        observations=seen,
    )


def _device(message: cluster_pb2.Device, job_ids: tuple[int, ...]) -> models.Device:
    return models.Device(
        index=message.index,
        uuid=message.uuid,
        model=message.model,
        memory_mib=message.memory_mib,
        path=tuple(message.path),
        job_ids=job_ids,
        fault=message.fault,
        numa_node=message.numa_node if message.HasField("numa_node") else None,
        link_domain=message.link_domain if message.HasField("link_domain") else None,
    )


def observations(message: cluster_pb2.NodeObservations) -> models.Observations:
    return models.Observations(
        time=time(message, "time"),
        devices=tuple(map(_observation, message.devices)),
        cycles=tuple(map(_cycle, message.cycles)),
        steps=tuple(map(run_steps, message.steps)),
    )


def _observation(message: cluster_pb2.DeviceObservation) -> models.DeviceObservation:
    return models.DeviceObservation(
        index=message.index,
        memory_used_mib=message.memory_used_mib if message.HasField("memory_used_mib") else None,
        utilisation_percent=message.utilisation_percent if message.HasField("utilisation_percent") else None,
        fault=message.fault,
    )


def _cycle(message: cluster_pb2.MemoryCycle) -> models.MemoryCycle:
    return models.MemoryCycle(
        job_id=message.job_id,
        run=message.run,
        task=message.task,
        device=message.device,
        period=given(message, "period"),
        minimum_mib=message.minimum_mib,
        maximum_mib=message.maximum_mib,
        confidence=message.confidence,
        source=enum(models.MemorySource, message.source),
    )


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
