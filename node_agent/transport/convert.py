"""Converts between the agent's types and ebb.agent.v1. Only the modules `convert*` know protobuf types."""

import logging
from collections.abc import Iterable

from ebb.agent.v1 import agent_link_pb2 as pb
from ebb.v1 import cluster_pb2, job_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from node_agent.devices.base import FAULT_LENGTH, Device
from node_agent.measuring.observations import Observations
from node_agent.run_state.events import Exited, Phases, Ready, Report, RunParked, RunParkRefused, RunResumed, Started
from node_agent.run_state.model import (
    CheckpointAt,
    Desired,
    Gang,
    LaunchSpec,
    Parked,
    Prepared,
    RunKey,
    Running,
    RunPhase,
    RunRecord,
    Stopped,
    StopReason,
    Warming,
)
from node_agent.run_state.save_values import SaveResult
from node_agent.run_state.share_plan import SharePlan, ShareRow
from node_agent.transport.convert_durations import duration_in, duration_out
from node_agent.transport.convert_observations import encode_observations
from node_agent.transport.messages import (
    Acknowledgement,
    DesiredRuns,
    Downward,
    Heartbeat,
    Hello,
    LogPiece,
    LogRequest,
    NodeConfiguration,
    Reports,
    Unknown,
    Upward,
    Welcome,
)

log = logging.getLogger(__name__)

_SHORTEST_PERIOD = 0.1
"""Seconds of a cycle of turns. With a shorter one, runs would only switch."""
METHOD = "/ebb.agent.v1.AgentLink/Connect"
SEND_LOG = "/ebb.agent.v1.AgentLink/SendLog"


def encode(message: Upward) -> bytes:
    match message:
        case Hello():
            request = pb.ConnectRequest(hello=_hello(message))
        case Reports(reports):
            request = pb.ConnectRequest(reports=pb.Reports(reports=map(_report, reports)))
        case Heartbeat():
            request = pb.ConnectRequest(heartbeat=pb.Heartbeat())
        case Observations():
            request = pb.ConnectRequest(observations=encode_observations(message))
    return request.SerializeToString()


def decode(data: bytes) -> Downward:
    response = pb.ConnectResponse.FromString(data)
    match response.WhichOneof("message"):
        case "welcome":
            said = response.welcome
            told = said.cluster_id, said.epoch, said.acknowledged, said.seal
            return Welcome(*told, _configuration(said.configuration), said.transfer_key)
        case "configuration":
            return _configuration(response.configuration)
        case "desired_runs":
            runs = map(_desired_state, response.desired_runs.runs)
            return DesiredRuns(response.desired_runs.commit_no, tuple(run for run in runs if run is not None))
        case "acknowledgement":
            return Acknowledgement(response.acknowledgement.sequence)
        case "log_request":
            asked = response.log_request
            return LogRequest(asked.id, RunKey(asked.job_id, asked.run, asked.task), asked.offset, asked.follow)
        case _:
            return Unknown()


def encode_log(piece: LogPiece) -> bytes:
    return pb.SendLogRequest(id=piece.id, data=piece.data, error=piece.error, end=piece.end).SerializeToString()


def decode_nothing(_: bytes) -> None:
    """Ignore the answer to a log, which only says that it was taken."""


def refusal(trailing: Iterable[tuple[str, str | bytes]] | None) -> tuple[str, str]:
    """Return the reason that the scheduler gave for ending the stream (google.rpc.ErrorInfo), and the leader's address if
    given; else empty."""
    info = error_details_pb2.ErrorInfo()
    for key, value in trailing or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            try:
                if any(detail.Unpack(info) for detail in status_pb2.Status.FromString(value).details):
                    return info.reason, info.metadata.get("leader", "")
            except (DecodeError, TypeError):
                continue
    return "", ""


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
        acknowledged=hello.acknowledged,
        seal=hello.seal,
        instance=hello.instance,
        labels=dict(hello.labels),
        checkpoints_at=hello.checkpoints_at,
    )


def _device(device: Device) -> cluster_pb2.Device:
    return cluster_pb2.Device(
        index=device.index,
        uuid=device.uuid,
        model=device.model,
        memory_mib=device.memory_mib,
        path=device.path,
        fault=device.fault[:FAULT_LENGTH],
        numa_node=device.numa_node,
        link_domain=device.link_domain,
    )


def _status(record: RunRecord) -> pb.RunStatus:
    job_id, run, task = record.key
    phase = pb.RunPhase.Name(int(record.phase))
    status = pb.RunStatus(job_id=job_id, run=run, task=task, phase=phase, generation=record.generation)
    if record.phase is not RunPhase.ENDED:  # ended ones are many, and their reports have said it
        status.pid = record.pid
        status.log_path = record.log_path
    return status


def _report(report: Report) -> pb.Report:
    job_id, run, task = report.key
    message = pb.Report(sequence=report.sequence, job_id=job_id, run=run, task=task)
    match report.event:
        case Ready(address, port):
            message.ready.CopyFrom(pb.RunReady(address=address, port=port))
        case Started(pid, log_path, program, restored):
            message.started.CopyFrom(pb.RunStarted(pid=pid, log_path=log_path, program=program, restored=restored))
        case RunParked(rung, size, residue, phases, saves):
            parked = pb.RunParked(rung=rung, bytes=size, residue_bytes=residue, phases=_phases(phases), saves=saves)
            message.parked.CopyFrom(parked)
        case RunResumed(rung, phases):
            message.resumed.CopyFrom(pb.RunResumed(rung=rung, phases=_phases(phases)))
        case RunParkRefused(reason, lost):
            message.park_refused.CopyFrom(pb.RunParkRefused(reason=reason, lost=lost))
        case Exited() as event:
            message.exited.CopyFrom(
                pb.RunExited(
                    exit_code=event.code,
                    exit_signal=event.signal,
                    yielded=event.yielded,
                    launch_error=event.launch_error,
                    unknown=event.unknown,
                    out_of_memory=event.out_of_memory,
                    node_stopped=event.node_stopped,
                    told=event.told,
                    done=event.done,
                    checkpoint=event.checkpoint,
                    not_fetched=event.not_fetched,
                    out_of_device_memory=event.out_of_device_memory,
                    began_from=event.began_from,
                    saved=event.saved,
                    save=save_out(event.save),
                    job_fault=event.job_fault,
                )
            )
    return message


def _phases(phases: Phases) -> dict[str, Duration]:
    return {name: duration_out(seconds) for name, seconds in phases}


def _configuration(said: pb.NodeConfiguration) -> NodeConfiguration:
    return NodeConfiguration(duration_in(said.heartbeat_interval), duration_in(said.reconnect_within))


def _desired_state(said: pb.DesiredRun) -> Desired | None:
    key, generation = RunKey(said.job_id, said.run, said.task), said.generation
    match said.WhichOneof("state"):
        case "prepared":
            return Prepared(_launch(key, said.prepared), generation)
        case "running":
            return Running(_launch(key, said.running), generation)
        case "warming":
            return Warming(_launch(key, said.warming), generation)
        case "stopped":
            stop = said.stopped
            try:
                reason = StopReason(stop.reason)
            except ValueError:
                reason = StopReason.UNSPECIFIED
            return Stopped(key, generation, max(0.0, duration_in(stop.grace_period)), reason, stop.cause_job_id, stop.resize_to)
        case "parked":
            park = said.parked
            return Parked(_launch(key, park.launch), generation, max(0.0, duration_in(park.time_limit)), park.number)
        case _:
            log.warning("run %s: it is to be in a state that this agent does not know; ignored", key)
            return None


def _launch(key: RunKey, launch: pb.Launch) -> LaunchSpec:
    spec = launch.spec
    return LaunchSpec(
        key,
        command=tuple(spec.command),
        environment=tuple(spec.environment.items()) if spec.environment else (),
        inherited=tuple(spec.inherited_environment.items()) if spec.inherited_environment else (),
        working_directory=spec.working_directory,
        name=spec.name,
        user=launch.user,
        devices=tuple(launch.devices),
        memory_mib=spec.resources.memory_mib,
        array_index=launch.array_index if launch.HasField("array_index") else None,
        gang=_gang(launch.gang) if launch.HasField("gang") else None,
        configuration=launch.configuration,
        min_tasks=spec.min_tasks,
        max_tasks=spec.max_tasks,
        checkpoint_signal=spec.checkpoint_signal,
        checkpoint_command=spec.checkpoint_command,
        snapshots=tuple(spec.snapshots),
        grace=duration_in(spec.grace_period) if spec.HasField("grace_period") else None,
        source=CheckpointAt(launch.checkpoint.node, launch.checkpoint.address) if launch.HasField("checkpoint") else None,
        share=_share(launch) if launch.HasField("share") else None,
        skip_steps=launch.skip_steps,
    )


def _share(launch: pb.Launch) -> SharePlan:
    plan = launch.share
    rows = (ShareRow(tuple(RunKey(run.job_id, run.run, run.task) for run in row.runs), max(0, row.weight)) for row in plan.rows)
    return SharePlan(
        plan.group,
        plan.generation,
        tuple(rows),
        max(_SHORTEST_PERIOD, duration_in(plan.period)),
        tuple(launch.devices),
        plan.device_memory_mib,
        plan.parked_mib,
        plan.packed,
    )


def _gang(gang: pb.Gang) -> Gang:
    return Gang(
        gang.rank,
        gang.world_size,
        gang.local_rank,
        gang.local_world_size,
        gang.node_rank,
        tuple(gang.nodes),
        gang.master_address,
        gang.master_port,
    )


def save_out(save: SaveResult | None) -> job_pb2.SaveResult | None:
    if save is None:
        return None
    step = save.step if save.step >= 0 else None
    return job_pb2.SaveResult(outcome=job_pb2.SaveOutcome.Name(int(save.outcome)), step=step, detail=save.detail)
