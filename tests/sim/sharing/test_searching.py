"""A user who searches for one configuration among many: what is stopped, who has a device alone, and when it is found."""

import pytest

from reproduction.gandiva import shared as gandiva_shared
from reproduction.gandiva.plan import servers
from scheduler_service.core.model import JobState, StopReason
from scheduler_service.core.model.values import SECOND
from scheduler_service.sim.experiments.cases import Case, simulate, site_of
from scheduler_service.sim.searching import LOOKS_US, Search, Searches, numbers
from scheduler_service.sim.sharing.config import Sharing
from scheduler_service.sim.site import Policy
from scheduler_service.sim.workloads import GandivaSearch, GandivaShared, GandivaTrace
from scheduler_service.sim.workloads.gandiva_search import EVALUATIONS, NO_PROMISE, configurations, jobs
from scheduler_service.sim.world import World

MINUTE = 60 * SECOND
DIGEST_BEFORE = "af498205c871a3ee"
FIFO, GANDIVA = Policy(name="fifo"), Policy(name="gandiva", settings=(("packing", 0.0), ("growth", 0.0)))


def case(workload: GandivaSearch, policy: Policy) -> Case:
    return Case(cluster=(servers(1, "p40", 24),), workload=workload, policy=policy, sharing=Sharing(interference=False))


def test_as_many_jobs_as_gpus_come_at_once_and_more_with_each_evaluation() -> None:
    model = GandivaSearch(jobs=9, position=9, gpus=4, more=2, evaluation_min=2)
    assert [job.submit_us / MINUTE for job in jobs(model)] == [0, 0, 0, 0, 2, 2, 4, 4, 6]
    assert {job.work_us for job in jobs(model)} == {round(EVALUATIONS * 2 * MINUTE)}


def test_configurations_depend_on_the_seed_alone_and_the_right_one_is_the_best() -> None:
    model = GandivaSearch(jobs=374, position=93)
    found = configurations(model, 1)
    assert found == configurations(model, 1) != configurations(model, 2)
    assert max(found, key=lambda number: found[number].accuracy) == 93
    promising = sum(one.accuracy >= NO_PROMISE for one in found.values()) / len(found)
    assert promising == pytest.approx(model.promising, abs=0.08)


def test_a_position_must_be_one_of_the_configurations() -> None:
    with pytest.raises(ValueError, match="there are 10 configurations, and no number 11"):
        GandivaSearch(jobs=10, position=11)


def test_with_fifo_poor_configurations_leave_after_one_evaluation() -> None:
    model = GandivaSearch(jobs=12, position=12, gpus=4, more=4, evaluation_min=2, promising=0, found_after=0.5)
    made = simulate(case(model, FIFO))
    rounds, known_us = 2, model.found_after * EVALUATIONS * model.evaluation_us
    latest_us = rounds * (model.evaluation_us + LOOKS_US) + known_us + LOOKS_US
    found_us = made.summary["search.found_min"] * MINUTE
    assert rounds * model.evaluation_us + known_us <= found_us <= latest_us
    assert made.summary["search.explored"] == 12
    assert made.summary["search.promotions"] == 0


@pytest.fixture(scope="module")
def wide() -> GandivaSearch:
    return GandivaSearch(jobs=40, position=30, gpus=4, more=2, evaluation_min=2, promising=0.5)


def test_with_turns_and_priorities_it_is_found_much_sooner(wide: GandivaSearch) -> None:
    first = simulate(case(wide, FIFO)).summary
    prioritised = wide.model_copy(update={"exclusive": 2, "live": 8})
    then = simulate(case(prioritised, GANDIVA)).summary
    assert then["search.found_min"] < first["search.found_min"] / 2
    assert then["search.explored"] / then["search.found_min"] > 2 * first["search.explored"] / first["search.found_min"]


def test_the_best_have_their_devices_alone(wide: GandivaSearch) -> None:
    model = wide.model_copy(update={"exclusive": 2, "live": 8})
    of = case(model, GANDIVA)
    search = Search(model, 1)
    world = World(site_of(of, of.inventories()), search, user=search)
    seen = alone = 0
    while (at := world.next_us()) is not None:
        world.advance(at)
        best = [job for job in world.state.jobs.rows.values() if job.priority and job.state is JobState.RUNNING]
        assert len(best) <= model.exclusive
        seen += len(best)
        alone += sum(not run.group for job in best for run in world.state.runs_of(job.id))
        for job in best:
            for run in world.state.runs_of(job.id):
                mates = world.state.share_groups.rows[run.group].members() if run.group else ()
                others = [world.state.jobs.rows[key.job_id] for key in mates if key.job_id != job.id]
                assert all(other.suspend_requested or other.state is not JobState.RUNNING for other in others)
    assert alone > 0.9 * seen > 0
    told = dict(numbers(search))
    assert told["search.promotions"] >= 2
    assert all(life.end_us is not None for life in world.lives.values()), "the user cancels what is left"


# ---- beside others -----------------------------------------------------------------------------------------------------


def shared(policy: str) -> Case:
    """Two searches of one server each, and others who have one and fill all three."""
    (one,) = gandiva_shared.cases(days=0.1, at_min=60, seeds=[1])[policy]
    small = GandivaSearch(jobs=6, position=5, gpus=6, evaluation_min=2, promising=0.5, job_gpus=2, job_kind="vgg16")
    if policy == "gandiva":
        small = small.model_copy(update={"exclusive": 1, "live": 4})
    owns = (("p100-2x1x2", (("node", 1),)),)
    workload = GandivaShared(others=GandivaTrace(jobs=40, days=0.1, gpus=12, load=2), searches=(small, small), at_min=60)
    tenants = tuple(vc.model_copy(update={"owns": owns}) for vc in one.virtual_clusters)
    return one.model_copy(update={"cluster": (servers(3, "p100", 16),), "workload": workload, "virtual_clusters": tenants})


@pytest.mark.parametrize("policy", ["fifo", "gandiva"])
def test_searches_have_their_own_cells_which_are_reclaimed_from_others(policy: str) -> None:
    of = shared(policy)
    searches = Searches(of.workload, of.seed)  # type: ignore[arg-type]
    world = World(site_of(of, of.inventories()), searches, user=searches)
    before: set[int] = set()
    while (at := world.next_us()) is not None:
        world.advance(at)
        runs = world.state.runs.rows.values()
        if at < 60 * MINUTE:
            before = {run.node for run in runs}
        else:
            nodes = {vc: {run.node for run in runs if run.vc == vc} for vc in ("search-1", "search-2")}
            assert all(len(some) <= 1 for some in nodes.values()), "each has four GPUs"
    assert before == {1, 2, 3}, "others run in idle cells until then"
    told = dict(numbers(searches))
    assert all(told[f"search.{number}.found_min"] > 0 for number in (1, 2))
    assert all(life.end_us is not None for life in world.lives.values()), "nobody goes on once both are over"
    reclaimed = [launch for life in world.lives.values() for launch in life.launches if launch.why is StopReason.RECLAIMED]
    assert reclaimed


def test_turns_find_it_sooner_on_a_loaded_cluster_too() -> None:
    first, then = (simulate(shared(policy)).summary for policy in ("fifo", "gandiva"))
    assert all(then[f"search.{number}.found_min"] < first[f"search.{number}.found_min"] for number in (1, 2))


def test_searches_beside_others_are_virtual_clusters() -> None:
    with pytest.raises(ValueError, match="searches and others are virtual clusters"):
        Case(cluster=(servers(3, "p100", 16),), workload=GandivaShared(), sharing=Sharing())


def test_results_of_searches_from_before_jobs_could_have_several_gpus_are_still_valid() -> None:
    plain = case(GandivaSearch(), FIFO)
    assert plain.digest() == DIGEST_BEFORE
    assert case(GandivaSearch(job_gpus=2), FIFO).digest() != plain.digest()
