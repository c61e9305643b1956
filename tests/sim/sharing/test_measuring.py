"""What simulated nodes measure of runs reaches the engine as from live agents, and only while somebody asks."""

from statistics import fmean, pstdev

from scheduler_service.core.messages import MiniBatchMeasured
from scheduler_service.sim.sharing.kinds import GANDIVA, TABLE_1
from scheduler_service.sim.world import Site, World
from tests.sim.building import MINUTE, Listed
from tests.sim.sharing.building import PAPER, job, node, packing, slow, turns


def measured(*jobs, setup=None, policy=turns, until: float = 20, asked: int | None = 0):  # type: ignore[no-untyped-def]
    """The world after so many minutes, and what was told until then."""
    world = World(Site((node(),), policy, sharing=setup or slow(0, every=60)), Listed(list(jobs)))
    world.agents._asked = lambda: asked
    told: list[MiniBatchMeasured] = []
    happened = world.agents.advance_to

    def listen(now, gathering=False):  # type: ignore[no-untyped-def]
        events = happened(now, gathering)
        told.extend(event for event in events if isinstance(event, MiniBatchMeasured))
        return events

    world.agents.advance_to = listen  # type: ignore[method-assign]
    while (at := world.next_us()) is not None and at <= until * MINUTE:
        world.advance(at)
    return world, told


def test_without_a_question_nobody_measures() -> None:
    assert measured(job(30, kind="rhn"), setup=PAPER)[1] == []
    assert measured(job(30, kind="rhn"), asked=None)[1] == []


def test_nodes_wait_for_as_long_as_the_policy_says() -> None:
    _, told = measured(job(30, kind="rhn"), asked=5 * MINUTE)
    assert len(told) == 4, "after 1, 6, 11 and 16 minutes"


def test_each_minute_the_time_of_a_mini_batch_alone() -> None:
    world, told = measured(job(30, kind="rhn"))
    assert len(told) == 20
    assert {event.mini_batch_us for event in told} == {GANDIVA["rhn"].mini_batch_us}
    assert {event.utilisation_ppm for event in told} == {616_000}
    assert world.state.jobs.rows[1].profile.mini_batch_us == GANDIVA["rhn"].mini_batch_us


def test_time_in_which_a_run_is_parked_does_not_count() -> None:
    _, told = measured(job(30, kind="rhn"), job(30, kind="rhn"), until=10)
    assert {event.mini_batch_us for event in told} == {GANDIVA["rhn"].mini_batch_us}
    assert {event.key.job_id for event in told} == {1, 2}


def test_the_time_of_a_packed_job_is_longer_and_the_device_is_busier() -> None:
    _, told = measured(job(30, kind="rhn"), job(30, kind="rhn"), policy=packing, until=10)
    longer = 2 * TABLE_1["rhn"].alone / TABLE_1["rhn"].packed
    assert all(abs(event.mini_batch_us / GANDIVA["rhn"].mini_batch_us - longer) < 1e-4 for event in told)
    assert all(abs(event.utilisation_ppm / (2 * 616_000 / longer) - 1) < 1e-4 for event in told)


def test_noise_is_of_the_size_that_was_asked_for() -> None:
    _, told = measured(job(2000, kind="rhn"), setup=slow(0, every=60, noise=0.05), until=1000)
    times = [event.mini_batch_us / GANDIVA["rhn"].mini_batch_us for event in told]
    assert abs(fmean(times) - 1) < 0.01
    assert 0.04 < pstdev(times) < 0.06


def test_a_job_of_an_unknown_kind_is_not_measured() -> None:
    assert measured(job(30))[1] == []
