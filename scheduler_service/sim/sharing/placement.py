"""The placement of the tasks of a simulated launch, as far as rates depend on it."""

from collections import Counter
from collections.abc import Sequence

from scheduler_service.sim.nodes import Task
from scheduler_service.sim.sharing.kinds import Spread
from scheduler_service.sim.sharing.model import Site


def site_of(tasks: Sequence[Task]) -> Site:
    """The site of the tasks of one launch."""
    found = [(task.node, device) for task in tasks for device in task.devices]
    if not found:
        return Site("", 0, Spread.SWITCH)
    node, device = found[0]
    devices = node.inventory.devices
    model = devices[device].model if devices else ""
    per_node = Counter(id(node) for node, _ in found)
    if len(per_node) > 1:
        return Site(model, len(found), Spread.NODES if min(per_node.values()) > 1 else Spread.SCATTERED)
    return Site(model, len(found), _within([devices[device].path for _, device in found] if devices else []))


def _within(paths: Sequence[tuple[int, ...]]) -> Spread:
    """The spread on one node, by the paths of the devices in its tree. The outermost level is taken as the socket, and the
    innermost one as the switch."""
    common = 0
    for parts in zip(*paths, strict=True):
        if len(set(parts)) > 1:
            break
        common += 1
    if not paths or common == len(paths[0]):
        return Spread.SWITCH
    return Spread.SOCKET if common else Spread.NODE
