"""How pinned cells stand, from the state to ebb.v1. For the engine's thread, which owns the state."""

from collections.abc import Iterator, Sequence

from ebb.v1 import virtual_clusters_pb2 as pb

from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.positions import indices
from scheduler_service.core.cells.queries import node_at
from scheduler_service.core.cells.shape import leaves, level_of
from scheduler_service.core.model import Node, NodeState
from scheduler_service.core.model.tenants.virtual_clusters import Pin
from scheduler_service.core.state.state import State


def pin_out(state: State, pools: Pools, pin: Pin) -> pb.PinUse:
    """A cell of several devices may be in use and faulty at once: then it is in use, and its faults are named all the same."""
    pool = pools.pools.get(pin.pool)
    level = None if pool is None else level_of(pool.shape, pin.level)
    if pool is None or level is None:
        gone = pb.PinFault(why=f"there is no {pin.pool}/{pin.level} any more")
        return pb.PinUse(name=pin.name, state=pb.PIN_STATE_FAULTY, faults=[gone])
    held, faults = 0, list[pb.PinFault]()
    for slot, places in leaves(pool.shape, level, pin.cell):
        held += (pool.held(slot)[0] & places).bit_count()
        node = node_at(pools, pin.pool, slot)
        if node is None:
            faults.append(_missing(state, pools, pin.pool, slot))
        else:
            faults += _faults(state, node, indices(pools.positions[node], places))
    stands = pb.PIN_STATE_IN_USE if held else pb.PIN_STATE_FAULTY if faults else pb.PIN_STATE_FREE
    return pb.PinUse(name=pin.name, state=stands, devices=pool.shape.size(level), held=held, faults=faults)


def _faults(state: State, node: int, devices: Sequence[int]) -> Iterator[pb.PinFault]:
    row = state.nodes.rows[node]
    if why := closed(row):
        yield pb.PinFault(node=row.name, why=why)
    alike: dict[str, list[int]] = {}
    for index in devices:
        device = state.devices.rows.get((node, index))
        if device is not None and device.fault:
            alike.setdefault(device.fault, []).append(index)
    for fault, which in alike.items():
        yield pb.PinFault(node=row.name, devices=which, why=fault)


def _missing(state: State, pools: Pools, pool: str, slot: int) -> pb.PinFault:
    """A node that the site counts to the pool and that has not joined, or is unlike the others; or one that is of another pool
    by now."""
    plan = next((plan for plan in state.settings.pools or () if plan.name == pool), None)
    row = state.nodes.rows.get(slot)
    name = plan.nodes[slot] if plan is not None else row.name if row is not None else ""
    return pb.PinFault(node=name, why=pools.misfits.get(state.node_ids.get(name, 0), "it is not there"))


def closed(row: Node) -> str:
    """Why nothing new is placed on the node; empty: it is open."""
    return "silent" if row.state is NodeState.SILENT else "drained" if row.drained_us is not None else ""
