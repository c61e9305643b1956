"""Explanations for people: the nodes that a job waits for if no open node could take it."""

from collections.abc import Iterable, Iterator

from scheduler_service.core.model import Job, JobSpec, Node
from scheduler_service.core.model.values import Vector, fits
from scheduler_service.core.state.resources.suitable_nodes import describe, node_requirements
from scheduler_service.core.state.tables import Tables

_NAMED = 3
"""If there are more nodes than this, only their number is shown."""


def why_closed(state: Tables, job: Job) -> str:
    """Return an explanation such as "waits for node dgx, which is drained". The nodes could take the job if all were open and
    empty."""
    said = [_why_closed(state, one.spec) for one in job.in_each_configuration()]
    if len(said) == 1:
        return said[0]
    return "; ".join(f"configuration {number}: {why}" for number, why in enumerate(said))


def _why_closed(state: Tables, spec: JobSpec) -> str:
    tasks = frozenset(spec.tasks())
    lacking = [(node, why) for node in _suitable(state, spec) if (why := _what_is_wrong(state, node, tasks))]
    asks = node_requirements(spec)
    kind = "a node" if asks is None else f"a node that {describe(asks)}"
    if not lacking:
        return f"waits for {kind}"
    if spec.gang:
        return f"its tasks do not fit together on the nodes that are open; {_list_nodes(lacking)}"
    if len(lacking) <= _NAMED:
        return "waits for " + " or ".join(f"node {node.name}, {why}" for node, why in lacking)
    return f"waits for {kind}; {_list_nodes(lacking)}"


def _suitable(state: Tables, spec: JobSpec) -> Iterator[Node]:
    among = state.suitable_for(spec)
    for _, node in sorted(state.node_ids.items()):
        if among is None or among.bits >> node & 1:
            yield state.nodes.rows[node]


def _what_is_wrong(state: Tables, node: Node, tasks: Iterable[Vector]) -> str:
    """Return why the node, although large enough, could not take one of these tasks, as part of a sentence; empty: it could, or
    it is too small."""
    large_enough = [task for task in tasks if fits(task, node.capacity)]
    if not large_enough:
        return ""
    if node.drained_us is not None:
        return "which is drained"
    if not state.free_resources.is_open(node.id):
        return "which is silent"
    if all(fits(task, state.open_nodes.capacity(node.id)) for task in large_enough):
        return ""
    return f"which has faulty devices ({state.faulty_devices.get(node.id, 0).bit_count()} of {node.capacity.devices})"


def _list_nodes(lacking: list[tuple[Node, str]]) -> str:
    """Return the nodes by name if there are few, else the number of each kind."""
    if len(lacking) <= _NAMED:
        return " and ".join(f"node {node.name} {why.removeprefix('which ')}" for node, why in lacking)
    counts = {how: sum(how in why for _, why in lacking) for how in ("drained", "silent", "faulty")}
    kinds = {"drained": "drained", "silent": "silent", "faulty": "with faulty devices"}
    return ", ".join(f"{count} nodes {kinds[how]}" for how, count in counts.items() if count)
