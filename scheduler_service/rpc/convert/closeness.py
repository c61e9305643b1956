"""How close the devices of a job are to each other, for readers."""

from collections.abc import Mapping

from ebb.v1 import job_pb2 as pb

from scheduler_service.core.cells.closeness import NODE, closeness, device_tree
from scheduler_service.core.model import Node, NodeDevice
from scheduler_service.core.model.values import Mask, mask_of
from scheduler_service.core.state.queue_keys import ACTIVE
from scheduler_service.run.read_model import JobView, View


def add_closeness(out: pb.Job, found: JobView, view: View) -> None:
    """Add how close to each other the devices of a job are, if it holds two or more."""
    held: dict[int, Mask] = {}
    for run in found.runs if found.job.state in ACTIVE else ():
        held[run.node] = held.get(run.node, 0) | mask_of(run.given)
    held = {node: mask for node, mask in held.items() if mask and view.devices.get(node)}
    count = sum(mask.bit_count() for mask in held.values())
    if count < 2:
        return
    parts = [_part_of(view.nodes[node], view.devices[node], mask) for node, mask in held.items()]
    _, within, _ = min(parts)
    close = pb.Closeness(devices=count, nodes=len(held), within=within, nvlink=all(linked for *_, linked in parts))
    out.closeness.CopyFrom(close)


def _part_of(node: Node, devices: Mapping[int, NodeDevice], mask: Mask) -> tuple[int, str, bool]:
    """The smallest part of the node that has these devices: its depth and its name; and whether one NVLink domain has them."""
    rows = [devices[index] for index in sorted(devices)]
    tree = device_tree(node.levels, tuple(row.path for row in rows), tuple(row.link_domain for row in rows))
    name, linked = closeness(tree, mask)
    depths = {NODE: 0, **{level: depth for depth, level in enumerate(node.levels, 1)}}
    return depths.get(name, len(depths)), name, linked
