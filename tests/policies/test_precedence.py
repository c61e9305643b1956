"""Who waits for whom: a job holds up others only where they could delay it.

The property is the same for every policy: take a job away that waits, and those jobs that would then start on nodes that it
could not use start with the job there, too, unless one before them took that room. Clusters are small, of different nodes, some
of them closed; the jobs are of both classes, some are gangs, name nodes, or have a time limit.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from typing import NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from scheduler_service.core.messages import DrainRequested, Event, HoldRequested, Submitted, UndrainRequested
from scheduler_service.core.model import JobClass, JobSpec, JobState, NodeSelector, Reason, TaskGroup
from scheduler_service.core.model.configurations import ANY_NODE
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector, add, fits
from scheduler_service.policies import registry
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.stages import Stages
from tests.core.driver import Driver, spec
from tests.core.specs import gang_of
from tests.thorough import examples

LARGE, SMALL, CPUS = Vector(16_000, 16_384, 4), Vector(8_000, 8_192, 2), Vector(8_000, 8_192, 0)
SETTINGS = PreemptionSettings(cap=1)
SITES: dict[str, Stages] = {
    f"{name}{'-backfilled' * filled}": stages(name, SETTINGS, filled)
    for name in registry.for_sites()
    for filled in ((False, True) if name in ("fifo", "fitgpp", "fair") else (False,))
}


class Drawn(NamedTuple):
    nodes: Sequence[Vector]
    closed: frozenset[int]
    """Those of the nodes that are drained before the head comes."""
    running: Sequence[JobSpec]
    head: JobSpec
    others: Sequence[JobSpec]


DEMANDS = st.builds(
    Vector, st.sampled_from((500, 1000, 4000)), st.sampled_from((256, 2048)), st.sampled_from((0, 1, 1, 2, 2, 4))
)
NAMED = st.sampled_from((ANY_NODE, ANY_NODE, NodeSelector(("n0",)), NodeSelector(("n1",)), NodeSelector(("n0", "n2"))))


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    groups: tuple[TaskGroup, ...] = ()
    demand = draw(DEMANDS)
    if draw(st.integers(0, 5)) == 0:
        groups, demand = gang_of([TaskGroup(draw(st.integers(2, 3)), draw(DEMANDS))])
    return JobSpec(
        ("true",),
        demand,
        draw(st.sampled_from((JobClass.BEST_EFFORT, JobClass.BEST_EFFORT, JobClass.TRIAL))),
        gang=groups,
        nodes=draw(NAMED),
        time_limit_us=draw(st.sampled_from((0, 0, 10, 100, 1000))) * SECOND,
    )


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    nodes = draw(st.lists(st.sampled_from((LARGE, SMALL, CPUS)), min_size=3, max_size=4))
    return Drawn(
        nodes,
        draw(st.frozensets(st.integers(0, len(nodes) - 1), max_size=2)),
        draw(st.lists(specs(), max_size=6)),
        draw(specs()),
        draw(st.lists(specs(), min_size=1, max_size=4)),
    )


def usable(d: Driver, spec: JobSpec) -> set[int]:
    """The open nodes that could take a task of the job if they were empty, found by a look at each."""
    found = set()
    for name, node in d.state.node_ids.items():
        row = d.state.nodes.rows[node]
        named = not spec.nodes.names or name in spec.nodes.names
        if named and row.drained_us is None and any(fits(task, row.capacity) for task in spec.tasks()):
            found.add(node)
    return found


def built(of: Drawn, site: Stages, with_head: bool) -> tuple[Driver, int, list[int]]:
    """The cluster after all have come: with the head, or with the head held back by its user."""
    d = Driver(site.policy, cap=SETTINGS.cap, order=order_of(site))
    d.settles = False
    d.step(*(d.seen(f"n{i}", node) for i, node in enumerate(of.nodes)))
    for job in of.running:
        d.step(Submitted("ann", "", with_changes(job, nodes=ANY_NODE)))
    for job_id in [run.job_id for run in list(d.state.runs.rows.values()) if not d.job(run.job_id).spec.gang]:
        d.start(job_id)
    waiting = [job_id for job_id, job in d.state.jobs.rows.items() if job.state is JobState.QUEUED]
    events: list[Event] = [DrainRequested(f"n{i}", "", "op") for i in sorted(of.closed)]
    d.step(*events, *(HoldRequested(job) for job in waiting))
    head = d.state.cluster.next_job
    events = [Submitted("ann", "", with_changes(of.head, priority=9))]
    events += [] if with_head else [HoldRequested(head)]
    others = list(range(head + 1, head + 1 + len(of.others)))
    d.step(*events, *(Submitted("ann", "", other) for other in of.others))
    return d, head, others


def served_on(d: Driver, job: int) -> set[int]:
    """The nodes on which it runs, or is to run as soon as others have left."""
    earmarks = (d.state.earmarks.rows[i] for i in d.state.earmarks_of.get(job, ()))
    return {run.node for run in d.state.runs_of(job)} | {earmark.node for earmark in earmarks}


@pytest.mark.parametrize("site", SITES)
def test_what_would_start_without_the_head_on_nodes_that_it_cannot_use_starts_with_it(site: str) -> None:
    @settings(max_examples=examples(8))
    @given(drawn())
    def holds(of: Drawn) -> None:
        d, head, others = built(of, SITES[site], with_head=True)
        job = d.state.jobs.rows.get(head)
        if job is None or len(others) != len(of.others) or job.state is not JobState.QUEUED or head in d.state.earmarks_of:
            return  # refused, or it does not wait
        without, _, _ = built(of, SITES[site], with_head=False)
        taken: set[int] = set()
        for other in others:
            there, here = served_on(without, other), served_on(d, other)
            if there and not there & usable(d, job.spec) and not here:
                assert there & taken, (
                    f"job {other} would start on nodes {there} without job {head}, which waits for {usable(d, job.spec)}"
                )
            taken |= here | there

    holds()


class Full(NamedTuple):
    """A node with four devices, jobs that hold these, one that waits for some, and jobs without devices behind it."""

    holders: Sequence[Vector]
    head: Vector
    behind: Sequence[Vector]


def amounts(devices: st.SearchStrategy[int], *cpus: int) -> st.SearchStrategy[Vector]:
    return st.builds(
        lambda cpu, gib, of: Vector(cpu * 1000, gib * 1024, of), st.sampled_from(cpus), st.sampled_from((1, 2)), devices
    )


FULL = st.builds(
    Full,
    st.sampled_from(((1, 1, 1, 1), (1, 1, 2), (2, 2), (1, 3), (4,))).flatmap(
        lambda parts: st.tuples(*(amounts(st.just(devices), 0, 1, 3, 4) for devices in parts))
    ),
    amounts(st.integers(1, 4), 4, 6, 8, 12, 16),
    st.lists(amounts(st.just(0), 1, 2, 4), min_size=1, max_size=3),
)


@pytest.mark.parametrize("site", ["fifo", "fifo-backfilled", "fitgpp", "fair"])
def test_jobs_without_devices_delay_no_job_that_waits_for_devices_whoever_ends_first(site: str) -> None:
    @given(FULL)
    def holds(of: Full) -> None:
        d = cluster(site, LARGE)
        for need in of.holders:
            d.submit(with_changes(spec(), demand=need))
        holders = [run.job_id for run in d.state.runs.rows.values()]
        d.start(*holders)
        head = d.submit(with_changes(spec(), demand=of.head))
        if len(holders) != len(of.holders) or d.job(head).state is not JobState.QUEUED:
            return
        without = d.state.free_resources.free(1)
        for need in of.behind:
            d.submit(with_changes(spec(), demand=need))
        beside = d.state.free_resources.free(1)
        event(f"{sum(run.job_id > head for run in d.state.runs.rows.values())} start behind it")
        demands = [d.job(job).spec.demand for job in holders]
        for count in range(len(demands) + 1):
            for ended in combinations(demands, count):
                if fits(of.head, reduce(add, ended, without)):
                    assert fits(of.head, reduce(add, ended, beside)), f"it starts later once {ended} have ended"

    holds()


# ---- one by one ----------------------------------------------------------------------------------------------------------

TWO = ("fifo", "fifo-backfilled", "fitgpp", "fitgpp-backfilled", "thrifty", "lrtp", "las", "fair", "allox", "gandiva")


def cluster(site: str, *nodes: Vector) -> Driver:
    d = Driver(SITES[site].policy, cap=SETTINGS.cap, order=order_of(SITES[site]))
    d.settles = False
    for i, node in enumerate(nodes or (LARGE, LARGE)):
        d.join(f"n{i}", node)
    return d


def on(name: str, **more: object) -> JobSpec:
    return with_changes(spec(**more), nodes=NodeSelector((name,)))  # type: ignore[arg-type]


@pytest.mark.parametrize("site", TWO)
@pytest.mark.parametrize("trial", [False, True])
def test_a_job_for_a_closed_node_waits_aside_and_has_its_place_again_when_the_node_opens(site: str, trial: bool) -> None:
    d = cluster(site)
    d.step(DrainRequested("n0", "", "op"))
    pinned = d.submit(on("n0", devices=4, trial=trial))
    assert (d.job(pinned).reason, d.job(pinned).detail) == (Reason.NODES_CLOSED, "waits for node n0, which is drained")
    others = d.submit(devices=2), d.trial(2)
    assert d.states(*others) == [JobState.STARTING] * 2
    d.silence("n0")
    assert d.job(pinned).detail == "waits for node n0, which is drained"
    d.step(UndrainRequested("n0"))
    assert d.job(pinned).detail == "waits for node n0, which is silent"
    later = d.submit(on("n0", devices=4, trial=trial))
    d.join("n0", LARGE)
    assert d.states(pinned, later) == [JobState.STARTING, JobState.QUEUED], "in the order in which they came"


@pytest.mark.parametrize("site", TWO)
def test_nothing_waits_for_a_job_that_only_a_faulty_device_keeps_from_starting(site: str) -> None:
    d = cluster(site)
    d.faulty({1: "XID 79"}, "n0")
    head = d.submit(on("n0", devices=4))
    assert d.job(head).detail == "waits for node n0, which has faulty devices (1 of 4)"
    assert d.job(d.submit(on("n0", devices=3))).state is JobState.STARTING
    d.faulty({}, "n0")
    assert d.job(head).reason is not Reason.NODES_CLOSED


@pytest.mark.parametrize("site", TWO)
def test_a_gang_that_the_open_nodes_together_could_not_take_waits_aside(site: str) -> None:
    d = cluster(site, LARGE, LARGE)
    groups, demand = gang_of([TaskGroup(2, Vector(1000, 1024, 4))])
    d.step(DrainRequested("n1", "", "op"))
    gang = d.submit(with_changes(spec(), gang=groups, demand=demand))
    assert d.job(gang).reason is Reason.NODES_CLOSED
    assert d.job(d.submit(devices=4)).state is JobState.STARTING


@pytest.mark.parametrize("site", TWO)
@pytest.mark.parametrize("trial", [False, True])
def test_a_job_starts_on_an_idle_node_behind_one_that_asks_for_a_node_in_use(site: str, trial: bool) -> None:
    d = cluster(site)
    d.start(d.submit(on("n0", devices=3, trial=True)))
    head = d.submit(on("n0", devices=4, trial=trial))
    beside = d.submit(devices=1)
    assert d.states(head, beside) == [JobState.QUEUED, JobState.STARTING]
    if site not in ("las", "allox"):
        assert d.where(beside).name == "n1", "it would delay the head on n0"


@pytest.mark.parametrize("site", TWO)
@pytest.mark.parametrize("trial", [False, True])
def test_a_job_without_devices_starts_beside_one_that_waits_for_devices_if_it_leaves_enough(site: str, trial: bool) -> None:
    d = cluster(site, LARGE)
    d.start(d.submit(devices=4, trial=True))
    d.submit(devices=1, trial=trial, cpu=2000)
    small, large = d.submit(devices=0, cpu=12_000), d.submit(devices=0, cpu=2000)
    assert d.job(small).state is JobState.STARTING, "15 of 16 CPUs are free, and the head needs 2"
    if site not in ("las", "allox"):
        assert d.job(large).state is JobState.QUEUED


@pytest.mark.parametrize("site", ["fifo", "fifo-backfilled", "fitgpp", "fitgpp-backfilled", "thrifty", "lrtp", "fair"])
@pytest.mark.parametrize("trial", [False, True])
@pytest.mark.parametrize("devices", [1, 4])
def test_of_cpus_that_come_with_the_devices_it_waits_for_nothing_is_kept_for_a_job(
    site: str, trial: bool, devices: int
) -> None:
    d = cluster(site, LARGE)
    d.start(d.submit(devices=4, cpu=12_000, trial=True))
    head = d.submit(devices=devices, trial=trial, cpu=3_000 * devices)
    assert d.job(d.submit(devices=0, cpu=2_000)).state is JobState.STARTING
    assert d.job(d.submit(devices=0, cpu=3_000)).state is JobState.QUEUED, "2 CPUs are free"
    assert d.job(head).state is JobState.QUEUED


def test_what_comes_with_faulty_devices_is_kept_since_they_may_recover_without_it() -> None:
    d = cluster("fifo", LARGE)
    d.start(d.submit(devices=3, cpu=12_000))
    d.faulty({3: "XID 79"}, "n0")
    d.submit(devices=1, cpu=3_000)
    assert d.job(d.submit(devices=0, cpu=2_000)).state is JobState.QUEUED


def test_jobs_behind_one_that_waits_for_a_named_node_have_precedence_among_themselves() -> None:
    d = cluster("fifo")
    for node in ("n0", "n1"):
        d.start(d.submit(on(node, devices=2)))
    d.submit(on("n0", devices=4))
    second, third = d.submit(on("n1", devices=4)), d.submit(devices=1)
    assert d.states(second, third) == [JobState.QUEUED] * 2, "the third would delay one or the other"
    assert (d.job(second).reason, d.job(second).cause_job) == (Reason.NO_ROOM, second), "it is behind nobody"
    assert d.job(third).reason is Reason.NONE


def test_a_trial_has_runs_preempted_on_nodes_that_the_trial_before_it_could_not_use() -> None:
    d = cluster("fitgpp")
    d.start(d.submit(on("n0", devices=4, trial=True)), d.submit(on("n1", devices=4)))
    stuck, other, best_effort = d.submit(on("n0", devices=4, trial=True)), d.trial(2), d.submit(on("n1", devices=1))
    assert d.job(stuck).reason is Reason.NOTHING_TO_PREEMPT
    assert d.job(other).reason is Reason.WAITING_FOR_VICTIMS
    assert d.job(best_effort).state is JobState.QUEUED
