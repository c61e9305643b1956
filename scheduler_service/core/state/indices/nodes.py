"""Indices over the cluster, nodes and devices: free room, idle and faulty devices, places in pools."""

from scheduler_service.core.model import Cluster, Node, NodeDevice, NodeState, present
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Vector, sub, times
from scheduler_service.core.state.indices.nonempty import count, set_or_drop
from scheduler_service.core.state.indices.runs import hold_cells, refresh_candidate, set_idle_devices
from scheduler_service.core.state.resources.suitable_nodes import traits
from scheduler_service.core.state.tables import Tables

_ONE_DEVICE = Vector(0, 0, 1)


def of_cluster(state: Tables, _old: Cluster | None, new: Cluster | None) -> None:
    if new is not None:  # it has one row, which never goes
        state.cluster = new


def of_node(state: Tables, old: Node | None, new: Node | None) -> None:
    if old is not None and new is not None and _offers_the_same(old, new):
        return  # a report was counted, or its agent connected again
    row = new or old
    if row is None:
        return
    was, now = present(old), present(new)
    set_or_drop(state.node_ids, row.name, row.id if now else None)
    set_or_drop(state.deleted_ids, row.name, row.id if new and not now else None)
    _hear(state, row.id, now)
    state.free_resources.set_node(row.id, now)
    state.open_nodes.set_node(row.id, now, state.faulty_devices.get(row.id, 0).bit_count())
    if state.host is not None:
        state.host.set_node(row.id, _host_of(state, now))
    other = was is None or now is None or was.capacity != now.capacity
    if other:
        _count_idle(state, row.id)
    state.kept_idle_groups.forget_tree(row.id)
    _place_in_pool(state, row.id)
    _describe(state, row.id)
    state.pending.policies = state.pending.inventory = True
    if state.introspects:
        state.pending.nodes.add(row.id)
    if other:
        for key in state.runs_on.get(row.id, ()):
            refresh_candidate(state, key)


def _hear(state: Tables, node: int, row: Node | None) -> None:
    """Notes whether the node is silent, and its tasks with it."""
    silent = row is not None and row.state is NodeState.SILENT
    if silent == (node in state.silent):
        return
    (state.silent.add if silent else state.silent.discard)(node)
    for key in state.runs_on.get(node, ()):
        if not state.runs.rows[key].phase.awaits_source:
            count(state.unreachable, key.job_id, 1 if silent else -1)


def _host_of(state: Tables, row: Node | None) -> Node | None:
    """Return the node with only the resources that belong to none of its devices; None if it has no devices or is not there."""
    if row is None or state.pools is None or not (count := row.capacity.devices):
        return None
    return with_changes(row, capacity=sub(row.capacity, times(state.pools.share_per_device(row.capacity, count), count)))


def _count_idle(state: Tables, node: int) -> None:
    """Counts the idle devices of a node that joined, left or changed: devices may have taken the place of CPUs."""
    idle, rows, index = state.cpus_of(node), state.devices.rows, 0
    if not idle:
        while (device := rows.get((node, index))) is not None:
            idle, index = idle | (not device.fault) << index, index + 1
    idle &= ~(state.held_devices.get(node, 0) | state.kept_devices.get(node, 0))
    set_idle_devices(state, node, idle)


def of_device(state: Tables, old: NodeDevice | None, new: NodeDevice | None) -> None:
    row = new or old
    if row is None:
        return
    bit = 1 << row.index
    held = bool(state.held_devices.get(row.node, 0) & bit)
    idle = state.idle_devices.get(row.node, 0)
    kept = bool(state.kept_devices.get(row.node, 0) & bit)
    idle = idle | bit if new is not None and not (held or kept or new.fault) else idle & ~bit
    if not state.cpus_of(row.node):
        set_idle_devices(state, row.node, idle)
    if old is None or new is None or (old.path, old.link_domain) != (new.path, new.link_domain):
        state.kept_idle_groups.forget_tree(row.node)
    _place_in_pool(state, row.node)
    _describe(state, row.node)
    if old is None or new is None or old.memory_mib != new.memory_mib:
        state.stale_open_groups.update(dict.fromkeys(state.groups_on.get(row.node, ())))
    was, now = old is not None and bool(old.fault), new is not None and bool(new.fault)
    if was == now:
        return
    if not held:  # no run holds it, and none can
        (state.free_resources.take if now else state.free_resources.give)(row.node, _ONE_DEVICE)
    faulty = state.faulty_devices.get(row.node, 0)
    faulty = faulty | bit if now else faulty & ~bit
    set_or_drop(state.faulty_devices, row.node, faulty or None)
    state.open_nodes.set_node(row.node, present(state.nodes.rows.get(row.node)), faulty.bit_count())
    state.pending.policies = state.pending.inventory = True
    for run in state.holders(row.node, row.index):
        refresh_candidate(state, run.key)


def _place_in_pool(state: Tables, node: int) -> None:
    """Puts the node into its pool, with its devices that are healthy and open."""
    if state.pools is None:
        return
    row, rows, devices = present(state.nodes.rows.get(node)), state.devices.rows, []
    if row is not None and (count := row.capacity.devices):
        if (node, count - 1) in rows:
            devices = [device for index in range(count) if (device := rows.get((node, index))) is not None]
        if len(devices) < count:
            row = None  # as it joins, or is loaded, or its inventory changes, its devices come one by one
    for seated in state.pools.set_node(node, row, devices):
        hold_cells(state, seated)
    state.pending.market = True  # a pool may have come, or gone


def _describe(state: Tables, node: int) -> None:
    """Notes the node's traits: what jobs may require of it in addition to resources."""
    if state.pools is None:
        row, rows = present(state.nodes.rows.get(node)), state.devices.rows
        devices = (rows[at] for index in range(row.capacity.devices if row else 0) if (at := (node, index)) in rows)
        state.suitable_nodes.set_node(node, None if row is None else traits(row, devices))


def _offers_the_same(a: Node, b: Node) -> bool:
    """Whether two rows of a node are equal in everything that decides what fits there, including the names of its cells."""
    return (
        a.state is b.state
        and (a.capacity is b.capacity or a.capacity == b.capacity)
        and (a.levels is b.levels or a.levels == b.levels)
        and (a.labels is b.labels or a.labels == b.labels)
        and (a.drained_us is None) == (b.drained_us is None)
    )
