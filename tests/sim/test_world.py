"""The simulated world: what it gives is known beforehand, and the same seed gives it again."""

import os
import sys
from pathlib import Path
from random import Random
from subprocess import run

import pytest

from benchmarks.sim_philly import counting_gpus
from scheduler_service.core.engine import Proposals
from scheduler_service.core.invariants import check
from scheduler_service.core.messages import Rng
from scheduler_service.core.model import ShareMode
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.sim import workloads
from scheduler_service.sim.experiments.job_outcomes import Life
from scheduler_service.sim.failures import Exponential, Outages
from scheduler_service.sim.jobs import ClosedLoop, SimJob
from scheduler_service.sim.node_delays import Delays
from scheduler_service.sim.workloads import fitgpp
from scheduler_service.sim.world import Site, World
from tests.sim.building import MINUTE, Listed, begins, intervals_us, job, lived, node, papers_nodes, site, stops

PHILLY = Path(__file__).parent / "data" / "philly_slice_1000.csv.gz"


def finished(world: World) -> World:
    world.run()
    check(world.state)
    assert not world.state.jobs.rows
    return world


def test_first_come_first_served_on_a_real_trace_gives_what_other_simulators_give() -> None:
    """An exact counting FIFO and Tiresias' simulator agree on these figures: 1,000 jobs of Philly on 128 GPUs."""
    jobs = workloads.jobs_of(counting_gpus(PHILLY), seed=1, folder=Path())
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
    assert list(intervals_us(long)) == [3 * MINUTE]
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


@pytest.mark.parametrize("tasks", [0, 2])
def test_a_run_that_is_placed_and_told_to_leave_in_one_step_is_gone_at_once(tasks: int) -> None:
    """It is ordered to leave alone, and nobody may wait for it for ever."""

    def backwards(state: State, rng: Rng) -> Proposals:
        for name in ("fifo", "fitgpp"):
            yield from stages(name, PreemptionSettings()).policy(state, rng)

    jobs = [job(1, minutes=10, tasks=tasks), job(2, minutes=2, trial=True)]
    long, trial = finished(World(Site((node(2),), backwards), Listed(jobs))).lives.values()
    assert (trial.start_us(), trial.end_us) == (0, 2 * MINUTE)
    assert (long.start_us(), long.end_us) == (2 * MINUTE, 12 * MINUTE)


def test_a_run_that_is_told_to_leave_before_its_process_is_there_has_done_nothing() -> None:
    delays = Delays(start=lambda _: MINUTE)
    jobs = [job(1, minutes=10), job(1, minutes=2, at=0.5, trial=True)]
    long, trial = finished(World(site("fitgpp", node(1), delays=delays), Listed(jobs))).lives.values()
    assert trial.start_us() == round(1.5 * MINUTE)
    assert list(intervals_us(long)) == [4 * MINUTE]
    assert long.start_us() == round(4.5 * MINUTE)
    assert long.end_us == long.start_us() + 10 * MINUTE


def test_decisions_wait_for_the_minute() -> None:
    jobs = [job(1, minutes=1.5, at=0.2), job(1, minutes=1, at=0.3)]
    world = finished(World(site("fifo", node(1), decide_every_us=MINUTE), Listed(jobs)))
    first, second = world.lives.values()
    assert (first.submit_us, first.start_us(), first.end_us) == (round(0.2 * MINUTE), MINUTE, round(2.5 * MINUTE))
    assert second.start_us() == 3 * MINUTE


def test_the_first_decision_is_taken_at_time_0() -> None:
    """What comes at 0 is decided then, and what comes a moment later waits for the first minute."""
    jobs = [job(1, minutes=1), job(1, minutes=1, at=0.1), job(1, minutes=1, at=1)]
    world = finished(World(site("fifo", node(2), decide_every_us=MINUTE), Listed(jobs)))
    assert [life.start_us() for life in world.lives.values()] == [0, MINUTE, MINUTE]


def test_a_closed_loop_keeps_the_load() -> None:
    """Each job comes when the mean load of the resources is below two; here only devices are asked for."""
    world = World(site("fifo", node(4), decide_every_us=MINUTE), ClosedLoop([job(1, minutes=5)] * 20, target=2.0))
    world.advance(0)
    assert len(world.lives) == 8
    finished(world)
    assert len(world.lives) == 20
    assert {life.submit_us for life in world.lives.values()} <= {m * MINUTE for m in range(60)}


def test_jobs_that_are_over_are_told_once_and_forgotten() -> None:
    over: list[int] = []
    jobs = [job(1, minutes=5, at=number) for number in range(20)]
    world = World(site("fifo", node(2)), Listed(jobs), ended=lambda life: over.append(life.id))
    most = 0
    while (at := world.next_us()) is not None:
        world.advance(at)
        most = max(most, len(world.lives))
    assert (over, world.lives, list(world.unfinished_lives())) == (list(range(1, 21)), {}, [])
    assert most == 14  # two run at a time: when the last one comes, at 19 minutes, six are over


@pytest.mark.parametrize("policy", ["fifo", "fitgpp", "lrtp", "rand"])
def test_the_same_seed_gives_the_same_history(policy: str) -> None:
    assert history(policy, 1) == history(policy, 1)
    assert history(policy, 1) != history(policy, 2)


def test_another_process_gives_the_same_history_byte_for_byte() -> None:
    """Though sets and dictionaries of strings are in another order there."""
    said = [
        run(
            [sys.executable, "-m", __name__], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert said[0].count(b"Life(") == 4 * 200


def history(policy: str, seed: int) -> list[Life]:
    """With everything that is drawn: jobs, gangs, delays, failures, victims."""
    rng = Random(f"{seed}:gangs")
    jobs = [
        job(1, 1 + rng.expovariate(0.1), tasks=rng.randint(2, 6)) if rng.random() < 0.2 else drawn
        for drawn in fitgpp.jobs(200, seed=seed)
    ]
    delays = Delays(start=lambda rng: rng.randrange(10 * SECOND), resume=lambda rng: rng.randrange(10 * SECOND))
    failures = Exponential(4, mtbf_us=200 * MINUTE, mttr_us=5 * MINUTE, until_us=3000 * MINUTE, seed=seed)
    here = site(policy, *papers_nodes(4), seed=seed, delays=delays, outages=Outages(failures))
    return list(finished(World(here, ClosedLoop(jobs, target=2.0))).lives.values())


def test_the_engine_holds_its_invariants_in_every_step() -> None:
    rng = Random(5)
    jobs = [
        job(rng.randint(1, 4), rng.uniform(1, 30), at=rng.uniform(0, 120), trial=rng.random() < 0.3, grace=rng.uniform(0, 5))
        for _ in range(120)
    ]
    lives = lived(site("fitgpp", node(4), node(4)), jobs)
    assert any(stops(life) for life in lives)
    assert all(len(stops(life)) == len(begins(life)) - 1 <= 1 for life in lives)  # P is 1, and all came back


if __name__ == "__main__":
    for policy in ("fifo", "fitgpp", "lrtp", "rand"):
        sys.stdout.write(f"{history(policy, seed=1)}\n")


def test_jobs_that_ask_for_parts_share_the_devices_of_a_simulated_node() -> None:
    """Four halves run on two devices, each at half of the speed until it is alone. A fifth one begins when the first has ended
    after 20 minutes."""
    spec = with_changes(job(1, 1).spec, gpu_fraction_ppm=500_000, share=ShareMode.SLICED)
    jobs = [SimJob(spec, (10 + number) * MINUTE) for number in range(5)]
    world = finished(World(site("fifo", node(2)), Listed(jobs)))
    ends = [round((life.end_us or 0) / MINUTE) for _, life in sorted(world.lives.items())]
    assert ends == [20, 22, 24, 25, 35]
