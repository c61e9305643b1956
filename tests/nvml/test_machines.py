"""Machines as the driver tells of them, each with the tree that has to come out; and what holds of every tree."""

import json
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent.devices.gpus import read_gpus
from node_agent.devices.graph import LEVELS, tree
from node_agent.devices.reading import Gpu, Level, MigInstance, Pair, Reading
from node_agent.devices.tree import Tree, leaves
from tests.nvml.conftest import PlugIn
from tests.thorough import examples

GPU_IS_LOST = 15
MACHINES = sorted((Path(__file__).parent / "machines").glob("*.json"))


def load(file: Path) -> tuple[Reading, dict[str, Any]]:
    recorded = json.loads(file.read_text())
    return Reading.model_validate(recorded["reading"]), recorded["expected"]


def shown(tree: Tree) -> dict[str, Any]:
    """A tree as the files write it."""
    return {
        "levels": list(tree.levels),
        "devices": [
            {"uuid": uuid, "path": list(path), "link_domain": tree.link_domains.get(uuid)} for uuid, path in tree.paths.items()
        ],
        "notes": list(tree.notes),
        "link_notes": list(tree.link_notes),
    }


@pytest.mark.parametrize("file", MACHINES, ids=lambda file: file.stem)
def test_a_recorded_machine_has_its_tree(file: Path) -> None:
    reading, expected = load(file)
    assert shown(tree(reading)) == expected


def test_the_machines_are_there() -> None:
    assert {file.stem for file in MACHINES} >= {
        "dgx-a100",
        "hgx-h100",
        "dgx-1-v100",
        "pcie-8",
        "mig-even",
        "vm-flat",
        "one-gpu",
    }


@pytest.mark.parametrize("file", MACHINES, ids=lambda file: file.stem)
async def test_the_tree_is_the_same_by_way_of_the_driver(file: Path, plug_in: PlugIn) -> None:
    reading, expected = load(file)
    shim = plug_in(reading)
    for place, gpu in enumerate(reading.gpus):
        for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"):
            if gpu.fault:
                shim.fail(function, GPU_IS_LOST, gpu=place)
    read = await read_gpus(60, shim.sysfs)
    assert {gpu.uuid: gpu.fault for gpu in read.gpus} == {gpu.uuid: gpu.fault for gpu in reading.gpus}
    assert shown(tree(read)) == expected


# What holds of every tree.


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    """Machines that make sense, machines that do not, and what lies between: nested blocks, then some pairs changed."""
    count = draw(st.integers(0, 9))
    gpus, pairs = [], []
    for i in range(count):
        mig = draw(st.none() | st.none() | st.lists(st.sampled_from([(9856, "1g"), (40192, "3g")]), max_size=3))
        gpus.append(
            Gpu(
                uuid=f"GPU-{i}",
                name=draw(st.sampled_from(["A", "A", "A", "A", "B"])),
                pci=f"{draw(st.sampled_from([0, 0, 0, 65536])):04x}:{draw(st.integers(1, 6)):02x}:{i:02x}.0",
                memory_mib=81920,
                numa_node=draw(st.none() | st.integers(0, 1)),
                fault=draw(st.sampled_from(["", "", "", "", "lost"])),
                switch_links=draw(st.sampled_from([0, 0, 0, 12])),
                fabric=draw(st.sampled_from(["", "", "", "c/1"])),
                mig=None
                if mig is None
                else tuple(MigInstance(uuid=f"MIG-{i}-{n}", name=m, memory_mib=s) for n, (s, m) in enumerate(mig)),
            )
        )
    shapes: list[list[tuple[int, Level]]] = [
        [],
        [(2, "single"), (4, "node")],
        [(3, "multiple")],
        [(2, "internal"), (4, "hostbridge")],
    ]
    blocks = draw(st.sampled_from(shapes))
    for i, j in combinations(range(count), 2):
        level: Level | None = next((level for size, level in blocks if i // size == j // size), "system")
        if draw(st.integers(0, 5)) == 0:
            level = draw(st.sampled_from([*LEVELS, None]))
        pairs.append(Pair(a=f"GPU-{i}", b=f"GPU-{j}", level=level, links=draw(st.sampled_from([0, 0, 0, 2]))))
    return Reading(gpus=tuple(gpus), pairs=tuple(pairs))


@st.composite
def told_differently(draw: st.DrawFn, reading: Reading) -> Reading:
    """The same facts: another order of GPUs, instances and pairs, and pairs told from the other end, or twice."""
    pairs = [Pair(a=p.b, b=p.a, level=p.level, links=p.links) if draw(st.booleans()) else p for p in reading.pairs]
    pairs += draw(st.lists(st.sampled_from(pairs), max_size=3)) if pairs else []
    gpus = [gpu.model_copy(update={"mig": gpu.mig and tuple(draw(st.permutations(gpu.mig)))}) for gpu in reading.gpus]
    return Reading(gpus=tuple(draw(st.permutations(gpus))), pairs=tuple(draw(st.permutations(pairs))))


@settings(max_examples=examples(100))
@given(st.data())
def test_the_tree_depends_on_what_is_said_and_not_on_its_order(data: st.DataObject) -> None:
    reading = data.draw(readings())
    assert tree(data.draw(told_differently(reading))) == tree(reading)


@settings(max_examples=examples(100))
@given(readings())
def test_every_tree_is_uniform_and_its_levels_refine_each_other(reading: Reading) -> None:
    found = tree(reading)
    models = {leaf.uuid: leaf.model for leaf in leaves(reading)}
    assert list(found.paths) == list(models)
    assert len(set(found.levels)) == len(found.levels)
    below = len(models)
    for depth in range(len(found.levels), 0, -1):
        cells: dict[tuple[int, ...], Counter[str]] = {}
        for uuid, path in found.paths.items():
            assert len(path) == len(found.levels)
            cells.setdefault(path[:depth], Counter())[models[uuid]] += 1
        contents = list(cells.values())
        assert all(content == contents[0] for content in contents)
        assert 1 < len(cells) < below  # it cuts the node, and in another way than the level below it
        below = len(cells)
        for parent in {cell[:-1] for cell in cells}:
            assert sorted(cell[-1] for cell in cells if cell[:-1] == parent) == list(
                range(sum(c[:-1] == parent for c in cells))
            )
    domains = Counter(found.link_domains.values())
    assert sorted(domains) == list(range(len(domains)))
    assert all(size > 1 for size in domains.values())


# What the machines above do not have.


def machine(count: int, level: Callable[[int, int], Level | None], but: dict[int, dict[str, Any]] | None = None) -> Reading:
    """GPUs 0, 1, ... with a level for each two, and what is special about some."""
    gpus = [
        Gpu.model_validate(
            {"uuid": f"GPU-{i}", "name": "A", "pci": f"0000:{i:02x}:00.0", "memory_mib": 1024} | (but or {}).get(i, {})
        )
        for i in range(count)
    ]
    pairs = [Pair(a=f"GPU-{i}", b=f"GPU-{j}", level=level(i, j)) for i, j in combinations(range(count), 2)]
    return Reading(gpus=tuple(gpus), pairs=tuple(pairs))


def nested(*sizes: tuple[int, Level]) -> Callable[[int, int], Level]:
    return lambda i, j: next((level for size, level in sizes if i // size == j // size), "system")


def test_levels_of_one_kind_have_names_of_their_own() -> None:
    every = nested((2, "internal"), (4, "single"), (8, "multiple"), (16, "hostbridge"), (32, "node"))
    assert tree(machine(64, every)).levels == ("socket", "bridge", "switches", "switch", "board")
    assert tree(machine(64, every)).paths["GPU-45"] == (1, 0, 1, 1, 0)
    assert tree(machine(8, nested((2, "multiple"), (4, "hostbridge")))).levels == ("socket", "switch")


def test_what_the_driver_does_not_say_is_far_apart_and_told() -> None:
    found = tree(machine(4, lambda i, j: None if (i, j) == (0, 1) else "node" if i // 2 == j // 2 else "system"))
    assert found.levels == ()
    assert found.notes == (
        "the driver does not say how near 0000:00:00.0 and 0000:01:00.0 are: taken as far apart ('system')",
        "the level socket (node) is collapsed: its cells hold 1 and 2 devices, and cells of one level have to be alike",
    )


def test_many_pairs_are_told_in_one_note() -> None:
    assert tree(machine(4, lambda *_: None)).notes == (
        "the driver does not say how near 0000:00:00.0 and 0000:01:00.0; 0000:00:00.0 and 0000:02:00.0; and 4 pairs more are:"
        " taken as far apart ('system')",
    )


def test_other_models_in_a_cell_make_it_another_cell_but_a_faulty_gpu_without_a_name_does_not() -> None:
    shape = nested((2, "single"))
    other = machine(4, shape, but={3: {"name": "B"}})
    assert tree(other).notes == (
        "the level switch (single) is collapsed: its cells hold 2 devices each, but not of the same models, and cells of one"
        " level have to be alike",
    )
    assert tree(machine(4, shape, but={3: {"name": "", "fault": "lost"}})).levels == ("switch",)


@pytest.mark.parametrize("lost", [{0}, {0, 1}, {0, 7}, {2, 4}, {6, 7}])
def test_gpus_that_do_not_say_where_they_are_leave_the_others_their_tree(lost: set[int]) -> None:
    shape = nested((2, "single"), (4, "node"))
    faulty = {i: {"fault": "lost", "name": ""} for i in lost}
    found = tree(machine(8, lambda i, j: None if {i, j} & lost else shape(i, j), but=faulty))
    whole = tree(machine(8, shape))
    assert found.levels == whole.levels
    healthy = [f"GPU-{i}" for i in range(8) if i not in lost]
    for a, b in combinations(healthy, 2):
        for depth in (1, 2):
            together = whole.paths[a][:depth] == whole.paths[b][:depth]
            assert (found.paths[a][:depth] == found.paths[b][:depth]) is together
    assert len(found.notes) == len(lost)


def test_a_gpu_that_says_nothing_beside_even_cells_stands_alone() -> None:
    faulty = {8: {"fault": "lost"}}
    found = tree(machine(9, lambda i, j: None if j == 8 else nested((4, "node"))(i, j), but=faulty))
    assert found.levels == ()
    assert found.notes[0] == "GPU 0000:08:00.0 does not say where it is: it stands alone"


def test_pairs_of_strangers_and_pairs_that_are_told_twice() -> None:
    reading = machine(2, lambda *_: "system")
    more = (Pair(a="GPU-0", b="GPU-9", level="single"), Pair(a="GPU-1", b="GPU-0", level="node"))
    assert tree(reading.model_copy(update={"pairs": (*reading.pairs, *more)})).notes == (
        "pairs with GPU-9 are ignored: there is no such GPU",
        "the level of 0000:00:00.0 and 0000:01:00.0 is said twice and not alike: the nearer one holds",
    )


def test_a_gpu_in_mig_mode_without_instances_offers_nothing() -> None:
    found = tree(machine(3, lambda *_: "node", but={1: {"mig": (), "numa_node": 0}, 0: {"numa_node": 0}, 2: {"numa_node": 0}}))
    assert list(found.paths) == ["GPU-0", "GPU-2"]
    assert found.notes == ("GPU 0000:01:00.0 is in MIG mode and has no instances: it offers nothing",)


def test_link_domains() -> None:
    fabric = {i: {"switch_links": 18, "fabric": f"c/{i // 2}"} for i in range(4)}
    assert tree(machine(4, lambda *_: "system", but=fabric)).link_domains == {"GPU-0": 0, "GPU-1": 0, "GPU-2": 1, "GPU-3": 1}
    fabric[1]["fabric"] = ""
    found = tree(machine(4, lambda *_: "system", but=fabric))
    assert found.link_domains == {"GPU-2": 0, "GPU-3": 0}
    assert found.link_notes == (
        "GPUs 0000:01:00.0 have NVSwitch links and are in no fabric, unlike the others: is the fabric manager well?",
    )


def test_no_gpus_at_all() -> None:
    assert tree(Reading()) == Tree()


@settings(max_examples=examples(100))
@given(readings())
def test_pairs_that_are_far_apart_need_not_be_told(reading: Reading) -> None:
    told = reading.model_copy(update={"pairs": tuple(p for p in reading.pairs if p.links or p.level not in ("system", None))})
    lost = {gpu.uuid for gpu in reading.gpus if gpu.fault}
    if any(pair.level == "system" and {pair.a, pair.b} & lost for pair in reading.pairs):
        return  # then it is the only thing that is known of a faulty GPU, and places it
    full, short = tree(reading), tree(told)
    assert (short.levels, short.paths, short.link_domains) == (full.levels, full.paths, full.link_domains)
