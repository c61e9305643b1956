"""The choices of HiveD's baseline: YARN's capacity scheduler as that paper refines it (section 5.2.1).

A tenant's quota is a number of GPUs, wherever they are. Its jobs within the quota are regular and served in order of arrival;
those beyond it may run on idle GPUs, and stop when a regular job needs them. Jobs are packed by affinity: on the node with the
least room that suffices, and a job of several nodes on as few as possible. Victims are chosen by where the new job can be
placed, not by which came last.

All of these are functions of plain numbers: nodes are indices into `free`, the numbers of idle GPUs.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

NEVER = 1 << 40
"""More than any number of GPUs."""


class Low(NamedTuple):
    """A run beyond its tenant's quota."""

    job: int
    parts: tuple[tuple[int, int], ...]
    """(node, GPUs) of each task; the tasks of a gang stop together."""

    @property
    def gpus(self) -> int:
        return sum(gpus for _, gpus in self.parts)


class Choice(NamedTuple):
    """The nodes of a job's tasks, by rank, and the jobs that have to stop first."""

    nodes: tuple[int, ...]
    leave: tuple[int, ...]


def turns(used: Mapping[str, int], quotas: Mapping[str, int]) -> list[str]:
    """The tenants in the order in which they are served: the least used share of the quota first, then by name.

    One without a quota comes last.
    """
    return sorted(used, key=lambda name: (used[name] / quotas[name] if quotas.get(name) else NEVER, name))


def is_within_quota(used: int, quota: int, gpus: int) -> bool:
    """Whether a tenant that uses `used` GPUs may have `gpus` more as regular ones."""
    return used + gpus <= quota


def place(needs: Sequence[int], free: Sequence[int]) -> tuple[int, ...] | None:
    """A node for each task, the largest first, each with the least room that suffices; None if one does not fit."""
    room, nodes = list(free), [0] * len(needs)
    for rank in _largest_first(needs):
        node = _tightest(needs[rank], room)
        if node is None:
            return None
        room[node] -= needs[rank]
        nodes[rank] = node
    return tuple(nodes)


def make_room(needs: Sequence[int], free: Sequence[int], low: Iterable[Low]) -> Choice | None:
    """The nodes of a regular job and its victims; None if even all of them would not make room.

    The least GPUs are preempted for each task in turn, the largest first. For one task that is the minimum, for several an
    estimate, since a gang that stops makes room for the others, too. Among nodes of the same cost the one that lacks least is
    chosen, and on a node, of sets of jobs with the same cost, the one with fewer jobs, then with those that came last.
    """
    room, nodes = list(free), [0] * len(needs)
    staying = {run.job: run for run in low}
    leave: list[int] = []
    for rank in _largest_first(needs):
        node, gone = _cheapest(needs[rank], room, staying)
        if node is None:
            return None
        for job in gone:
            for at, gpus in staying.pop(job).parts:
                room[at] += gpus
        leave += gone
        room[node] -= needs[rank]
        nodes[rank] = node
    return Choice(tuple(nodes), tuple(leave))


def _largest_first(needs: Sequence[int]) -> list[int]:
    return sorted(range(len(needs)), key=lambda rank: -needs[rank])


def _tightest(need: int, room: Sequence[int]) -> int | None:
    return min((node for node, gpus in enumerate(room) if gpus >= need), key=lambda node: room[node], default=None)


def _cheapest(need: int, room: Sequence[int], staying: Mapping[int, Low]) -> tuple[int | None, list[int]]:
    """The node on which the task costs least, and its victims. A node costs no less than it lacks, so nodes that lack more than
    the best one costs are skipped."""
    node = _tightest(need, room)
    if node is not None:
        return node, []
    on_node: dict[int, list[tuple[int, int, int]]] = {}
    for run in staying.values():
        released: dict[int, int] = {}
        for at, gpus in run.parts:
            released[at] = released.get(at, 0) + gpus
        for at, gpus in released.items():
            on_node.setdefault(at, []).append((run.job, gpus, run.gpus))
    best: tuple[int, list[int]] = (NEVER, [])
    for at in sorted(on_node, key=lambda at: (need - room[at], at)):
        lacks = need - room[at]
        if lacks >= best[0]:
            break
        found = _cover(lacks, on_node[at])
        if found is not None and found[0] < best[0]:
            best, node = found, at
    return node, best[1]


def _cover(lacks: int, runs: Iterable[tuple[int, int, int]]) -> tuple[int, list[int]] | None:
    """The cheapest jobs that release `lacks` GPUs here, and their cost. `runs` are (job, GPUs released here, cost)."""
    known: list[tuple[int, int, list[int]] | None] = [(0, 0, []), *[None] * lacks]
    """For each number of released GPUs, up to `lacks`: the cost, the number of jobs, and the jobs."""
    for job, released, cost in sorted(runs, reverse=True):
        for has in range(lacks, -1, -1):
            before = known[has]
            if before is None:
                continue
            at = min(has + released, lacks)
            after, old = (before[0] + cost, before[1] + 1, [*before[2], job]), known[at]
            if at != has and (old is None or after[:2] < old[:2]):
                known[at] = after
    whole = known[lacks]
    return None if whole is None else (whole[0], whole[2])
