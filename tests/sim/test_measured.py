"""Delays are measured from lives: a world with known delays gives them back."""

from collections.abc import Callable
from random import Random

import pytest

from benchmarks.measured_delays import times
from scheduler_service.core.model import JobClass, JobSpec
from scheduler_service.core.model.inventory import Device, Inventory
from scheduler_service.core.model.values import SECOND, Micros, Vector
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.sim.experiments.job_outcomes import Launch, Life
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.node_delays import Delays
from scheduler_service.sim.site import Times
from scheduler_service.sim.workloads.distributions import Empirical
from scheduler_service.sim.world import Site, World
from tests.sim.building import Listed

MILLISECOND: Micros = SECOND // 1000


def node() -> Inventory:
    return Inventory(Vector(0, 0, 8), (), tuple(Device(d, f"GPU-{d}", "gpu", 0) for d in range(8)))


def job(devices: int, work_us: Micros, at: Micros, trial: bool) -> SimJob:
    job_class = JobClass.TRIAL if trial else JobClass.BEST_EFFORT
    return SimJob(JobSpec(("x",), Vector(0, 0, devices), job_class, 30 * SECOND), work_us, at)


def lives(delays: Delays) -> list[Life]:
    """Of 600 jobs, of which many are preempted, under these delays."""
    rng = Random(1)
    jobs, at = [], 0
    for _ in range(600):
        at += rng.randrange(SECOND)
        trial = rng.random() < 0.3
        jobs.append(job(rng.randint(1, 4), rng.randrange(1, 3 if trial else 9) * SECOND, at, trial))
    world = World(Site((node(), node()), stages("fitgpp", PreemptionSettings()).policy, delays=delays), Listed(jobs))
    world.run()
    assert sum(len(life.launches) > 1 for life in world.lives.values()) > 50
    return list(world.lives.values())


def between(low: Micros, high: Micros) -> Callable[[Random], Micros]:
    return lambda rng: rng.randint(low * MILLISECOND, high * MILLISECOND)


def quantiles(times: Times, name: str) -> list[float]:
    """The least, the median and the greatest, in milliseconds."""
    found = getattr(times, name)
    assert isinstance(found, Empirical)
    return [round(found.quantiles[i] * 1000, 3) for i in (0, 50, 100)]


def test_delays_that_are_always_the_same_are_found_exactly() -> None:
    always = {"start": 20, "resume": 300, "checkpoint": 700, "end": 5}
    measured = times(lives(Delays(**{name: between(delay, delay) for name, delay in always.items()})))
    found = {name: quantiles(measured, name) for name in always}
    # A run that is told to leave when its work is done, and the scheduler has not heard so, has a part of that delay twice.
    assert always["resume"] <= found["resume"].pop() < always["resume"] + always["end"]
    assert found == {name: [delay] * (2 if name == "resume" else 3) for name, delay in always.items()}


def test_distributions_are_found_in_their_bounds() -> None:
    bounds = {"start": (10, 50), "resume": (200, 400), "checkpoint": (100, 900), "end": (0, 20)}
    measured = times(lives(Delays(**{name: between(*delay) for name, delay in bounds.items()})))
    for name, (low, high) in bounds.items():
        slack = 20 if name == "resume" else 0  # the end that is in it is taken as its mean
        least, median, greatest = quantiles(measured, name)
        assert low - slack <= least < median < greatest <= high + slack, name
        assert abs(median - (low + high) / 2) < (high - low) / 5, name


def test_they_are_part_of_a_case_and_draw_what_was_measured() -> None:
    measured = times(lives(Delays(start=between(10, 50), checkpoint=between(100, 900))))
    again = Times.model_validate_json(measured.model_dump_json()).delays()
    drawn = [again.start(Random(seed)) for seed in range(100)]
    assert 10 * MILLISECOND <= min(drawn) < 20 * MILLISECOND
    assert 40 * MILLISECOND < max(drawn) <= 50 * MILLISECOND


def test_what_was_never_seen_is_not_made_up() -> None:
    launch = Launch((1,), 0, 10, ended_us=1_000_010)
    measured = times([Life(job(1, SECOND, 0, trial=False), 1, 0, 1_000_010, SECOND, launches=[launch])])
    assert (measured.resume, measured.checkpoint) == (None, None)
    assert times([]) == Times()


@pytest.mark.parametrize("signalled", [5, 15])
def test_a_run_that_was_told_to_leave_before_it_worked_says_nothing_of_checkpoints(signalled: int) -> None:
    """The scheduler may hear of its beginning only after it has told it to leave."""
    first = Launch((1,), 0, 15, signalled, 900)
    second = Launch((1,), 900, 920, None, 920 + SECOND)
    measured = times([Life(job(1, SECOND, 0, trial=False), 1, 0, 920 + SECOND, SECOND, launches=[first, second])])
    assert (measured.resume, measured.checkpoint) == (None, None)
    assert quantiles(measured, "start") == [0.015, 0.018, 0.02]
