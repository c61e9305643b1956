"""Between the core and ebb.agent.v1.AgentLink: what agents say, and what they are told."""

from collections.abc import Iterable, Iterator
from typing import assert_never

from ebb.agent.v1 import agent_link_pb2
from ebb.v1 import cluster_pb2, job_pb2

from scheduler_service.core.messages import (
    GangPlace,
    KnownRun,
    Launch,
    NodeSeen,
    Order,
    Report,
    RunExited,
    Running,
    RunReady,
    RunStarted,
    Stopped,
)
from scheduler_service.core.model import Job, JobSpec, Run, RunKey, RunPhase
from scheduler_service.core.model.inventory import Device, Inventory
from scheduler_service.rpc.chunking import chunks
from scheduler_service.rpc.convert.jobs import Nodes, duration_out, name_of, spec_out, vector_in, vector_out
from scheduler_service.run.dispatch import LogRequest


def hello_in(hello: agent_link_pb2.Hello, address: str) -> NodeSeen:
    devices = tuple(map(_device_in, hello.devices))
    return NodeSeen(
        name=hello.node,
        boot_id=hello.boot_id,
        inventory=Inventory(vector_in(hello.capacity), tuple(hello.levels), devices),
        runs=tuple(KnownRun(RunKey(r.job_id, r.run, r.task), RunPhase(r.phase)) for r in hello.runs),
        address=address,
        agent_version=hello.agent_version,
    )


def report_in(report: agent_link_pb2.Report, node: str, boot_id: str) -> Report:
    key = RunKey(report.job_id, report.run, report.task)
    match report.WhichOneof("event"):
        case "started":
            started = report.started
            return RunStarted(node, boot_id, report.sequence, key, _clean(started.log_path), _clean(started.program))
        case "ready":
            return RunReady(node, boot_id, report.sequence, key, _clean(report.ready.address), report.ready.port)
        case _:
            e = report.exited
            why = _clean(e.launch_error)[:4096]
            how = (e.exit_code, e.exit_signal, e.yielded, why, e.unknown, e.out_of_memory, e.node_stopped, e.told, e.done)
            return RunExited(node, boot_id, report.sequence, key, *how)


def _device_in(d: cluster_pb2.Device) -> Device:
    numa = d.numa_node if d.HasField("numa_node") else None
    links = d.link_domain if d.HasField("link_domain") else None
    return Device(d.index, d.uuid, d.model, d.memory_mib, tuple(d.path), numa, links, d.fault)


def _clean(text: str) -> str:
    """Without NUL, which PostgreSQL cannot store."""
    return text.replace("\0", "")


def orders_out(orders: Iterable[Order], commit_no: int, nodes: Nodes) -> Iterator[agent_link_pb2.ConnectResponse]:
    """Each start has the whole spec of its job in it."""
    for piece in chunks(orders, lambda order: _order_out(order, nodes)):
        yield agent_link_pb2.ConnectResponse(orders=agent_link_pb2.Orders(commit_no=commit_no, orders=piece))


def _order_out(order: Order, nodes: Nodes) -> agent_link_pb2.RunOrder:
    key = order.key
    out = agent_link_pb2.RunOrder(job_id=key.job_id, run=key.run, task=key.task)
    match order.desired:
        case Launch(job, run, gang):
            start = agent_link_pb2.StartRun(spec=_task_spec(job.spec, run), user=job.user, devices=run.given)
            if gang is not None:
                start.gang.CopyFrom(_gang_out(job, run, gang, nodes, go=isinstance(order.desired, Running)))
            if job.array_job:
                start.array_index = job.array_index
            out.start.CopyFrom(start)
        case Stopped(grace_us, reason, cause_job):
            grace = duration_out(grace_us)
            stop = agent_link_pb2.StopRun(grace_period=grace, reason=int(reason), cause_job_id=cause_job)  # type: ignore[arg-type]
            out.stop.CopyFrom(stop)
        case _:
            assert_never(order.desired)
    return out


def _task_spec(spec: JobSpec, run: Run) -> job_pb2.JobSpec:
    """What the agent is told to run: of a gang, what this task is."""
    out = spec_out(spec)
    if spec.gang:
        out.resources.CopyFrom(vector_out(run.demand))
        left = run.task
        for group in spec.gang:
            if left < group.size:
                if group.command:
                    out.command[:] = group.command
                break
            left -= group.size
        del out.task_groups[:]
    return out


def _gang_out(job: Job, run: Run, place: GangPlace, nodes: Nodes, go: bool) -> agent_link_pb2.Gang:
    address, _, port = job.rendezvous.rpartition(":")
    return agent_link_pb2.Gang(
        rank=run.task,
        world_size=place.world_size,
        local_rank=place.local_rank,
        local_world_size=place.local_world_size,
        node_rank=place.node_rank,
        nodes=[name_of(nodes, node) for node in place.nodes],
        go=go,
        master_address=address,
        master_port=int(port or 0),
    )


def log_request_out(asked: LogRequest) -> agent_link_pb2.LogRequest:
    return agent_link_pb2.LogRequest(
        id=asked.id, job_id=asked.job_id, run=asked.run, task=asked.task, offset=asked.offset, follow=asked.follow
    )
