"""The nodes of the fake cluster: what fits where, who holds what, and which of them are drained."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from ebb.v1 import cluster_pb2, job_pb2

from client_sdk._protobuf import convert
from client_sdk._values.device_parts import WHOLE
from client_sdk.errors import FailedPrecondition, InvalidArgument, NotFound
from client_sdk.models import Resources
from client_sdk.testing import _runs
from client_sdk.testing._state import ACTIVE, State, set_now, state_of

T = TypeVar("T", job_pb2.RunSteps, job_pb2.MiniBatch)
Configured = job_pb2.JobSpec | job_pb2.Configuration
MODEL = "Fake"
"""The model of every device of a fake cluster."""


_LEAST = {"cpu_milli": 1000, "memory_mib": 1024}
"""The share of CPUs and memory of a device if there are no nodes."""


class Placed(NamedTuple):
    configuration: int
    tasks: list[job_pb2.Task]


def configurations(spec: job_pb2.JobSpec) -> list[Configured]:
    """Return the configurations in the order of their numbers."""
    return [spec, *spec.alternatives]


def demands(spec: Configured) -> list[Resources]:
    """Return the resources of each task."""
    groups = spec.task_groups or [job_pb2.TaskGroup(count=1, resources=spec.resources)]
    return [convert.resources(group.resources) for group in groups for _ in range(group.count)]


def name_resources(state: State, spec: Configured) -> None:
    """Set omitted CPUs and memory to the smallest share of a device among the suitable nodes."""
    for resources in [group.resources for group in spec.task_groups] or [spec.resources]:
        if not resources.devices or (resources.HasField("cpu_milli") and resources.HasField("memory_mib")):
            continue
        need = convert.resources(resources)
        whole = [
            convert.resources_message(state.nodes[name]) for name in suitable(state, spec) if fits(need, state.nodes[name])
        ]
        part = (isinstance(spec, job_pb2.JobSpec) and spec.gpu_fraction_ppm) or WHOLE
        for name in ("cpu_milli", "memory_mib"):
            if not resources.HasField(name):
                share = min((getattr(node, name) // node.devices for node in whole), default=_LEAST[name])
                setattr(resources, name, share * resources.devices * part // WHOLE)


def place(state: State, spec: job_pb2.JobSpec) -> Placed | None:
    """In the first configuration that fits, every task on the first node that has room for it; None: none fits now."""
    for number, one in enumerate(configurations(spec)):
        if (tasks := _place(state, one)) is not None:
            return Placed(number, tasks)
    return None


def suitable(state: State, spec: Configured) -> list[str]:
    """Return the nodes that meet its requirements other than resources. A fake node has no labels, its devices no memory."""
    asked, model = spec.nodes, spec.cells.model
    memory = spec.device_memory_mib or (isinstance(spec, job_pb2.JobSpec) and spec.gpu_memory_mib)
    if asked.labels or memory or model not in ("", MODEL):
        return []
    return [name for name in state.nodes if (not asked.names or name in asked.names) and name not in asked.excluded]


def _place(state: State, spec: Configured) -> list[job_pb2.Task] | None:
    if isinstance(spec, job_pb2.JobSpec) and spec.share and (task := _join(state, spec)) is not None:
        return [task]
    free = {name: free_on(state, name) for name in suitable(state, spec) if name not in state.drains}
    unused = {name: idle_devices(state, name) for name in free}
    tasks = []
    for rank, need in enumerate(demands(spec)):
        name = next((name for name, left in free.items() if fits(need, left)), None)
        if name is None:
            return None
        free[name] = minus(free[name], need)
        taken, unused[name] = unused[name][: need.devices], unused[name][need.devices :]
        tasks.append(job_pb2.Task(rank=rank, node=name, devices=taken, resources=convert.resources_message(need)))
    return tasks


def _join(state: State, spec: job_pb2.JobSpec) -> job_pb2.Task | None:
    """On the device that has least left for it, of those that jobs share in the same way. A fake device has no memory, so a job
    that names memory fits on none."""
    (need,) = demands(spec)
    found = []
    for name in suitable(state, spec):
        if name not in state.drains and fits(minus(need, Resources(devices=need.devices)), free_on(state, name)):
            left: dict[int, int] = {}
            for job_id, task in tasks_on(state, name):
                other = state.jobs[job_id].spec
                for index in task.devices if other.share == spec.share else ():
                    left[index] = left.get(index, WHOLE) - other.gpu_fraction_ppm
            found += [(part, name, index) for index, part in left.items() if part >= spec.gpu_fraction_ppm]
    if not found:
        return None
    _, name, index = min(found)
    return job_pb2.Task(node=name, devices=[index], resources=convert.resources_message(need))


def check_can_ever_run(state: State, spec: job_pb2.JobSpec) -> None:
    """Raises FailedPrecondition where the nodes, all of them empty, would not do for one of its configurations."""
    for number, one in enumerate(configurations(spec)) if state.nodes else ():
        where = f"configuration {number}: " if spec.alternatives else ""
        _check_configuration(state, one, where)


def _check_configuration(state: State, spec: Configured, where: str) -> None:
    names, model = suitable(state, spec), spec.cells.model
    if model not in ("", MODEL):
        said = f"{where}no node has devices of the model {model!r}; there are: {MODEL}"
        raise NotFound(said, reason="NO_SUCH_MODEL", metadata={"model": model})
    for name in (*spec.nodes.names, *spec.nodes.excluded):
        if name not in state.nodes:
            said = f"{where}there is no node {name!r}; see `ebb node list` for what there is"
            raise NotFound(said, reason="NO_SUCH_NODE", metadata={"node": name})
    if not names:
        said = f"{where}there is no node that has what the job asks for; see `ebb node list` for what there is"
        raise FailedPrecondition(said, reason="NO_SUITABLE_NODE")
    for need in demands(spec):
        if not any(fits(need, state.nodes[name]) for name in names):
            raise FailedPrecondition(
                f"{where}no node of this cluster has {need.devices} devices, {need.cpus:g} CPUs and {need.memory_mib} MiB, "
                "even when it is empty; ask for less, or see `ebb node list` for what there is",
                reason="NO_NODE_LARGE_ENOUGH",
            )


def tasks_on(state: State, name: str) -> list[tuple[int, job_pb2.Task]]:
    """Those that run there, and whose they are."""
    active = (job for job in state.jobs.values() if state_of(job) in ACTIVE)
    return [(job.id, task) for job in active for task in job.tasks if task.node == name]


def free_on(state: State, name: str) -> Resources:
    free, held = state.nodes[name], set[int]()
    for _, task in tasks_on(state, name):
        shared = sum(index in held for index in task.devices)
        held.update(task.devices)
        free = minus(free, replace(convert.resources(task.resources), devices=len(task.devices) - shared))
    for job in state.jobs.values():
        for task in job.tasks if job.parked else ():
            if task.node == name:  # it is in the memory of its node
                free = minus(free, replace(convert.resources(task.resources), devices=0))
    return free


def idle_devices(state: State, name: str) -> list[int]:
    taken = {index for _, task in tasks_on(state, name) for index in task.devices}
    return [index for index in range(state.nodes[name].devices) if index not in taken]


def fits(need: Resources, free: Resources) -> bool:
    return need.cpus <= free.cpus and need.memory_mib <= free.memory_mib and need.devices <= free.devices


def minus(a: Resources, b: Resources) -> Resources:
    cpus = round((a.cpus - b.cpus) * 1000) / 1000
    return Resources(cpus=cpus, memory_mib=a.memory_mib - b.memory_mib, devices=a.devices - b.devices)


# ---- what is asked -----------------------------------------------------------------------------------------------------


def nodes(state: State, request: cluster_pb2.ListNodesRequest) -> cluster_pb2.ListNodesResponse:
    """A page; the token is how many nodes are on the pages before."""
    names, first = list(state.nodes), int(request.page_token or 0)
    last = first + (request.page_size or 100)
    page = [node(state, name) for name in names[first:last]]
    return cluster_pb2.ListNodesResponse(nodes=page, next_page_token=str(last) if last < len(names) else "")


def found(state: State, name: str) -> cluster_pb2.GetNodeResponse:
    """Raises NotFound. As with the service, runs that are not there (any more) are left out."""
    answer = cluster_pb2.GetNodeResponse(node=node(state, name))
    if (seen := state.observations.get(name)) is not None:
        here = {(job_id, state.find(job_id).run, task.rank) for job_id, task in tasks_on(state, name)}
        answer.observations.CopyFrom(seen)
        del answer.observations.cycles[:]
        del answer.observations.steps[:]
        del answer.observations.mini_batches[:]
        answer.observations.cycles.extend(cycle for cycle in seen.cycles if (cycle.job_id, cycle.run, cycle.task) in here)
        answer.observations.steps.extend(each for each in seen.steps if (each.job_id, each.run, each.task) in here)
        timed = (each for each in seen.mini_batches if (each.job_id, each.run, each.task) in here)
        answer.observations.mini_batches.extend(timed)
    return answer


def steps_of(state: State, job: job_pb2.Job) -> list[job_pb2.RunSteps]:
    """The steps that were observed of a job's tasks, by rank."""
    return _of_tasks(state, job, lambda seen: seen.steps)


def mini_batches_of(state: State, job: job_pb2.Job) -> list[job_pb2.MiniBatch]:
    """The mini-batch times that were observed of a job's tasks, by rank."""
    return _of_tasks(state, job, lambda seen: seen.mini_batches)


def _of_tasks(state: State, job: job_pb2.Job, which: Callable[[cluster_pb2.NodeObservations], Iterable[T]]) -> list[T]:
    places = {(job.id, job.run, task.rank): task.node for task in job.tasks} if state_of(job) in ACTIVE else {}
    seen = [(node, each) for node, observed in state.observations.items() for each in which(observed)]
    return sorted(
        (each for node, each in seen if places.get((each.job_id, each.run, each.task)) == node), key=lambda each: each.task
    )


def observe(state: State, name: str, seen: cluster_pb2.NodeObservations | None) -> None:
    """Raises NotFound, and InvalidArgument for devices that the node has not."""
    devices = known(state, name).devices
    state.observations.pop(name, None)
    if seen is not None:
        if seen.devices and sorted(each.index for each in seen.devices) != list(range(devices)):
            raise InvalidArgument(f"node {name}: what is observed must be its {devices} devices", reason="DEVICES")
        state.observations[name] = seen


def node(state: State, name: str) -> cluster_pb2.Node:
    """Raises NotFound."""
    capacity = known(state, name)
    faults = {seen.index: seen.fault for seen in state.observations[name].devices} if name in state.observations else {}
    held: dict[int, list[int]] = {}
    for job_id, task in sorted(tasks_on(state, name), key=lambda one: one[0]):
        for index in task.devices:
            held.setdefault(index, []).append(job_id)
    return cluster_pb2.Node(
        name=name,
        state=cluster_pb2.NODE_STATE_UP,
        capacity=convert.resources_message(capacity),
        free=convert.resources_message(free_on(state, name)),
        earmarked=job_pb2.Resources(),
        devices=[
            cluster_pb2.Device(index=i, uuid=f"{name}-{i}", model=MODEL, fault=faults.get(i, ""))
            for i in range(capacity.devices)
        ],
        share_groups=[cluster_pb2.ShareGroup(device=index, job_ids=jobs) for index, jobs in sorted(held.items())],
        address="in-process",
        agent_version="fake",
        state_time=state.began,
        drain=state.drains.get(name),
    )


def drain(state: State, request: cluster_pb2.DrainRequest) -> list[int]:
    """Returns the jobs that are to leave."""
    known(state, request.node)
    drain = state.drains.setdefault(request.node, cluster_pb2.NodeDrain())
    if request.reason or not drain.HasField("time"):
        drain.reason, drain.user = request.reason, state.user
    if not drain.HasField("time"):
        set_now(drain.time)
    return sorted({job_id for job_id, _ in tasks_on(state, request.node)}) if request.evict else []


def at_risk(state: State, request: cluster_pb2.DrainRequest) -> list[job_pb2.JobAtRisk]:
    """The jobs that lose their work by a drain."""
    known(state, request.node)
    return _runs.of_unsaved(state, sorted({job_id for job_id, _ in tasks_on(state, request.node)})) if request.evict else []


def undrain(state: State, name: str) -> None:
    known(state, name)
    state.drains.pop(name, None)


def known(state: State, name: str) -> Resources:
    if name not in state.nodes:
        said = f"there is no node {name}; `ebb node list` shows those there are"
        raise NotFound(said, reason="NO_SUCH_NODE", metadata={"node": name})
    return state.nodes[name]
