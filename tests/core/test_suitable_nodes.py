"""On which nodes a job may run: by the models and the memory of their devices, by names, by labels."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.enact import enact
from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import (
    FenceRequested,
    NodeDeleteRequested,
    NodeSeen,
    Place,
    RequeueRequested,
    Spot,
    Submitted,
)
from scheduler_service.core.model import JobSpec, JobState, NodeDevice, NodeSelector, Reason, TaskGroup
from scheduler_service.core.model.inventory import Device, Inventory
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.resources.suitable_nodes import SuitableNodes, Traits, describe, node_requirements, suits
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver, spec
from tests.core.test_enact import Desk

Labels = tuple[tuple[str, str], ...]
GPU = 16_384
A, B = (("zone", "a"),), (("disk", "nvme"), ("zone", "b"))


def seen(name: str, *devices: tuple[str, int], labels: Labels = (), boot: str = "a") -> NodeSeen:
    """A node whose devices are of these models, with so much memory."""
    made = tuple(Device(i, f"{name}-{i}", model, memory, ()) for i, (model, memory) in enumerate(devices))
    return NodeSeen(name, boot, Inventory(Vector(8_000, 65_536, len(made)), (), made), (), labels=labels)


NODES = (
    seen("a100", ("A100", 40_960), ("A100", 40_960), labels=A),
    seen("t4", ("T4", GPU), ("T4", GPU), labels=B),
    seen("mixed", ("A100", 40_960), ("T4", GPU), labels=B),
    seen("split", ("A100", 40_960), ("A100", GPU)),
    seen("cpu", labels=A),
)


def site(*nodes: NodeSeen) -> Driver:
    d = Driver()
    d.step(*(nodes or NODES))
    return d


def asks(model: str = "", memory: int = 0, **nodes: object) -> JobSpec:
    selector = NodeSelector(**nodes)  # type: ignore[arg-type]
    return with_changes(spec(devices=0), cells=CellRequest(model=model), device_memory_mib=memory, nodes=selector)


def among(d: Driver, what: JobSpec) -> set[str] | None:
    found = d.state.suitable_for(what)
    if found is None:
        return None
    ids = {node for node in d.state.nodes.rows if found.bits >> node & 1}
    assert ids == {node for node, suitable in enumerate(found.mask) if suitable}, "the two forms are of one set"
    return {d.state.nodes.rows[node].name for node in ids}


@pytest.mark.parametrize(
    ("what", "where"),
    [
        (asks(), None),
        (asks("A100"), {"a100", "split"}),
        (asks("T4"), {"t4"}),
        (asks("H100"), set()),
        (asks(memory=1), {"a100", "t4", "mixed", "split"}),
        (asks(memory=GPU), {"a100", "t4", "mixed", "split"}),
        (asks(memory=GPU + 1), {"a100"}),
        (asks(memory=40_961), set()),
        (asks("A100", GPU + 1), {"a100"}),
        (asks("T4", GPU + 1), set()),
        (asks(names=("t4", "cpu")), {"t4", "cpu"}),
        (asks(names=("none",)), set()),
        (asks(labels=A), {"a100", "cpu"}),
        (asks(labels=B), {"t4", "mixed"}),
        (asks(labels=(("zone", "b"),)), {"t4", "mixed"}),
        (asks(labels=(("zone", "c"),)), set()),
        (asks(labels=(*A, ("disk", "nvme"))), set()),
        (asks(excluded=("t4", "cpu")), {"a100", "mixed", "split"}),
        (asks(names=("t4", "cpu"), excluded=("t4",)), {"cpu"}),
        (asks(names=("t4",), excluded=("t4",)), set()),
        (asks("T4", GPU, names=("t4", "a100"), labels=B, excluded=("mixed",)), {"t4"}),
        (asks("A100", labels=A, names=("t4",)), set()),
    ],
)
def test_what_is_asked_of_nodes_and_which_there_are(what: JobSpec, where: set[str] | None) -> None:
    assert among(site(), what) == where


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (asks("A100"), "has A100 devices"),
        (asks(memory=GPU), "has devices with 16384 MiB or more each"),
        (asks("A100", GPU, labels=A), "has A100 devices with 16384 MiB or more each and has the labels zone=a"),
        (asks(names=("a", "b"), excluded=("c", "d")), "is named a or b and is not c or d"),
    ],
)
def test_it_is_told_what_is_asked(what: JobSpec, told: str) -> None:
    found = node_requirements(what)
    assert found is not None
    assert describe(found) == told


# ---- nodes come, change, and go ----------------------------------------------------------------------------------------


def test_the_sets_follow_the_nodes() -> None:
    d = site(NODES[0])
    model, labels = asks("A100"), asks(labels=B)
    assert (among(d, model), among(d, labels)) == ({"a100"}, set())
    d.step(seen("new", ("A100", 40_960), labels=B))
    assert (among(d, model), among(d, labels)) == ({"a100", "new"}, {"new"})
    d.step(seen("new", ("T4", GPU), labels=A))
    assert (among(d, model), among(d, labels)) == ({"a100"}, set())
    d.silence("a100")
    assert among(d, model) == {"a100"}, "a silent node is still one of those, and is not open"
    assert not d.state.is_usable(model, d.node("a100").id)
    d.step(NodeDeleteRequested("a100"))
    assert among(d, model) == set()


def test_a_device_of_another_model_makes_a_node_none_of_either() -> None:
    d = site(NODES[0])
    assert among(d, asks("A100")) == {"a100"}
    d.step(seen("a100", ("A100", 40_960), ("H100", 81_920), boot="b"))
    assert (among(d, asks("A100")), among(d, asks("H100"))) == (set(), set())
    assert among(d, asks(memory=40_960)) == {"a100"}


def test_the_node_that_joined_last_is_deleted() -> None:
    d = site(NODES[0], NODES[1])
    jobs = [d.submit(with_changes(asks("A100"), demand=Vector(1_000, 1_024, 2))) for _ in range(2)]
    d.silence("t4")
    d.step(NodeDeleteRequested("t4"))
    d.start(jobs[0])
    found = explain(d.state, d.job(jobs[1]), d.now, Random(0), stages("fifo", PreemptionSettings()))
    assert [blocker.reason for blocker in found.blockers] == [Reason.NO_ROOM]
    gang = with_changes(asks("A100"), gang=(TaskGroup(2, Vector(500, 512)),), demand=Vector(1_000, 1_024))
    others = [d.submit(gang), d.submit(asks(names=("a100",)))]
    d.cancel(jobs[1])
    d.start(others[1])
    assert {d.where(job).name for job in (jobs[0], *others)} == {"a100"}
    assert d.state.rebuild().snapshot() == d.state.snapshot()
    refused = d.reply(Submitted("ann", "", asks("A100", 40_961)))
    assert isinstance(refused, FailedPrecondition)


def test_a_job_starts_when_the_labels_of_a_node_change_to_those_that_it_asks_for() -> None:
    d = site(*NODES)
    d.step(seen("other", labels=(("zone", "c"),)))
    job = d.submit(asks(labels=(("zone", "c"),)))
    d.start(job)
    waiting = d.submit(with_changes(asks(labels=(("zone", "c"),)), demand=Vector(8_000, 1_024)))
    assert d.job(waiting).reason is Reason.NO_ROOM
    d.step(seen("cpu", labels=(("zone", "c"),)))
    assert d.job(waiting).state is JobState.STARTING
    assert d.where(waiting).name == "cpu"


def test_a_run_goes_on_where_its_node_is_not_suitable_any_more() -> None:
    d = site(*NODES)
    job = d.submit(asks(labels=A))
    d.start(job)
    assert d.where(job).name == "a100"
    known = d.seen("a100").runs
    d.step(replace(seen("a100", ("A100", 40_960), ("A100", 40_960)), runs=known))
    assert d.job(job).state is JobState.RUNNING
    d.step(RequeueRequested(job))
    d.exit(job, yielded=True)
    assert d.where(job).name == "cpu", "its next run is where the labels are"


def test_a_job_that_no_node_suits_any_more_says_so_and_starts_when_one_does_again() -> None:
    d = site(*NODES)
    what = with_changes(asks("T4"), demand=Vector(1_000, 1_024, 2))
    runs, waits = d.submit(what), d.submit(what)
    d.start(runs)
    d.silence("t4")
    d.step(FenceRequested("t4", "op"))
    d.step(NodeDeleteRequested("t4"))
    for job in (runs, waits):
        assert (d.job(job).state, d.job(job).reason) == (JobState.QUEUED, Reason.TOO_LARGE)
        assert d.job(job).detail == "there is no node that has T4 devices"
    small = d.submit(asks())
    assert d.job(small).state is JobState.STARTING, "nobody waits for a job that no node suits"
    d.step(seen("t4", ("T4", GPU), ("T4", GPU), boot="b"))
    assert d.job(runs).state is JobState.STARTING
    assert (d.job(waits).state, d.job(waits).reason) == (JobState.QUEUED, Reason.NO_ROOM)


def test_a_plan_for_a_node_that_does_not_suit_is_refused() -> None:
    d = Desk()
    d.step(*NODES)
    d.submit(asks("T4"))
    before = d.state.snapshot()
    for node in (1, 3, 4, 5):
        assert enact(d.state, (Place(1, (Spot(node),)),), d.now) == f"node {node} is none of those that job 1 asks for"
    assert d.state.snapshot() == before
    assert enact(d.state, (Place(1, (Spot(2),)),), d.now) is None


# ---- the index, against a fresh look -------------------------------------------------------------------------------------

NAMES, PLACES = ("n1", "n2", "n3"), st.integers(1, 5)
TRAITS = st.builds(
    Traits,
    st.sampled_from(NAMES),
    st.sampled_from((frozenset(), frozenset(A), frozenset(B))),
    st.sampled_from(("", "A100", "T4")),
    st.sampled_from((0, GPU, 40_960)),
)
WANTS = st.builds(
    asks,
    st.sampled_from(("", "A100", "T4")),
    st.sampled_from((0, GPU, 40_960)),
    names=st.sampled_from(((), ("n1",), ("n1", "n2"))),
    labels=st.sampled_from(((), A, B)),
    excluded=st.sampled_from(((), ("n1",), ("n3",))),
)
CHANGES = st.lists(st.one_of(st.tuples(PLACES, TRAITS), st.tuples(PLACES, st.none())), max_size=12)


@given(CHANGES, st.lists(WANTS, min_size=1, max_size=4))
def test_what_is_kept_is_what_a_fresh_look_finds(
    changes: Sequence[tuple[int, Traits | None]], wants: Sequence[JobSpec]
) -> None:
    index, there = SuitableNodes(), dict[int, Traits]()
    for node, new in changes:
        index.set_node(node, new)
        if new is None:
            there.pop(node, None)
        else:
            there[node] = new
        for want in wants:
            found, what = index.find(want, 7), node_requirements(want)
            if what is None:
                assert found is None
                continue
            assert found is not None
            fresh = {number for number, one in there.items() if suits(one, what)}
            assert {number for number in range(found.bits.bit_length()) if found.bits >> number & 1} == fresh
            assert {number for number, suitable in enumerate(found.mask) if suitable} == fresh


def test_many_different_wishes_are_not_all_remembered() -> None:
    index = SuitableNodes()
    index.set_node(1, Traits("n1", frozenset(A), "A100", 40_960))
    for memory in range(1, 1_000):
        found = index.find(asks(memory=memory), 1)
        assert found is not None
        assert found.bits == 0b10
    assert len(index._known) <= 256


def test_what_a_device_row_says_is_what_counts() -> None:
    """Rows are put one by one as the state is loaded; the traits follow each."""
    d = site(NODES[0])
    node = d.node("a100").id
    device = d.state.devices.rows[node, 0]
    assert isinstance(device, NodeDevice)
    with d.state.supposing():
        d.state.put(d.state.devices, (node, 0), with_changes(device, model="H100"))
        assert among(d, asks("A100")) == set()
    assert among(d, asks("A100")) == {"a100"}
