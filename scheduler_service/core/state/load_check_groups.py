"""Consistency check of share groups that are about to be loaded, and of the runs in them; see `load_check`."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from scheduler_service.core.model import Node, Run, RunKey
from scheduler_service.core.model.sharing import ShareGroup


def contradictions_of_groups(
    groups: Mapping[int, ShareGroup], runs: Mapping[RunKey, Run], nodes: Mapping[int, Node]
) -> Iterator[str]:
    """Check that a group and its members name each other, that it holds what they use, and that no other group holds it."""
    used: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for key, run in runs.items():
        if run.group and run.group not in groups:
            yield f"run {key} is in share group {run.group}, and there is no such group"
        elif run.group:
            used[run.group][run.node].update(run.devices)
            if key not in groups[run.group].members():
                yield f"run {key} is in share group {run.group}, which has no row with it"
    holders: dict[tuple[int, int], int] = {}
    for group in groups.values():
        yield from _of_members(group, runs)
        here = used[group.id]
        if group.devices != tuple((node, tuple(sorted(here[node]))) for node in sorted(here)):
            yield f"share group {group.id} holds {_said(group.devices, nodes)}, and its members use other devices"
        for node, devices in group.devices:
            for index in devices:
                other = holders.setdefault((node, index), group.id)
                if other != group.id:
                    yield f"device {index} of node {_name(node, nodes)} is held by share groups {other} and {group.id}"


def _of_members(group: ShareGroup, runs: Mapping[RunKey, Run]) -> Iterator[str]:
    for key in group.members():
        run = runs.get(key)
        if run is None or run.group != group.id:
            yield f"share group {group.id} has run {key} in a row, which is not a member"
        elif (run.vc, run.guaranteed) != (group.vc, group.guaranteed):
            yield f"share group {group.id} and run {key} differ in their virtual cluster, or in whether they are guaranteed"


def _said(devices: tuple[tuple[int, tuple[int, ...]], ...], nodes: Mapping[int, Node]) -> str:
    return " and ".join(f"devices {list(indices)} of node {_name(node, nodes)}" for node, indices in devices) or "nothing"


def _name(node: int, nodes: Mapping[int, Node]) -> str:
    row = nodes.get(node)
    return row.name if row is not None else f"{node}, which is not there"
