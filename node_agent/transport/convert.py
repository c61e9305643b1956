"""Between the agent's words and ebb.v1. The only module that knows protobuf types."""

import logging
from collections.abc import Iterable

from ebb.v1 import agent_link_pb2 as pb
from ebb.v1 import cluster_pb2, job_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from node_agent.devices.base import Device
from node_agent.jobs.model import (
    Exited,
    Order,
    Report,
    RunKey,
    RunPhase,
    RunRecord,
    Started,
    StartOrder,
    StopOrder,
    StopReason,
)
from node_agent.transport.messages import (
    Acknowledgement,
    Downward,
    Heartbeat,
    Hello,
    Orders,
    Reports,
    Unknown,
    Upward,
    Welcome,
)

log = logging.getLogger(__name__)

METHOD = "/ebb.v1.AgentLink/Connect"


def encode(message: Upward) -> bytes:
    match message:
        case Hello():
            request = pb.ConnectRequest(hello=_hello(message))
        case Reports(reports):
            request = pb.ConnectRequest(reports=pb.Reports(reports=map(_report, reports)))
        case Heartbeat():
            request = pb.ConnectRequest(heartbeat=pb.Heartbeat())
    return request.SerializeToString()


def decode(data: bytes) -> Downward:
    response = pb.ConnectResponse.FromString(data)
    match response.WhichOneof("message"):
        case "welcome":
            welcome = response.welcome
            return Welcome(welcome.cluster_id, welcome.epoch, _seconds(welcome.heartbeat_interval), welcome.acknowledged)
        case "orders":
            orders = (_order(order) for order in response.orders.orders)
            return Orders(response.orders.commit_no, tuple(order for order in orders if order is not None))
        case "acknowledgement":
            return Acknowledgement(response.acknowledgement.sequence)
        case _:
            return Unknown()


def refusal(trailing: Iterable[tuple[str, str | bytes]] | None) -> str:
    """The reason that the scheduler gave for ending the stream (google.rpc.ErrorInfo); empty where it gave none."""
    info = error_details_pb2.ErrorInfo()
    for key, value in trailing or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            try:
                if any(detail.Unpack(info) for detail in status_pb2.Status.FromString(value).details):
                    return str(info.reason)
            except (DecodeError, TypeError):
                continue
    return ""


def _hello(hello: Hello) -> pb.Hello:
    inventory = hello.inventory
    return pb.Hello(
        node=hello.node,
        boot_id=hello.boot_id,
        cluster_id=hello.cluster_id,
        epoch=hello.epoch,
        capacity=job_pb2.Resources(
            cpu_milli=inventory.cpu_milli, memory_mib=inventory.memory_mib, devices=len(inventory.devices)
        ),
        levels=inventory.levels,
        devices=[_device(device) for device in inventory.devices],
        runs=[_status(record) for record in hello.runs],
        agent_version=hello.agent_version,
    )


def _device(device: Device) -> cluster_pb2.Device:
    return cluster_pb2.Device(
        index=device.index, uuid=device.uuid, model=device.model, memory_mib=device.memory_mib, path=device.path
    )


def _status(record: RunRecord) -> pb.RunStatus:
    status = pb.RunStatus(job_id=record.key.job_id, run=record.key.run, phase=pb.RunPhase.Name(int(record.phase)))
    if record.phase is not RunPhase.ENDED:  # ended ones are many, and their reports have said it
        status.pid = record.pid
        status.log_path = record.log_path
    return status


def _report(report: Report) -> pb.Report:
    message = pb.Report(sequence=report.sequence, job_id=report.key.job_id, run=report.key.run)
    match report.event:
        case Started(pid, log_path):
            message.started.CopyFrom(pb.RunStarted(pid=pid, log_path=log_path))
        case Exited(code, signum, yielded, launch_error, unknown):
            message.exited.CopyFrom(
                pb.RunExited(exit_code=code, exit_signal=signum, yielded=yielded, launch_error=launch_error, unknown=unknown)
            )
    return message


def _order(order: pb.RunOrder) -> Order | None:
    key = RunKey(order.job_id, order.run)
    match order.WhichOneof("order"):
        case "start":
            spec = order.start.spec
            return StartOrder(
                key,
                command=tuple(spec.command),
                environment=tuple(spec.environment.items()),
                working_directory=spec.working_directory,
                name=spec.name,
                user=order.start.user,
                devices=tuple(order.start.devices),
            )
        case "stop":
            try:
                reason = StopReason(order.stop.reason)
            except ValueError:
                reason = StopReason.UNSPECIFIED
            return StopOrder(key, max(0.0, _seconds(order.stop.grace_period)), reason, order.stop.cause_job_id)
        case _:
            log.warning("run %s: an order of a kind that this agent does not know; ignored", key)
            return None


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
