"""The policy gandiva sees simulated rates as it sees real ones (Gandiva, figure 10): packing that pays is kept."""

from dataclasses import replace

import pytest

from scheduler_service.core.invariants import check
from scheduler_service.core.model import JobClass
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.sim.sharing.kinds import GANDIVA
from scheduler_service.sim.world import Site, World
from tests.sim.building import MINUTE, Listed
from tests.sim.sharing.building import PAPER, ends, job, node, slow, world


def introspected(kind: str, jobs: int = 3, minutes: float = 60) -> World:
    """So many jobs of a kind on one device, after an hour."""
    made = stages("gandiva", PreemptionSettings())
    site = Site((node(),), made.policy, order=order_of(made), sharing=slow(0.05, exact=True, every=60, noise=0.02))
    world = World(site, Listed([job(600, kind=kind) for _ in range(jobs)]))
    while (at := world.next_us()) is not None and at <= minutes * MINUTE:
        world.advance(at)
        check(world.state)
    return world


def executing(world: World) -> list[list[int]]:
    (group,) = world.state.share_groups.rows.values()
    return sorted(sorted(key.job_id for key in row.runs) for row in group.rows)


@pytest.mark.parametrize("kind", ["super-resolution", "vae"])
def test_small_jobs_are_packed_and_stay_packed(kind: str) -> None:
    world = introspected(kind)
    usage = world.agents.executing.usage
    assert executing(world) == [[1, 2, 3]]
    assert usage.unpackings == 0
    profiles = [world.state.jobs.rows[number].profile for number in (1, 2, 3)]
    alone = GANDIVA[kind].mini_batch_us
    assert all(profile is not None and abs(profile.mini_batch_us / alone - 1) < 0.15 for profile in profiles)


def test_packing_that_makes_jobs_slower_is_undone() -> None:
    """Two packed LSTMs do 17 % less than two that take turns (Table 1)."""
    world = introspected("lstm", jobs=2)
    usage = world.agents.executing.usage
    assert executing(world) == [[1], [2]]
    assert usage.packings >= 2, "it was tried"
    assert usage.unpackings == usage.packings


@pytest.mark.parametrize("exact", [False, True])
def test_a_trial_has_the_turns_of_jobs_that_it_outranks_and_these_have_them_again_when_it_ends(exact: bool) -> None:
    made = stages("gandiva", PreemptionSettings(), own={"packing": 0, "migration": 0})
    trial = job(4, at=6)
    trial = trial._replace(spec=replace(trial.spec, job_class=JobClass.TRIAL))
    setup = replace(PAPER, exact=exact)
    done = world([job(10), job(10), trial], node(), setup=setup, policy=made.policy, order=order_of(made))
    one, two, its = ends(done)
    assert its == 10, "nobody else executes meanwhile"
    assert sorted((one, two)) == pytest.approx([23.5, 24] if exact else [24, 24], abs=1e-6)
    assert all(len(life.launches) == 1 for life in done.lives.values()), "nobody is preempted"
