"""The simulated world: what it gives is known beforehand, and the same seed gives it again."""

import gzip
from pathlib import Path
from random import Random

import pytest

from scheduler_service.core.invariants import check
from scheduler_service.core.job import JobClass, JobSpec
from scheduler_service.core.topology import Device, Inventory
from scheduler_service.core.values import SECOND, Vector
from scheduler_service.policies.stages import stages
from scheduler_service.policies.victims import FitGppSettings
from scheduler_service.sim.agents import Delays
from scheduler_service.sim.jobs import ClosedLoop, Listed, SimJob
from scheduler_service.sim.lives import Life
from scheduler_service.sim.workloads import fitgpp, philly
from scheduler_service.sim.workloads.fitgpp import MINUTE
from scheduler_service.sim.world import Site, World

PHILLY = Path(__file__).parent / "data" / "philly_slice_1000.csv.gz"


def node(devices: int, cpu: int = 0) -> Inventory:
    """A node of which only devices count, unless it has CPUs too."""
    return Inventory(Vector(cpu, 0, devices), (), tuple(Device(d, f"GPU-{d}", "gpu", 0) for d in range(devices)))


def site(policy: str, *nodes: Inventory, **facts: object) -> Site:
    return Site(nodes, stages(policy, FitGppSettings()).policy, **facts)  # type: ignore[arg-type]


def job(gpus: int, minutes: float, at: float = 0, trial: bool = False, grace: float = 1) -> SimJob:
    job_class = JobClass.TRIAL if trial else JobClass.BEST_EFFORT
    return SimJob(
        JobSpec(("x",), Vector(0, 0, gpus), job_class, round(grace * MINUTE)), round(minutes * MINUTE), round(at * MINUTE)
    )


def begins(life: Life) -> list[int]:
    return [launch.began_us for launch in life.launches if launch.began_us is not None]


def stops(life: Life) -> list[int]:
    return [launch.signalled_us for launch in life.launches if launch.signalled_us is not None]


def finished(world: World) -> World:
    world.run()
    check(world.state)
    assert not world.state.jobs.rows
    return world


def test_first_come_first_served_on_a_real_trace_gives_what_other_simulators_give() -> None:
    """An exact counting FIFO and Tiresias' simulator agree on these figures: 1,000 jobs of Philly on 128 GPUs."""
    with gzip.open(PHILLY, "rt") as lines:
        jobs = philly.from_its_first(philly.philly(lines))
    lives = finished(World(site("fifo", node(128)), Listed(jobs))).lives.values()
    assert len(lives) == 1000
    completion = sum(life.end_us - life.submit_us for life in lives if life.end_us is not None)
    assert round(completion / 1000 / SECOND, 1) == 6197.5
    assert round(sum(life.wait_us() for life in lives) / 1000 / SECOND, 1) == 3034.1
    assert max(life.end_us or 0 for life in lives) == 160677 * SECOND


def test_a_preempted_job_keeps_what_it_did_and_waits_through_its_grace_period() -> None:
    jobs = [job(1, minutes=10), job(1, minutes=2, at=4, trial=True)]
    long, trial = finished(World(site("fitgpp", node(1)), Listed(jobs))).lives.values()
    assert (trial.start_us(), trial.end_us) == (5 * MINUTE, 7 * MINUTE)
    assert (stops(long), begins(long), long.end_us) == ([4 * MINUTE], [0, 7 * MINUTE], 13 * MINUTE)
    assert list(long.intervals_us()) == [3 * MINUTE]
    assert (long.wait_us(), long.slowdown()) == (3 * MINUTE, 1.3)


def test_delays_are_part_of_what_happens() -> None:
    delays = Delays(start=lambda _: 2 * SECOND, resume=lambda _: 3 * SECOND, checkpoint=lambda _: 5 * SECOND)
    jobs = [job(1, minutes=10), job(1, minutes=2, at=4, trial=True)]
    long, trial = finished(World(site("fitgpp", node(1), delays=delays), Listed(jobs))).lives.values()
    assert trial.start_us() == 4 * MINUTE + 7 * SECOND
    assert trial.end_us == trial.start_us() + 2 * MINUTE
    assert long.start_us() == 2 * SECOND
    assert begins(long)[1:] == [trial.end_us + 2 * SECOND]
    done = 4 * MINUTE - 2 * SECOND
    assert long.end_us == begins(long)[1] + 3 * SECOND + 10 * MINUTE - done


def test_a_run_that_is_told_to_leave_before_its_process_is_there_has_done_nothing() -> None:
    delays = Delays(start=lambda _: MINUTE)
    jobs = [job(1, minutes=10), job(1, minutes=2, at=0.5, trial=True)]
    long, trial = finished(World(site("fitgpp", node(1), delays=delays), Listed(jobs))).lives.values()
    assert trial.start_us() == round(1.5 * MINUTE)
    assert list(long.intervals_us()) == [4 * MINUTE]
    assert long.start_us() == round(4.5 * MINUTE)
    assert long.end_us == long.start_us() + 10 * MINUTE


def test_decisions_wait_for_the_minute() -> None:
    jobs = [job(1, minutes=1.5, at=0.2), job(1, minutes=1, at=0.3)]
    world = finished(World(site("fifo", node(1), decide_every_us=MINUTE), Listed(jobs)))
    first, second = world.lives.values()
    assert (first.submit_us, first.start_us(), first.end_us) == (round(0.2 * MINUTE), MINUTE, round(2.5 * MINUTE))
    assert second.start_us() == 3 * MINUTE


def test_a_closed_loop_keeps_the_load() -> None:
    """Each job comes when the mean load of the resources is below two; here only devices are asked for."""
    world = World(site("fifo", node(4), decide_every_us=MINUTE), ClosedLoop([job(1, minutes=5)] * 20, target=2.0))
    world.advance(MINUTE)
    assert len(world.lives) == 8
    finished(world)
    assert len(world.lives) == 20
    assert {life.submit_us for life in world.lives.values()} <= {m * MINUTE for m in range(60)}


@pytest.mark.parametrize("policy", ["fifo", "fitgpp", "lrtp", "rand"])
def test_the_same_seed_gives_the_same_history(policy: str) -> None:
    def history(seed: int) -> list[object]:
        jobs = ClosedLoop(fitgpp.jobs(300, seed=1), target=2.0)
        delays = Delays(start=lambda rng: rng.randrange(10 * SECOND))
        world = finished(World(site(policy, *fitgpp.nodes(4), seed=seed, delays=delays), jobs))
        return [(life.submit_us, life.start_us(), life.end_us, life.launches) for life in world.lives.values()]

    assert history(1) == history(1)
    assert history(1) != history(2)


def test_the_engine_holds_its_invariants_in_every_step() -> None:
    rng = Random(5)
    jobs = [
        job(rng.randint(1, 4), rng.uniform(1, 30), at=rng.uniform(0, 120), trial=rng.random() < 0.3, grace=rng.uniform(0, 5))
        for _ in range(120)
    ]
    world = World(site("fitgpp", node(4), node(4)), Listed(jobs))
    while (at := world.next_us()) is not None:
        world.advance(at)
        check(world.state)
    lives = world.lives.values()
    assert all(life.end_us is not None for life in lives)
    assert any(stops(life) for life in lives)
    assert all(len(stops(life)) == len(begins(life)) - 1 <= 1 for life in lives)  # P is 1, and all came back


def test_a_trace_that_is_none_is_refused() -> None:
    with pytest.raises(philly.BadTrace, match="job 7: submit_s, duration_s and num_gpus must be numbers"):
        list(philly.philly(["job_id,vc,submit_s,duration_s,num_gpus", "7,a,0,long,1"]))
    with pytest.raises(philly.BadTrace, match="must not be negative"):
        list(philly.philly(["job_id,vc,submit_s,duration_s,num_gpus", "7,a,0,1,-1"]))
