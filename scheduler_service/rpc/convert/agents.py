"""Between the core and ebb.agent.v1.AgentLink: what agents say, and what they are told."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, assert_never

from ebb.agent.v1 import agent_link_pb2 as pb
from ebb.v1 import cluster_pb2, job_pb2
from google.protobuf.duration_pb2 import Duration

from scheduler_service.core.messages import (
    GangPlace,
    GraceWanted,
    KnownRun,
    Launch,
    MiniBatchMeasured,
    NodeSeen,
    Order,
    Parked,
    Prepared,
    Report,
    RunExited,
    RunMeasured,
    Running,
    RunParked,
    RunParkRefused,
    RunReady,
    RunResumed,
    RunStarted,
    SaveFailed,
    SharePlan,
    Stopped,
    SwitchingMeasured,
    Warming,
)
from scheduler_service.core.model import Job, JobSpec, NodeState, Run, RunKey, RunPhase
from scheduler_service.core.model.inventory import Device, Inventory
from scheduler_service.core.model.profiles import Switching
from scheduler_service.core.model.saves import SaveOutcome, SaveResult
from scheduler_service.rpc.chunking import chunks
from scheduler_service.rpc.convert.specs import spec_out
from scheduler_service.rpc.convert.values import Nodes, duration_in, duration_out, message_of, name_of, vector_in, vector_out
from scheduler_service.run.dispatch import LogRequest, NodeConfiguration

_MINUTE = 60_000_000
"""Microseconds."""
_PHASES: Mapping[int, RunPhase] = {
    pb.RUN_PHASE_STARTING: RunPhase.STARTING,
    pb.RUN_PHASE_PREPARING: RunPhase.STARTING,
    pb.RUN_PHASE_READY: RunPhase.READY,
    pb.RUN_PHASE_RUNNING: RunPhase.RUNNING,
    pb.RUN_PHASE_PARKING: RunPhase.PARKING,
    pb.RUN_PHASE_PARKED: RunPhase.PARKED,
    pb.RUN_PHASE_RESUMING: RunPhase.RESUMING,
    pb.RUN_PHASE_WARMING: RunPhase.WARMING,
    pb.RUN_PHASE_STOPPING: RunPhase.STOPPING,
    pb.RUN_PHASE_ENDED: RunPhase.ENDED,
}


def hello_in(hello: pb.Hello, address: str) -> NodeSeen:
    devices = tuple(map(_device_in, hello.devices))
    return NodeSeen(
        name=hello.node,
        boot_id=hello.boot_id,
        inventory=Inventory(vector_in(hello.capacity), tuple(hello.levels), devices),
        runs=tuple(KnownRun(RunKey(r.job_id, r.run, r.task), _PHASES[r.phase], r.generation) for r in hello.runs),
        address=address,
        agent_version=hello.agent_version,
        labels=tuple(sorted(hello.labels.items())),
        checkpoints_at=hello.checkpoints_at,
    )


def report_in(report: pb.Report, node: str, boot_id: str) -> Report:
    key = RunKey(report.job_id, report.run, report.task)
    of = node, boot_id, report.sequence, key
    match report.WhichOneof("event"):
        case "started":
            started = report.started
            return RunStarted(*of, _clean(started.log_path), _clean(started.program), _clean(started.restored))
        case "ready":
            return RunReady(node, boot_id, report.sequence, key, _clean(report.ready.address), report.ready.port)
        case "parked":
            p = report.parked
            return RunParked(*of, _clean(p.rung), p.bytes, p.residue_bytes, _phases_in(p.phases), p.saves)
        case "resumed":
            return RunResumed(*of, _clean(report.resumed.rung), _phases_in(report.resumed.phases))
        case "park_refused":
            return RunParkRefused(*of, _clean(report.park_refused.reason), report.park_refused.lost)
        case _:
            e = report.exited
            why = _clean(e.launch_error)[:4096]
            how = (e.exit_code, e.exit_signal, e.yielded, why, e.unknown, e.out_of_memory, e.node_stopped, e.told, e.done)
            texts = e.checkpoint, e.not_fetched, e.out_of_device_memory, e.began_from, e.saved
            said: tuple[Any, ...] = (*map(_clean, texts), save_in(e), e.job_fault)
            return RunExited(node, boot_id, report.sequence, key, *how, *said)


def save_in(exited: pb.RunExited) -> SaveResult | None:
    if not exited.HasField("save"):
        return None
    save = exited.save
    return SaveResult(SaveOutcome(save.outcome), save.step if save.HasField("step") else -1, _clean(save.detail))


def _phases_in(phases: Mapping[str, Duration]) -> tuple[tuple[str, int], ...]:
    return tuple((_clean(name), duration_in(took)) for name, took in sorted(phases.items()))


_AboutRun = (
    cluster_pb2.MemoryCycle
    | job_pb2.RunSteps
    | job_pb2.MiniBatch
    | pb.RunMeasurement
    | pb.RunCheckpoints
    | pb.RunGrace
    | pb.SliceObservation
)


def run_key_in(seen: _AboutRun) -> RunKey:
    return RunKey(seen.job_id, seen.run, seen.task)


def measured_in(seen: pb.RunMeasurement, node: str) -> RunMeasured:
    key = run_key_in(seen)
    times = duration_in(seen.first_step), duration_in(seen.last_step)
    return RunMeasured(node, key, seen.steps, *times, seen.total, round(seen.spread * 1_000_000), seen.memory_mib)


def checkpoints_in(seen: pb.RunCheckpoints) -> tuple[str, str]:
    """The one that the program loaded, and the last one that it saved; empty: none."""
    return _clean(seen.began_from), _clean(seen.saved)


def save_failed_in(seen: pb.RunCheckpoints, node: str) -> SaveFailed:
    step = seen.step if seen.HasField("step") else -1
    return SaveFailed(node, run_key_in(seen), _clean(seen.failed), step, seen.failures)


def grace_in(seen: pb.RunGrace, node: str) -> GraceWanted:
    return GraceWanted(node, run_key_in(seen), duration_in(seen.grace_period))


def switching_in(seen: pb.SliceObservation, node: str) -> SwitchingMeasured:
    takes = map(duration_in, (seen.wait, seen.park, seen.resume, seen.outlasted))
    return SwitchingMeasured(node, run_key_in(seen), Switching(*takes))


def known_steps(steps: job_pb2.RunSteps) -> job_pb2.RunSteps:
    """A state that only newer agents know is unspecified."""
    if steps.state in job_pb2.StepState.values():
        return steps
    known = job_pb2.RunSteps()
    known.CopyFrom(steps)
    known.state = job_pb2.STEP_STATE_UNSPECIFIED
    return known


def mini_batch_in(one: job_pb2.MiniBatch, seen: pb.Observations, run: Run, node: str) -> MiniBatchMeasured:
    """`seen`: all that was observed with it. What a device does counts for a run only if nobody else executes there."""
    time_us = duration_in(one.time)
    counted = (steps.measured for steps in seen.steps if (steps.job_id, steps.run, steps.task) == run.key)
    count = next(counted, 0) if one.source == job_pb2.MINI_BATCH_SOURCE_STEPS else _MINUTE // time_us
    executes = not run.group or any(part.executing for part in seen.slices if (part.job_id, part.run, part.task) == run.key)
    devices = [device for device in seen.devices if device.index in run.given] if executes else []
    waves = [cycle.maximum_mib for cycle in seen.cycles if (cycle.job_id, cycle.run, cycle.task) == run.key]
    used = waves or [device.memory_used_mib for device in devices if device.HasField("memory_used_mib")]
    busy = [device.utilisation_percent for device in devices if device.HasField("utilisation_percent")]
    utilisation = sum(busy) * 10_000 // len(busy) if busy else -1
    return MiniBatchMeasured(
        node, run.key, time_us, count, round(one.confidence * 1_000_000), max(used, default=0), utilisation
    )


def _device_in(d: cluster_pb2.Device) -> Device:
    numa = d.numa_node if d.HasField("numa_node") else None
    links = d.link_domain if d.HasField("link_domain") else None
    return Device(d.index, d.uuid, d.model, d.memory_mib, tuple(d.path), numa, links, d.fault)


def _clean(text: str) -> str:
    """Without NUL, which PostgreSQL cannot store."""
    return text.replace("\0", "")


def orders_out(orders: Iterable[Order], commit_no: int, nodes: Nodes) -> Iterator[pb.ConnectResponse]:
    """Each that starts a run has the whole spec of its job in it."""
    for piece in chunks(orders, lambda order: _desired_run(order, nodes)):
        yield pb.ConnectResponse(desired_runs=pb.DesiredRuns(commit_no=commit_no, runs=piece))


def _desired_run(order: Order, nodes: Nodes) -> pb.DesiredRun:
    job_id, run, task = order.key
    out = pb.DesiredRun(job_id=job_id, run=run, task=task, generation=order.generation)
    match order.desired:
        case Prepared() as launch:
            out.prepared.CopyFrom(_launch(launch, nodes))
        case Warming() as launch:
            out.warming.CopyFrom(_launch(launch, nodes))
        case Running() as launch:
            out.running.CopyFrom(_launch(launch, nodes))
        case Parked() as launch:
            limit = duration_out(launch.time_limit_us)
            out.parked.CopyFrom(pb.Park(launch=_launch(launch, nodes), time_limit=limit, number=launch.number))
        case Stopped(grace_us, reason, cause_job, resize_to):
            stop = pb.Stop(grace_period=duration_out(grace_us), cause_job_id=cause_job, resize_to=resize_to)
            stop.reason = int(reason)  # type: ignore[assignment]
            out.stopped.CopyFrom(stop)
        case _:
            assert_never(order.desired)
    return out


def _launch(launch: Launch, nodes: Nodes) -> pb.Launch:
    job, run, place = launch.job, launch.run, launch.gang
    out = pb.Launch(spec=_task_spec(job.launch_spec, run), user=job.user, devices=run.given, configuration=job.configuration)
    if place is not None:
        out.gang.CopyFrom(_gang(job, run, place, nodes))
    if job.array_job:
        out.array_index = job.array_index
    out.skip_steps = job.skip_steps
    source = nodes.get(job.saved_on)
    if source is not None and job.saved_on != run.node and source.state is NodeState.UP and source.checkpoints_at:
        out.checkpoint.CopyFrom(pb.CheckpointSource(node=source.name, address=source.checkpoints_at))
    if launch.share is not None:
        out.share.CopyFrom(_share_plan(launch.share))
    return out


def _share_plan(plan: SharePlan) -> pb.SharePlan:
    out = pb.SharePlan(
        group=plan.group,
        generation=plan.generation,
        period=duration_out(plan.period_us),
        active=plan.active,
        device_memory_mib=plan.device_memory_mib,
        parked_mib=plan.parked_mib,
        packed=plan.packed,
    )
    for row in plan.rows:
        out.rows.add(
            runs=[pb.ShareMember(job_id=key.job_id, run=key.run, task=key.task) for key in row.runs], weight=row.weight
        )
    return out


def _task_spec(spec: JobSpec, run: Run) -> job_pb2.JobSpec:
    """Return the spec that the agent is to run: for a gang, that of this task."""
    out = spec_out(spec)
    if spec.gang:
        out.resources.CopyFrom(vector_out(run.asked))
        left = run.task
        for group in spec.gang:
            if left < group.size:
                if group.command:
                    out.command[:] = group.command
                break
            left -= group.size
        del out.task_groups[:]
    return out


def _gang(job: Job, run: Run, place: GangPlace, nodes: Nodes) -> pb.Gang:
    address, _, port = job.rendezvous.rpartition(":")
    return message_of(
        pb.Gang,
        place,
        rank=run.task,
        nodes=[name_of(nodes, node) for node in place.nodes],
        master_address=address,
        master_port=int(port or 0),
    )


def log_request_out(asked: LogRequest) -> pb.LogRequest:
    return message_of(pb.LogRequest, asked)


def configuration_out(configuration: NodeConfiguration) -> pb.NodeConfiguration:
    interval, within = duration_out(configuration.heartbeat_us), duration_out(configuration.reconnect_within_us)
    return pb.NodeConfiguration(heartbeat_interval=interval, reconnect_within=within)
