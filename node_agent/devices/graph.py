"""Builds the tree of devices from a reading.

The GPUs are the vertices of a graph. For each of NVML's levels, nearest first, its cells are the connected components
over the pairs that are at least so near. A level stays if it cuts the node in another way than the one before, and if its
cells are alike: the scheduler takes any cell of a level for any other (docs/adr/0014-device-tree.md).

The result depends on what the driver says, not on its order. Run as a module, it turns the reading on its input into the
tree on its output; the agent does so, to stay without networkx (some 20 MiB).
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import get_args

import networkx as nx
from pydantic import TypeAdapter

from node_agent.devices.reading import Gpu, Level, Reading
from node_agent.devices.tree import Leaf, Tree, gpu_name, leaves, sort_gpus

LEVELS: tuple[Level, ...] = get_args(Level)
"""Nearest first."""
NEARNESS: Mapping[Level, int] = {level: rank for rank, level in enumerate(LEVELS)}

NAMES: Mapping[Level, tuple[str, ...]] = {
    "internal": ("board",),
    "single": ("switch",),
    "multiple": ("switch", "switches"),
    "node": ("socket",),
    "hostbridge": ("socket", "bridge"),
}
"""Names of a level: the first one that no level above it in this table has taken."""

GPU = "gpu"
"""The level of the GPUs themselves, if MIG instances are the devices."""

Levels = Mapping[frozenset[str], Level]
Partition = dict[str, str]
"""Each member, with the first member of its cell."""


def tree(reading: Reading) -> Tree:
    gpus = sort_gpus(reading.gpus)
    found = leaves(reading)
    levels, notes = _levels(reading, gpus)
    lost = [gpu for gpu in gpus if gpu.fault and not any(gpu.uuid in pair for pair in levels)] if len(gpus) > 1 else []
    placed = [gpu for gpu in gpus if gpu not in lost]
    partitions = {level: _components(placed, levels, level) for level in LEVELS[:-1]}
    notes += _find_unstated(placed, levels) + _not_transitive(placed, levels, partitions) + _against_numa(placed, levels)
    for gpu in lost:
        notes.append(_place_in_gap(gpu, list(partitions.values())))
    if not notes and (note := _flat(placed, levels)):
        notes.append(note)

    by_leaf = {level: {leaf.uuid: cells[leaf.gpu.uuid] for leaf in found} for level, cells in partitions.items()}
    kept: list[tuple[Level | None, Partition]] = []
    previous = {leaf.uuid: leaf.uuid for leaf in found}
    by_gpu = {leaf.uuid: leaf.gpu.uuid for leaf in found}
    for name, cells in ((None, by_gpu), *by_leaf.items()):
        cut = _normalize(cells)
        if cut == previous or len(set(cut.values())) == 1:
            continue
        previous = cut
        if why := _unevenness(cut, found):
            level = GPU if name is None else f"{NAMES[name][0]} ({name})"
            notes.append(f"the level {level} is collapsed: {why}")
        else:
            kept.append((name, cut))
    notes += [
        f"GPU {gpu_name(gpu)} is in MIG mode and has no instances: it offers nothing"
        for gpu in gpus
        if gpu.mig == () and not gpu.fault
    ]
    domains, link_notes = _links(reading, gpus)
    kept.reverse()
    return Tree(
        _level_names([level for level, _ in kept]),
        _paths(found, [cells for _, cells in kept]),
        domains,
        tuple(notes),
        link_notes,
    )


def _levels(reading: Reading, gpus: Sequence[Gpu]) -> tuple[dict[frozenset[str], Level], list[str]]:
    """Return the known level of each pair (the nearer one if there are two), and notes."""
    known = {gpu.uuid for gpu in gpus}
    levels: dict[frozenset[str], Level] = {}
    strange: set[str] = set()
    twice: set[str] = set()
    for pair in reading.pairs:
        strange |= {pair.a, pair.b} - known
        key = frozenset((pair.a, pair.b))
        if pair.level is None or len(key) == 1 or not key <= known:
            continue
        if levels.setdefault(key, pair.level) != pair.level:
            twice.add(_pair_text(key, gpus))
            levels[key] = min(levels[key], pair.level, key=NEARNESS.__getitem__)
    notes = [f"pairs with {', '.join(sorted(strange))} are ignored: there is no such GPU"] if strange else []
    notes += [f"the level of {both} is said twice and not alike: the nearer one holds" for both in sorted(twice)]
    return levels, notes


def _components(gpus: Sequence[Gpu], levels: Levels, limit: Level) -> Partition:
    """Return the cells whose members reach each other over pairs that are within the limit."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(gpu.uuid for gpu in gpus)
    graph.add_edges_from((a, b) for (a, b), level in levels.items() if NEARNESS[level] <= NEARNESS[limit])
    cell = {uuid: number for number, members in enumerate(nx.connected_components(graph)) for uuid in members}
    return _normalize({gpu.uuid: str(cell[gpu.uuid]) for gpu in gpus})


def _normalize(cells: Mapping[str, str]) -> Partition:
    """Name each cell by its first member, so that equal partitions are equal."""
    first: dict[str, str] = {}
    return {member: first.setdefault(cell, member) for member, cell in cells.items()}


def _place_in_gap(gpu: Gpu, partitions: Sequence[Partition]) -> str:
    """Place an unknown GPU where one seems to be missing, so that the others keep their tree."""
    for outwards, cells in enumerate(partitions):
        sizes = Counter(cells.values())
        gaps = [cell for cell, size in sizes.items() if size < max(sizes.values())]
        if len(sizes) == 1 and len(cells) > 1:
            gaps = list(sizes)
        if gaps:
            for inner in partitions[:outwards]:
                inner[gpu.uuid] = gpu.uuid
            for outer in partitions[outwards:]:
                outer[gpu.uuid] = outer[gaps[0]]
            return f"GPU {gpu_name(gpu)} does not say where it is: it stands where one seems to be missing"
    for cells in partitions:
        cells[gpu.uuid] = gpu.uuid
    return f"GPU {gpu_name(gpu)} does not say where it is: it stands alone"


def _unevenness(cells: Partition, found: Sequence[Leaf]) -> str:
    """Return how the contents of the cells differ; empty if they are alike."""
    usual = Counter(leaf.model for leaf in found if leaf.model).most_common(1)
    hold: dict[str, Counter[str]] = {}
    for leaf in found:
        # A faulty GPU may not report its model; that alone does not make its cell differ.
        model = leaf.model or (usual[0][0] if usual else "")
        hold.setdefault(cells[leaf.uuid], Counter())[model] += 1
    contents = list(hold.values())
    if all(content == contents[0] for content in contents):
        return ""
    sizes = [content.total() for content in contents]
    if len(set(sizes)) > 1:
        return f"its cells hold {_numbers_text(sizes)} devices, and cells of one level have to be alike"
    held = _numbers_text(sizes)
    return f"its cells hold {held} devices each, but not of the same models, and cells of one level have to be alike"


def _level_names(levels: Sequence[Level | None]) -> tuple[str, ...]:
    names: dict[Level | None, str] = {None: GPU}
    for level, choices in NAMES.items():
        if level in levels:
            names[level] = next(name for name in choices if name not in names.values())
    return tuple(names[level] for level in levels)


def _paths(found: Sequence[Leaf], levels: Sequence[Partition]) -> dict[str, tuple[int, ...]]:
    """Number the cells within their parent, in the order of their first devices."""
    numbers: dict[tuple[int, ...], dict[str, int]] = {}
    paths: dict[str, tuple[int, ...]] = {}
    for leaf in found:
        path: tuple[int, ...] = ()
        for cells in levels:
            children = numbers.setdefault(path, {})
            path = (*path, children.setdefault(cells[leaf.uuid], len(children)))
        paths[leaf.uuid] = path
    return paths


def _find_unstated(gpus: Sequence[Gpu], levels: Levels) -> list[str]:
    unsaid = [f"{gpu_name(a)} and {gpu_name(b)}" for a, b in combinations(gpus, 2) if frozenset((a.uuid, b.uuid)) not in levels]
    return [f"the driver does not say how near {_pairs_text(unsaid)} are: taken as far apart ('system')"] if unsaid else []


def _not_transitive(gpus: Sequence[Gpu], levels: Levels, partitions: Mapping[Level, Partition]) -> list[str]:
    """List pairs that share a cell though they are said to be farther apart, by the level that joined them first."""
    notes: list[str] = []
    told: set[frozenset[str]] = set()
    for limit, cells in partitions.items():
        joined = []
        for a, b in combinations(gpus, 2):
            key = frozenset((a.uuid, b.uuid))
            level = levels.get(key)
            if level and key not in told and cells[a.uuid] == cells[b.uuid] and NEARNESS[level] > NEARNESS[limit]:
                told.add(key)
                joined.append(f"{gpu_name(a)} and {gpu_name(b)} ({level!r})")
        if joined:
            notes.append(
                f"the levels contradict each other: {_pairs_text(joined)} share a cell all the same,"
                f" since others that are near to both ({limit!r}) join them"
            )
    return notes


def _against_numa(gpus: Sequence[Gpu], levels: Levels) -> list[str]:
    """List contradictions between NVML's levels and sysfs's NUMA nodes. The levels hold; an operator should look at it."""
    near, far = [], []
    for a, b in combinations(gpus, 2):
        level = levels.get(frozenset((a.uuid, b.uuid)))
        if level is None or a.numa_node is None or b.numa_node is None:
            continue
        if level != "system" and a.numa_node != b.numa_node:
            near.append(f"{gpu_name(a)} and {gpu_name(b)} ({level!r}, NUMA nodes {a.numa_node} and {b.numa_node})")
        elif level == "system" and a.numa_node == b.numa_node:
            far.append(f"{gpu_name(a)} and {gpu_name(b)} (NUMA node {a.numa_node})")
    notes = [f"the levels put {_pairs_text(near)} on one NUMA node, and sysfs does not: the levels hold"] if near else []
    return notes + (
        [f"the levels put {_pairs_text(far)} on different NUMA nodes, and sysfs does not: the levels hold"] if far else []
    )


def _flat(gpus: Sequence[Gpu], levels: Levels) -> str:
    """Return a note if all GPUs are at one distance. Virtual machines often show that, and real ones may be like that."""
    said = set(levels.values())
    if len(gpus) < 3 or len(said) != 1 or any(gpu.numa_node is not None for gpu in gpus):
        return ""
    return (
        f"every pair of GPUs is {said.pop()!r}, and none has a NUMA node, as in a virtual machine that hides where they"
        " really are: if you know better, give the tree with --device-tree"
    )


def _links(reading: Reading, gpus: Sequence[Gpu]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Number the NVLink domains in the order of their first GPUs. MIG instances reach nothing over NVLink."""
    whole = {gpu.uuid: gpu for gpu in gpus if gpu.mig is None}
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(whole)
    straight = (frozenset((pair.a, pair.b)) for pair in reading.pairs if pair.links)
    direct = {pair for pair in straight if len(pair) == 2 and pair <= whole.keys()}
    graph.add_edges_from((a, b) for a, b in direct)
    fabrics: dict[str, list[str]] = {}
    for uuid, gpu in whole.items():
        if gpu.switch_links or gpu.fabric:
            fabrics.setdefault(gpu.fabric, []).append(uuid)
    for members in fabrics.values():
        nx.add_path(graph, members)

    notes: list[str] = []
    if len(fabrics) > 1 and "" in fabrics:
        outside = ", ".join(gpu_name(whole[uuid]) for uuid in fabrics[""])
        notes.append(f"GPUs {outside} have NVSwitch links and are in no fabric, unlike the others: is the fabric manager well?")
    domains: dict[str, int] = {}
    number = 0
    for uuid in whole:
        if uuid in domains or not graph.degree[uuid]:
            continue
        members = sorted(nx.node_connected_component(graph, uuid), key=list(whole).index)
        domains |= dict.fromkeys(members, number)
        switched = set(members) <= {one for group in fabrics.values() for one in group}
        pairs = list(combinations(members, 2))
        missing = 0 if switched else sum(frozenset(pair) not in direct for pair in pairs)
        if missing:
            notes.append(f"NVLink domain {number} is a mesh: {missing} of its {len(pairs)} pairs have no link of their own")
        number += 1
    return {gpu.uuid: domains[gpu.uuid] for gpu in gpus if gpu.uuid in domains}, tuple(notes)


def _pair_text(pair: Iterable[str], gpus: Sequence[Gpu]) -> str:
    return " and ".join(gpu_name(gpu) for gpu in gpus if gpu.uuid in set(pair))


def _pairs_text(pairs: Sequence[str]) -> str:
    return "; ".join(pairs[:2]) + (f"; and {len(pairs) - 2} pairs more" if len(pairs) > 2 else "")


def _numbers_text(numbers: Sequence[int]) -> str:
    different = list(dict.fromkeys(map(str, sorted(numbers))))
    return different[0] if len(different) == 1 else ", ".join(different[:-1]) + " and " + different[-1]


if __name__ == "__main__":
    sys.stdout.buffer.write(TypeAdapter(Tree).dump_json(tree(Reading.model_validate_json(sys.stdin.buffer.read()))))
