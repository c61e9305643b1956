"""Nodes that join, come back, fall silent, or are deleted."""

from scheduler_service.core.allocation.operations import target_nodes
from scheduler_service.core.allocation.overdue_stops import node_returned
from scheduler_service.core.allocation.transitions import end_run, show
from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.lifecycle.desired import desired_order, generation_of, order_for_unclaimed
from scheduler_service.core.lifecycle.device_faults import take_faults
from scheduler_service.core.lifecycle.ending import task_over
from scheduler_service.core.lifecycle.node_health import drop_earmarks_on, find_node
from scheduler_service.core.messages import (
    FenceRequested,
    Joined,
    KnownRun,
    NodeChanged,
    NodeDeleteRequested,
    NodeSeen,
    NodeSilent,
    Order,
)
from scheduler_service.core.model import (
    EventKind,
    Job,
    Node,
    NodeDevice,
    NodeState,
    Reason,
    Run,
    RunKey,
    RunPhase,
)
from scheduler_service.core.model.inventory import Device
from scheduler_service.core.model.parking import Parking
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros
from scheduler_service.core.operations import migrating
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event


def node_seen(state: State, event: NodeSeen, now: Micros) -> Joined:
    """A node joins, or comes back. It is told what is desired of every run that is on it.

    Runs of an older boot are lost and go back to their queues. Of the runs of this boot that the agent does not know, one that
    was never reported ready or started is ordered again; any other is lost.
    """
    check_inventory(event)
    node_id = state.node_ids.get(event.name, state.deleted_ids.get(event.name))
    if node_id is None:
        node_id = state.cluster.next_node
        state.put(state.cluster_table, 0, with_changes(state.cluster, next_node=node_id + 1))
        node = Node(node_id, event.name, event.boot_id, NodeState.UP, event.inventory.capacity, event.inventory.levels, now)
    else:
        node = state.nodes.rows[node_id]
    rebooted = node.boot_id != event.boot_id
    known = {run.key: run for run in event.runs}
    for key in sorted(state.runs_on.get(node_id, ())):
        run = state.runs.rows.get(key)
        if run is None:
            continue  # it went with a migration that was given up
        if rebooted or (key not in known and (run.started_us is not None or run.ready_at)):
            _lose_run(state, run, now, "its node came back without it")
    rooms, traits = state.free_resources.capacity_of(node_id), state.suitable_nodes.traits.get(node_id)
    _take_inventory(state, node_id, event, now)
    node = state.nodes.rows.get(node_id, node)  # it may have been drained for what was lost
    returned = node.state is NodeState.SILENT
    before, node = (
        node,
        with_changes(
            node,
            boot_id=event.boot_id,
            state=NodeState.UP,
            capacity=event.inventory.capacity,
            levels=event.inventory.levels,
            since_us=node.since_us if node.state is NodeState.UP and not rebooted else now,
            sequence=0 if rebooted else node.sequence,
            address=event.address,
            agent_version=event.agent_version,
            labels=event.labels,
            checkpoints_at=event.checkpoints_at,
        ),
    )
    if node != before or node_id not in state.nodes.rows:  # that its agent connected again changes nothing
        state.put(state.nodes, node_id, node)
    if rooms != state.free_resources.capacity_of(node_id) or traits != state.suitable_nodes.traits.get(node_id):
        _ask_again(state)
    take_faults(state, now, node, {d.index: d.fault for d in event.inventory.devices if d.fault})
    if returned:
        node_returned(state, now, node_id)
        _show_runs(state, node, EventKind.NODE_RETURNED, now)
    return Joined(node_id, node.sequence, _standing_orders(state, node_id, known))


def check_inventory(event: NodeSeen) -> None:
    """Devices are numbered 0, 1, ..., and are as many as the capacity says: what is free counts on both."""
    if [d.index for d in event.inventory.devices] != list(range(event.inventory.capacity.devices)):
        raise FailedPrecondition(
            "INVENTORY_INVALID",
            f"node {event.name} reports {event.inventory.capacity.devices} devices, but lists those with the indices "
            f"{[d.index for d in event.inventory.devices]}; they must be 0, 1, ... in order",
        )


def node_silent(state: State, event: NodeSilent, now: Micros) -> None:
    """Runs of a silent node keep what they hold: they may well be running. Those that its agent was not told about begin
    elsewhere. Trials do not wait for the node: it is not known when its victims will have stopped."""
    node_id = state.node_ids.get(event.name)
    if node_id is None:
        return
    node = state.nodes.rows[node_id]
    fell = node.state is not NodeState.SILENT
    if fell:
        node = with_changes(node, state=NodeState.SILENT, since_us=now)
        state.put(state.nodes, node_id, node)
        drop_earmarks_on(state, node_id, now, "its node fell silent")
        migrating.node_lost(state, now, node_id, f"node {node.name} fell silent")
    for key in event.untold:
        run = state.runs.rows.get(key)
        # A ready task of a gang was told once; it lacks only the second message, that all are ready.
        if run is not None and run.node == node_id and run.started_us is None and not run.ready_at:
            _lose_run(state, run, now, f"node {node.name} fell silent before it was told of the run")
    if fell:
        _show_runs(state, state.nodes.rows[node_id], EventKind.NODE_SILENT, now)


def fence_requested(state: State, event: FenceRequested, now: Micros) -> NodeChanged:
    """Takes an operator's word that nothing runs on a silent node any more. If it comes back with runs all the same, they are
    killed as unclaimed."""
    node = find_node(state, event.node)
    if node.state is NodeState.UP:
        raise FailedPrecondition(
            "NODE_UP", f"node {node.name} is up: only a silent node can be declared dead; drain it instead", node=node.name
        )
    for key in sorted(state.runs_on.get(node.id, ())):
        if (run := state.runs.rows.get(key)) is not None:
            _lose_run(state, run, now, f"its node was declared dead by {event.user}")
    return NodeChanged(node.id)


def node_delete_requested(state: State, event: NodeDeleteRequested, now: Micros) -> NodeChanged:
    """Removes a node that will not come back from the cluster, with its devices, its strikes and why it was drained. Its row
    stays, as runs refer to it: if it comes back after all, it joins under the same number, and open."""
    if (deleted := state.deleted_ids.get(event.node)) is not None:
        return NodeChanged(deleted)  # a repeated request
    node = find_node(state, event.node)
    if node.state is NodeState.UP:
        raise FailedPrecondition(
            "NODE_UP", f"node {node.name} is up: stop its agent first, and wait until it is silent", node=node.name
        )
    if jobs := sorted({key.job_id for key in state.runs_on.get(node.id, ())}):
        raise FailedPrecondition(
            "NODE_IN_USE",
            f"node {node.name} is silent, and what it ran may run still (job {jobs[0]}, of {len(jobs)} in all); if it is "
            f"certain that nothing does, declare it dead first: `ebb node fence {node.name}`",
            node=node.name,
        )
    _drop_devices(state, node.id, 0)
    row = with_changes(
        node,
        state=NodeState.DELETED,
        since_us=now,
        drained_us=None,
        drain_reason="",
        drain_user="",
        strikes=0,
        strike_causes=(),
    )
    state.put(state.nodes, node.id, row)
    return NodeChanged(node.id)


def _ask_again(state: State) -> None:
    """Queues jobs again that no node could take (TOO_LARGE), if one can take them now."""
    for job_id in sorted(state.beside[Reason.TOO_LARGE]):
        job = state.jobs.rows[job_id]
        if state.could_ever_take(job):
            state.put(state.jobs, job_id, with_changes(job, reason=Reason.NONE, detail="", cause_job=0))


def _show_runs(state: State, node: Node, kind: EventKind, now: Micros) -> None:
    """Gives the jobs of a node's runs the state that goes with the node's."""
    for job_id in sorted({key.job_id for key in state.runs_on.get(node.id, ())}):
        job = show(state, state.jobs.rows[job_id])
        log_event(state, now, job.id, kind, run=job.run, node=node.id)


def _lose_run(state: State, run: Run, now: Micros, why: str) -> None:
    if run.phase.awaits_source:
        migrating.target_over(state, now, run, why)
        return
    task_over(state, now, end_run(state, now, run, lost=True), Reason.NODE_LOST, why)


def _take_inventory(state: State, node_id: int, event: NodeSeen, now: Micros) -> None:
    """Brings the node's devices (indices 0, 1, ...) up to date. They may change only while nothing runs on the node."""
    if not _has_changed(state, node_id, event):
        return
    if state.runs_on.get(node_id):
        raise FailedPrecondition(
            "INVENTORY_CHANGED",
            f"node {event.name} reports other devices or capacity than before while runs hold them; "
            "start its agent as it was, or stop those runs first",
        )
    drop_earmarks_on(state, node_id, now, "its node came back with another inventory")
    devices = event.inventory.devices
    _drop_devices(state, node_id, len(devices))
    for d in devices:
        facts = d.index, d.uuid, d.model, d.memory_mib, d.path, d.numa_node, d.link_domain
        state.put(state.devices, (node_id, d.index), NodeDevice(node_id, *facts))


def _drop_devices(state: State, node_id: int, index: int) -> None:
    """Removes the devices from this index on."""
    while (node_id, index) in state.devices.rows:
        state.put(state.devices, (node_id, index), None)
        index += 1


def _has_changed(state: State, node_id: int, event: NodeSeen) -> bool:
    """Whether the inventory differs from the one in the state."""
    node = state.nodes.rows.get(node_id)
    inventory = event.inventory
    if node is None or node.capacity != inventory.capacity or node.levels != inventory.levels:
        return True
    for d in inventory.devices:
        row = state.devices.rows.get((node_id, d.index))
        if row is None or _facts(row) != _facts(d):
            return True
    return (node_id, len(inventory.devices)) in state.devices.rows


def _facts(device: NodeDevice | Device) -> tuple[object, ...]:
    """Facts of a device that only a new inventory changes."""
    return (device.uuid, device.model, device.memory_mib, device.path, device.numa_node, device.link_domain)


def _standing_orders(state: State, node_id: int, known: dict[RunKey, KnownRun]) -> tuple[Order, ...]:
    """Orders for everything that is to hold on the node, safe to repeat, and for the end of runs there that no job claims."""
    orders: list[Order] = []
    active = state.runs_on.get(node_id, set())
    for key in sorted(active):
        run, job = state.runs.rows[key], state.jobs.rows[key.job_id]
        if key in known:
            run = _ahead_of(state, job, _parked_there(state, run, known[key]), known[key])
        if (order := desired_order(job, run, state.share_groups.rows.get(run.group), target_nodes(state, run))) is not None:
            orders.append(order)
    orders += [order_for_unclaimed(node_id, run) for run in known.values() if run.key not in active and not run.phase.over]
    return tuple(orders)


def _parked_there(state: State, run: Run, known: KnownRun) -> Run:
    """The run, to be told to resume if its node has parked it and the state does not know: the database was restored from a
    backup."""
    if run.parking is None and run.phase is RunPhase.RUNNING and known.phase in (RunPhase.PARKING, RunPhase.PARKED):
        run = with_changes(run, parking=Parking(0, underway=False))
        state.put(state.runs, run.key, run)
    return run


def _ahead_of(state: State, job: Job, run: Run, known: KnownRun) -> Run:
    """The run, with a generation above its node's if that was higher: the database was restored from a backup, and lacks
    changes that the node has heard of. Otherwise the node would take the next order for an old one."""
    behind = known.generation - generation_of(job, run)
    if behind > 0:
        run = with_changes(run, generation=run.generation + behind + 1)
        state.put(state.runs, run.key, run)
    return run
