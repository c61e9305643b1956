"""Simulated nodes execute share plans: turns, packed jobs, and what each costs."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.messages import DrainRequested, RequeueRequested, ResumeRequested, SuspendRequested
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.sim.failures import Failure, Outages
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.nodes import node_name
from scheduler_service.sim.sharing.kinds import TABLE_1
from scheduler_service.sim.sharing.metrics import steps
from scheduler_service.sim.sharing.model import BILLION, gandiva
from scheduler_service.sim.sharing.setup import Setup, Switching
from scheduler_service.sim.sharing.usage import MINI_BATCHES
from scheduler_service.sim.world import World
from tests.sim.building import MINUTE, Listed, right
from tests.sim.sharing.building import FREE, PAPER, ends, job, node, packing, slow, turns, worked_us, world

TURN_US = 60 * SECOND


def integral(of: World) -> float:
    """What all jobs did, times their devices, in microseconds."""
    level = steps(of.agents.executing.usage.working)
    return float((level._durations() * level.level.astype(float)).sum()) / BILLION


# ---- turns -------------------------------------------------------------------------------------------------------------


def test_two_jobs_on_one_device_take_twice_as_long() -> None:
    assert ends(world([job(10), job(10)], node())) == [20, 20]


def test_whoever_is_left_has_the_device_alone_again() -> None:
    assert ends(world([job(10), job(4)], node())) == [14, 8]


def test_a_job_that_comes_later_takes_half_from_then_on() -> None:
    assert ends(world([job(10), job(3, at=4)], node())) == [13, 10]


def test_with_exact_slices_a_job_works_only_in_its_turns() -> None:
    done = world([job(10), job(2)], node(), setup=replace(PAPER, exact=True))
    assert ends(done) == [12, 4]
    done = world([job(10), job(1.5)], node(), setup=replace(PAPER, exact=True))
    assert ends(done) == [11.5, 3.5], "the short job has the second and half of the fourth minute"


def test_each_change_of_turns_costs_what_parking_and_resuming_take() -> None:
    """Each turn of a minute loses 3 s, so a cycle of 2 minutes gives each job 57 s."""
    done = world([job(57), job(57)], node(), setup=slow(1.5))
    assert ends(done) == [120, 120]
    level = steps(done.agents.executing.usage.lost)
    assert (level._durations() * level.level).sum() / BILLION == 120 * 3 * SECOND


def test_exact_slices_cost_the_same() -> None:
    fluid, exact = (world([job(58), job(58)], node(), setup=slow(1, exact)) for exact in (False, True))
    assert ends(exact) == pytest.approx(ends(fluid), abs=2 * TURN_US / MINUTE)
    assert exact.agents.executing.usage.parks == pytest.approx(119, abs=1)
    assert fluid.agents.executing.usage.parks == pytest.approx(120, abs=1)


def test_the_longer_of_two_parks_counts() -> None:
    """A language model has more memory to move than an image model, and its successor waits for that."""
    moving = Setup(gandiva(interference=False), PAPER.switching._replace(copy_us=SECOND))
    done = world([job(10, kind="lstm"), job(10, kind="vae")], node(), setup=moving)
    lost_us = 2 * (512 + 32) * SECOND // 1024
    each = (2 * TURN_US - lost_us) / (4 * TURN_US)
    assert ends(done) == pytest.approx([10 / each] * 2, abs=1e-6)


def test_a_gang_has_its_turn_on_all_nodes_together() -> None:
    """Its tasks are on two nodes. Whoever shares with one of them takes its time from all."""
    done = world([job(10, gpus=1, tasks=2), job(10)], node(), node())
    assert sorted(ends(done)) == [20, 20]


def test_two_gangs_on_two_nodes_change_turns_at_the_same_time() -> None:
    """In the first minute both tasks of the one execute, and in the second one both tasks of the other."""
    done = world([job(10, tasks=2), job(10, tasks=2)], node(), node(), setup=replace(PAPER, exact=True))
    assert ends(done) == [19, 20]


def test_six_jobs_on_four_devices_lose_less_than_two_per_cent() -> None:
    """Figure 9. A run stays on its device, so two of the four long jobs have theirs to themselves."""
    of = "resnet-50-cifar"
    jobs = [job(100, kind=of) for _ in range(4)] + [job(20, at=25, kind=of) for _ in range(2)]
    done = world(jobs, node(4), setup=slow(0.05))
    level = steps(done.agents.executing.usage.working)
    rate = level.mean(30 * MINUTE, 60 * MINUTE) / BILLION
    assert 4 * 0.98 < rate < 4
    assert sorted(ends(done)) == pytest.approx([65, 65, 100, 100, 120, 120], abs=0.1)


# ---- packed ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLE_1)
def test_two_packed_jobs_have_the_rates_of_the_model(name: str) -> None:
    together = min(2 * TABLE_1[name].alone, TABLE_1[name].packed) / TABLE_1[name].alone
    done = world([job(30, kind=name), job(30, kind=name)], node(), policy=packing)
    assert ends(done) == pytest.approx([60 / together] * 2, rel=1e-6)
    assert done.agents.executing.usage.packings == 2


def test_a_packed_job_is_as_fast_as_alone_once_it_is_alone() -> None:
    rate = TABLE_1["rhn"].packed / TABLE_1["rhn"].alone / 2
    done = world([job(30, kind="rhn"), job(10, kind="rhn")], node(), policy=packing)
    assert ends(done) == pytest.approx([20 + 10 / rate, 10 / rate], rel=1e-6)


def test_the_utilisation_of_packed_jobs_is_that_of_both() -> None:
    done = world([job(10, kind="vae"), job(10, kind="super-resolution")], node(), policy=packing)
    assert steps(done.agents.executing.usage.utilised).mean(0, 10 * MINUTE) == pytest.approx(87_000 + 141_000)


# ---- places and neighbours ---------------------------------------------------------------------------------------------


def test_a_job_whose_devices_are_apart_is_slower() -> None:
    """Each GPU of the node is on a socket of its own: VGG16 has 60 % of its rate there (Figure 1)."""
    done = world([job(6, kind="vgg16", gpus=2)], node(2, tree=("socket", "switch")))
    assert ends(done) == [10]


def test_neighbours_slow_each_other_down_while_both_execute() -> None:
    """Two language models on one node lose 19 % each (Figure 3)."""
    jobs = [job(81, kind="language-model"), job(8.1, kind="language-model")]
    done = world(jobs, node(2), setup=Setup(gandiva()))
    assert ends(done) == pytest.approx([10 + 81 - 8.1, 10], abs=1e-6)


# ---- stops and failures ------------------------------------------------------------------------------------------------


def test_a_node_that_dies_takes_what_its_members_did_in_their_turns() -> None:
    outages = Outages((Failure(1, 10 * MINUTE, 12 * MINUTE),), 0)
    done = world([job(20), job(20)], node(), outages=outages)
    assert [life.lost_us for life in done.lives.values()] == [5 * MINUTE] * 2


# ---- properties --------------------------------------------------------------------------------------------------------

KINDS = st.sampled_from(["", *TABLE_1, "vgg16", "language-model"])
JOBS = st.lists(st.builds(job, st.floats(0.01, 30), st.floats(0, 30), KINDS, st.integers(1, 2)), min_size=1, max_size=8)


@given(JOBS)
@settings(max_examples=40, deadline=None)
def test_jobs_that_share_nothing_end_as_if_nothing_could_be_shared(jobs: list[SimJob]) -> None:
    nodes = [node(2) for _ in jobs]
    assert ends(world(jobs, *nodes, setup=FREE)) == ends(world(jobs, *nodes, setup=None))


@given(JOBS, st.booleans(), st.booleans(), st.sampled_from([0.0, 0.05, 20.0]))
@settings(max_examples=60, deadline=None)
def test_what_is_done_is_the_integral_of_the_rates(jobs: list[SimJob], exact: bool, packed: bool, parks: float) -> None:
    done = world(jobs, node(2), setup=slow(parks, exact), policy=packing if packed else turns)
    lives = list(done.lives.values())
    assert all(life.end_us is not None for life in lives)
    assert integral(done) == pytest.approx(worked_us(lives), rel=1e-9, abs=4 * len(lives))


@given(JOBS, st.booleans())
@settings(max_examples=20, deadline=None)
def test_the_same_jobs_give_the_same_history(jobs: list[SimJob], exact: bool) -> None:
    first, second = (world(jobs, node(2), setup=slow(0.1, exact, every=60, noise=0.1)) for _ in range(2))
    assert ends(first) == ends(second)
    assert first.agents.executing.usage == second.agents.executing.usage


@given(JOBS)
@settings(max_examples=20, deadline=None)
def test_fluid_and_exact_slices_differ_by_some_cycles_at_most(jobs: list[SimJob]) -> None:
    fluid, exact = (world(jobs, node(2), setup=slow(0, exact)) for exact in (False, True))
    assert max(ends(exact)) == pytest.approx(max(ends(fluid)), abs=(len(jobs) + 1) * len(jobs))


# ---- early feedback ----------------------------------------------------------------------------------------------------


def test_the_time_of_the_first_hundred_mini_batches_counts_from_the_submit() -> None:
    done = world([job(30, kind="rhn"), job(30, at=1, kind="rhn")], node(), setup=replace(PAPER, exact=True))
    hundred_s = MINI_BATCHES / TABLE_1["rhn"].alone
    early = [done.agents.executing.usage.early_us[number] / SECOND for number in (1, 2)]
    assert early == pytest.approx([hundred_s, 60 + hundred_s], rel=1e-4)


def test_a_world_under_way_has_no_time_for_jobs_that_have_done_less() -> None:
    under_way = World(world([job(30, kind="rhn")], node()).site, Listed([job(30, kind="rhn")]))
    while (at := under_way.next_us()) is not None and at < MINUTE:
        under_way.advance(at)
    assert under_way.agents.executing.usage.early_us == {}


# ---- parked by users ---------------------------------------------------------------------------------------------------


def test_a_run_that_its_user_parks_does_nothing_until_it_goes_on_and_its_neighbour_is_faster() -> None:
    of = "language-model"
    made = World(world([], node(2), setup=Setup(gandiva())).site, Listed([job(81, kind=of), job(81, kind=of)]))
    for at, request in ((10, SuspendRequested(1, park=True)), (20, ResumeRequested(1))):
        while (soon := made.next_us()) is not None and soon < at * MINUTE:
            made.advance(soon)
        made.now = at * MINUTE
        made._take_step([request], ())
    made.run()
    first, second = made.lives.values()
    right(first)
    right(second)
    assert first.launches[0].parked == (10 * MINUTE, 20 * MINUTE)
    assert second.end_us == pytest.approx((20 + (81 - 8.1 - 10) / 0.81) * MINUTE, abs=2), "10 minutes alone"
    done_then = (second.end_us / MINUTE - 10) * 0.81
    assert first.end_us == pytest.approx(second.end_us + (81 - done_then) * MINUTE, abs=2)


@pytest.mark.parametrize(("memory_mib", "parked"), [(499, False), (500, True), (500_000, True)])
def test_what_a_park_moves_takes_memory_of_its_node(memory_mib: int, parked: bool) -> None:
    """500 MiB of a language model on one device. Where there is no room for that, the job saves its work and leaves."""
    bare = node(2)
    inventory = replace(bare, capacity=bare.capacity._replace(memory_mib=memory_mib))
    one = job(81, kind="language-model")
    one = one._replace(spec=with_changes(one.spec, demand=Vector(0, 0, 1)))
    made = World(world([], inventory, setup=Setup(gandiva())).site, Listed([one]))
    while (soon := made.next_us()) is not None and soon < 10 * MINUTE:
        made.advance(soon)
    made.now = 10 * MINUTE
    made._take_step([SuspendRequested(1, park=True)], ())
    while (soon := made.next_us()) is not None:
        made.advance(soon)
    runs = made.state.runs_of(1)
    assert [run.parked_mib for run in runs if run.is_parked] == ([500] if parked else [])
    assert made.state.free_resources.free(1).memory_mib == memory_mib - (500 if parked else 0)
    assert bool(runs) == parked


# ---- moved to another node ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "transferred"), [(1, 0), (2, 2)])
def test_a_stopped_job_saves_one_copy_and_moves_it_to_its_next_node(number: int, transferred: float) -> None:
    """GNMT has 800 MiB: 1 s to save and 1 s to copy that, 2 s to move it, 4 s to start and 1 s to copy it back."""
    second = SECOND * 1024 // 800
    switching = Switching(copy_us=second, save_us=SECOND, transfer_us=2 * second, start_us=4 * SECOND)
    setup = Setup(gandiva(), switching)
    made = World(world([], node(), node(), setup=setup).site, Listed([job(30, kind="gnmt")]))
    while (soon := made.next_us()) is not None and soon < 10 * MINUTE:
        made.advance(soon)
    made.now = 10 * MINUTE
    drain = [DrainRequested(node_name(1), "for a test", "ann")] if number == 2 else []
    made._take_step([*drain, RequeueRequested(1)], ())
    made.run()
    (life,) = made.lives.values()
    right(life)
    assert [launch.nodes for launch in life.launches] == [(1,), (number,)]
    assert life.end_us == pytest.approx(30 * MINUTE + (1 + 1 + transferred + 4 + 1) * SECOND, abs=5)
