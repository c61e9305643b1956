"""Turns get longer if simulated parks and resumes take more than 2 % of them: the same policy, the same measurements."""

import pytest

from scheduler_service.core.invariants import check
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.world import Site, World
from tests.sim.building import MINUTE, Listed
from tests.sim.sharing.building import job, node, slow

HOUR = 60 * MINUTE
TURNS = {"packing": 0.0, "migration": 0.0, "growth": 0.0}


def taking_turns(seconds: float, jobs: list[SimJob], *nodes: object, exact: bool = True, **own: float) -> World:
    """Parks take so many seconds, and resumes as many."""
    made = stages("gandiva", PreemptionSettings(), own={**TURNS, **own})
    setup = slow(seconds, exact, every=60)
    return World(Site(nodes or (node(),), made.policy, order=order_of(made), sharing=setup), Listed(jobs))  # type: ignore[arg-type]


def until(world: World, at_us: Micros) -> None:
    while (at := world.next_us()) is not None and at <= at_us:
        world.advance(at)
        check(world.state)


def done(world: World, at_us: Micros) -> list[Micros]:
    """The work that each job has done by then."""
    return [life.launches[-1].pace.done_us(at_us) for life in world.lives.values() if life.launches[-1].pace is not None]


def period_s(world: World) -> float:
    (group,) = world.state.share_groups.rows.values()
    return group.period_us / SECOND


@pytest.mark.parametrize("exact", [False, True])
def test_parks_of_5_s_in_turns_of_10_s_take_2_percent_in_the_end(exact: bool) -> None:
    """Half of each turn at first. Of a period of 560 s, a park of each job is 1.8 %; resumes take nothing."""
    world = taking_turns(2.5, [job(600), job(600)], exact=exact, period=20)
    until(world, 5 * MINUTE)
    assert period_s(world) == 560
    until(world, HOUR)
    before = sum(done(world, HOUR))
    whole = 10 * 560 * SECOND
    until(world, HOUR + whole)
    lost = 1 - (sum(done(world, HOUR + whole)) - before) / whole
    assert lost == pytest.approx(10 / 560, abs=1e-3)
    assert lost <= 0.02


@pytest.mark.parametrize("exact", [False, True])
def test_jobs_whose_parks_outlast_their_turns_make_progress(exact: bool) -> None:
    """12 s to park and 12 s to resume, in turns of 10 s. If turns stay as short, nobody executes. (With exact slices, a job
    that has not begun by the end of its turn begins in its next one.)"""
    stuck = taking_turns(12, [job(60), job(60)], exact=exact, period=20, switching_cost=0)
    until(stuck, HOUR)
    assert sum(done(stuck, HOUR)) <= (0.31 * HOUR if exact else 2 * SECOND)
    world = taking_turns(12, [job(60), job(60)], exact=exact, period=20)
    until(world, HOUR)
    assert period_s(world) == 600
    assert min(done(world, HOUR)) > 20 * MINUTE
    assert sum(done(world, HOUR)) > 0.8 * HOUR
    world.run()
    assert all(life.end_us is not None for life in world.lives.values())


def test_cheap_turns_keep_their_minute() -> None:
    world = taking_turns(0.2, [job(60), job(60)])
    until(world, HOUR)
    assert period_s(world) == 60
    world.run()
    assert world.agents.executing.usage.switches == pytest.approx(243, abs=2), "for two hours, and what they cost"


def test_turns_are_as_before_when_the_slow_ones_have_left() -> None:
    """Four jobs of 0.5 s lose 4 s of each cycle; two of them lose 2 s."""
    world = taking_turns(0.5, [job(20), job(20), job(600), job(600)])
    until(world, 10 * MINUTE)
    assert period_s(world) == 210
    until(world, 2 * HOUR)
    assert period_s(world) == 105
    assert len(world.state.jobs.rows) == 2


def test_a_gang_on_two_nodes_has_one_period_with_its_neighbours() -> None:
    world = taking_turns(1, [job(600), job(600), job(600, tasks=2)], node(), node())
    until(world, 10 * MINUTE)
    (group,) = world.state.share_groups.rows.values()
    assert len(group.devices) == 2
    assert period_s(world) == 210
    told = {world.agents.executing._groups[group.id].period_us, group.period_us}
    assert told == {210 * SECOND}


def test_nothing_is_told_of_switches_that_take_no_time_or_where_nodes_do_not_measure() -> None:
    for setup in (slow(0, every=60), slow(5)):
        made = stages("gandiva", PreemptionSettings(), own=TURNS)
        world = World(Site((node(),), made.policy, order=order_of(made), sharing=setup), Listed([job(60), job(60)]))
        until(world, HOUR)
        assert not world.state.switching.rows
        assert period_s(world) == 60
