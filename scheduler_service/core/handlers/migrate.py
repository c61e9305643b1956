"""Moves a running or parked job to another node, for its user."""

from collections import Counter

from scheduler_service.core.allocation.bindings import is_entitled
from scheduler_service.core.allocation.operations import targets as targets_of
from scheduler_service.core.cells.closeness import closest_devices
from scheduler_service.core.errors import FailedPrecondition, PlanRefused
from scheduler_service.core.handlers.jobs import leaves, live, refusal
from scheduler_service.core.lifecycle.node_health import find_node
from scheduler_service.core.messages import Accepted, MigrateRequested, Spot
from scheduler_service.core.model import Job, Node
from scheduler_service.core.model.values import Micros, Vector, mask_of
from scheduler_service.core.operations.migrating import migrate, migration_of
from scheduler_service.core.operations.moving_parked import park_of
from scheduler_service.core.operations.resuming import unpark, what_holds_up
from scheduler_service.core.state.queue_keys import ACTIVE
from scheduler_service.core.state.state import State


def migrate_requested(state: State, event: MigrateRequested, now: Micros) -> Accepted:
    """Nothing changes if the job is on its way there, or is there already. Raises NotFound and FailedPrecondition."""
    job = live(state, event.job_id)
    nodes = [find_node(state, name) for name in event.nodes]
    tasks = job.launch_spec.tasks()
    if job.elements is not None:
        raise refusal(job, "migrated", "it is an array, whose elements are jobs: migrate those")
    if len(nodes) == 1:
        nodes *= len(tasks)
    if len(nodes) != len(tasks) or len(event.devices) not in (0, len(tasks)):
        raise FailedPrecondition(
            "WRONG_NUMBER_OF_PLACES",
            f"job {job.id} has {len(tasks)} tasks; name one node for all, or one for each, with devices for all or none",
            job_id=str(job.id),
        )
    wanted = [(node.id, devices) for node, devices in zip(nodes, event.devices or [()] * len(tasks), strict=True)]
    if _is_there(state, job, wanted):
        return Accepted(job.id)
    park = park_of(state, job.id)
    if (park is None and job.state not in ACTIVE) or job.cancel_requested or leaves(state, job):
        raise refusal(job, "migrated", "only a running or a parked job can")
    runs, held_up = state.runs_of(job.id), ""
    if park is not None and not event.devices and [node.id for node in nodes] == [run.node for run in runs]:
        first = next(what_holds_up(state, runs), None)
        if first is None:
            unpark(state, now, park)  # it resumes in place
            return Accepted(job.id)
        held_up = f" ({first.why}); resume the job to have it wait for its own devices, or go on where there is room"
    guaranteed = any(run.guaranteed for run in runs)
    taken: Counter[int] = Counter()
    spots = []
    for rank, (node, demand) in enumerate(zip(nodes, tasks, strict=True)):
        devices = event.devices[rank] if event.devices else _pick_idle(state, job, node, demand, guaranteed, taken, held_up)
        spots.append(Spot(node.id, devices))
    try:
        migrate(state, now, job, tuple(spots), guaranteed, "")
    except PlanRefused as refused:
        raise FailedPrecondition(
            "CANNOT_MIGRATE", f"job {job.id} cannot be migrated: {refused}", job_id=str(job.id)
        ) from refused
    return Accepted(job.id)


def _is_there(state: State, job: Job, wanted: list[tuple[int, tuple[int, ...]]]) -> bool:
    """Whether the job is on its way there, or runs there: the call may be the repetition of one that did it."""
    operation = migration_of(state, job.id)
    if operation is None and park_of(state, job.id) is not None:
        return False
    runs = targets_of(state, operation) if operation is not None else state.runs_of(job.id)
    if len(runs) != len(wanted):
        return False
    return all(run.node == node and devices in ((), run.devices) for run, (node, devices) in zip(runs, wanted, strict=True))


def _pick_idle(
    state: State, job: Job, node: Node, demand: Vector, guaranteed: bool, taken: Counter[int], held_up: str
) -> tuple[int, ...]:
    """The closest idle devices of the node for a task. Raises FailedPrecondition if there are too few, or if the job asks for
    devices that belong together, which its user has to name. `held_up`: why a parked job does not have those that it had
    there."""
    if not demand.devices:
        if state.pools is not None and state.cpus_of(node.id):
            raise FailedPrecondition(
                "CANNOT_MIGRATE", f"job {job.id} runs on CPUs of a virtual cluster, and cannot be migrated", job_id=str(job.id)
            )
        return ()
    cells = job.launch_spec.cells
    if cells.levels or cells.within:
        raise FailedPrecondition(
            "DEVICES_NEEDED",
            f"job {job.id} asks for devices of one cell; name those that it is to have on node {node.name} with --devices",
            job_id=str(job.id),
        )
    usable, least = 0, job.launch_spec.device_memory_mib
    idle = state.idle_devices.get(node.id, 0) & ~state.kept_devices.get(node.id, 0) & ~taken[node.id]
    for index in range(idle.bit_length()):
        # The node may have CPUs in the place of devices.
        device = state.devices.rows.get((node.id, index)) if idle >> index & 1 else None
        large = device is not None and device.memory_mib >= least
        if large and (not guaranteed or is_entitled(state, job, node.id, 1 << index)):
            usable |= 1 << index
    found = closest_devices(state.device_tree(node.id), usable, demand.devices)
    taken[node.id] |= mask_of(found)
    if len(found) < demand.devices:
        idle_ones = _devices(len(found), "idle ")
        kind = "in cells that are bound to its virtual cluster (`ebb cells`)" if guaranteed else "that it can use"
        raise FailedPrecondition(
            "NO_ROOM_THERE",
            f"job {job.id} needs {_devices(demand.devices)}, and node {node.name} has {idle_ones} {kind}{held_up}",
            job_id=str(job.id),
            node=node.name,
        )
    return found


def _devices(count: int, which: str = "") -> str:
    """
    >>> _devices(1), _devices(2, "idle ")
    ('1 device', '2 idle devices')
    """
    return f"{count} {which}device{'' if count == 1 else 's'}"
