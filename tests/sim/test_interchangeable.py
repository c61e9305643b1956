"""The policies that AlloX is compared with, on the paper's examples and by what each promises."""

from collections.abc import Sequence
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.model import Configuration, JobClass, JobSpec
from scheduler_service.core.model.inventory import Device, Inventory
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Vector
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.registry import for_simulations
from scheduler_service.sim.experiments.job_outcomes import Life
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.policies import ALLOX
from scheduler_service.sim.policies.allox_baselines import RULES
from scheduler_service.sim.world import Site
from tests.sim.building import MINUTE, lived

ON_GPU, ON_CPU = Vector(1000, 0, 1), Vector(4000, 0, 0)
GPU = Inventory(Vector(1000, 0, 1), (), (Device(0, "GPU-0", "gpu", 0),))
CPU = Inventory(Vector(4000, 0, 0), (), ())
NAMES = (*ALLOX, "allox-plus")

TABLE_1 = ((10, 15), (8, 10), (10, 50), (5, 75), (10, 15), (10, 15))
"""Minutes on a GPU and on a CPU. Users 1 and 2 take turns."""
FIGURE_4 = ((40, 50), (40, 50), (40, 160), (40, 160))
FIGURE_5 = ((10, 20), (10, 20), (20, 90), (20, 90))


def either(on_gpu: float, on_cpu: float, at: float = 0, user: str = "ann", **more: object) -> SimJob:
    """Times are in minutes, and the estimates are right."""
    times = round(on_gpu * MINUTE), round(on_cpu * MINUTE)
    other = Configuration(ON_CPU, estimate_us=times[1])
    spec = JobSpec(("x",), ON_GPU, estimate_us=times[0], alternatives=(other,), **more)  # type: ignore[arg-type]
    return SimJob(spec, times[0], round(at * MINUTE), user, times_us=times)


def on_gpu(minutes: float, at: float = 0, user: str = "ann", **more: object) -> SimJob:
    """A job with one configuration."""
    time = round(minutes * MINUTE)
    return SimJob(JobSpec(("x",), ON_GPU, estimate_us=time, **more), time, round(at * MINUTE), user)  # type: ignore[arg-type]


def play(policy: str, gpus: int, cpus: int, jobs: Sequence[SimJob], **own: float) -> list[Life]:
    made = stages(policy, PreemptionSettings(), own=own)
    return lived(Site((*[GPU] * gpus, *[CPU] * cpus), made.policy, order=order_of(made)), jobs)


def completion(lives: Sequence[Life]) -> list[float]:
    """In minutes."""
    return [(life.end_us - life.submit_us) / MINUTE for life in lives if life.end_us is not None]


def of(times: Sequence[tuple[float, float]], users: int = 1) -> list[SimJob]:
    return [either(*one, user=f"user-{number % users}") for number, one in enumerate(times)]


def configurations(lives: Sequence[Life]) -> list[int]:
    return [life.launches[-1].configuration for life in lives]


def test_every_rule_is_registered() -> None:
    assert set(ALLOX) == set(RULES)
    assert set(NAMES) <= set(for_simulations())


# ---- the paper's examples ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "total", "makespan"), [("es-fcfs", 181, 75), ("es", 75, 20), ("allox", 75, 20)], ids=lambda value: str(value)
)
def test_table_1(policy: str, total: int, makespan: int) -> None:
    times = completion(play(policy, 2, 2, of(TABLE_1, users=2), **({"alpha": 1} if policy == "allox" else {})))
    assert (sum(times), max(times)) == (total, makespan)


@pytest.mark.parametrize(
    ("policy", "times", "mean"),
    [("jsq-plus", FIGURE_4, 60), ("sjf-plus", FIGURE_5, 50), ("allox-plus", FIGURE_5, 50)],
    ids=["figure-4", "figure-5", "figure-5-plus"],
)
def test_figures_4_and_5(policy: str, times: Sequence[tuple[float, float]], mean: float) -> None:
    """The paper prints 100 for figure 4, which is not what its definition of JSQ+ gives."""
    assert sum(completion(play(policy, 2, 2, of(times)))) == mean * len(times)


# ---- what each promises --------------------------------------------------------------------------------------------------


def test_equal_share_divides_statically() -> None:
    """With two users' shares, one user alone has half of the cluster."""
    assert completion(play("es", 2, 0, [on_gpu(10)] * 2, users=2)) == [10, 20]
    assert completion(play("es", 2, 0, [on_gpu(10)] * 2)) == [10, 10]


def test_drff_takes_what_the_user_names_first_and_drfs_the_fastest() -> None:
    jobs = [either(20, 10), either(30, 10)]
    assert configurations(play("drff", 1, 2, jobs)) == [0, 0]
    assert configurations(play("drfs", 1, 2, jobs)) == [1, 1]
    long_first = [either(30, 99), either(10, 99), either(20, 99)]
    assert completion(play("drff", 1, 1, long_first)) == [30, 40, 60]
    assert completion(play("drfs", 1, 1, long_first)) == [60, 10, 30]


def test_drf_serves_whoever_has_least_of_his_dominant_resource() -> None:
    """Ann runs on a GPU when Bob comes; the next free GPU is Bob's, although his job is longer."""
    jobs = [on_gpu(10), on_gpu(20), on_gpu(1, at=1), on_gpu(30, at=1, user="bob")]
    assert completion(play("drfs", 2, 0, jobs)) == [10, 20, 20, 39]


def test_drfa_counts_a_gpu_for_as_much_as_it_is_faster_on_average() -> None:
    """Ann has a GPU, Bob two CPUs. If a GPU counts 4, the next CPU is Bob's; if it counts 1, it is Ann's."""
    jobs = [either(100, 900), *[either(900, 100, user="bob")] * 2, either(900, 5, at=1), either(900, 5, at=1, user="bob")]
    jobs[1:1] = [either(900, 10, user="cat")]
    weighted = play("drfa", 1, 3, jobs, **{"weight.0": 4})
    alike = play("drfa", 1, 3, jobs, **{"weight.0": 1})
    first = [[life.launches[0].placed_us for life in lives[4:]] for lives in (weighted, alike)]
    assert first[0][1] < first[0][0]
    assert first[1][0] < first[1][1]


def test_best_fit_waits_for_the_fastest_and_keeps_the_order() -> None:
    lives = play("best-fit", 1, 1, [either(10, 11), either(10, 11), either(1, 2)])
    assert configurations(lives) == [0, 0, 0]
    assert completion(lives) == [10, 20, 21]


def test_shortest_first_never_leaves_a_slot_idle() -> None:
    assert configurations(play("sjf-plus", 1, 1, [either(10, 500), either(10, 500)])) == [0, 1]


def test_jsq_plus_counts_those_who_queue_before() -> None:
    """Two wait for the GPU already (30), so that the CPU is the shorter queue for the fourth job."""
    lives = play("jsq-plus", 1, 1, [either(10, 99), either(10, 99, at=1), either(10, 99, at=2), either(10, 34, at=3)])
    assert configurations(lives) == [0, 0, 0, 1]


def test_allox_plus_serves_who_has_waited_for_too_long() -> None:
    """A long job waits while shorter ones come; with a time-out of 25 minutes it is the third to start."""
    jobs = [on_gpu(10), on_gpu(50, at=1), *[on_gpu(10, at=2 + number) for number in range(5)]]
    for timeout, start in ((10**6, 60), (25 * 60, 30)):
        lives = play("allox-plus", 1, 0, jobs, timeout=timeout)
        assert lives[1].launches[0].placed_us == start * MINUTE


@pytest.mark.parametrize("policy", NAMES)
def test_trials_and_higher_priority_come_first(policy: str) -> None:
    jobs = [on_gpu(10), on_gpu(1, at=1), on_gpu(20, at=2, priority=3), on_gpu(30, at=3, job_class=JobClass.TRIAL)]
    starts = [life.launches[0].placed_us // MINUTE for life in play(policy, 1, 0, jobs)]
    assert starts == [0, 60, 40, 10]


@pytest.mark.parametrize("policy", NAMES)
def test_nobody_is_preempted_and_all_is_done(policy: str) -> None:
    """Invariants hold in each step (`lived`)."""
    jobs = [either(1 + 7 * n % 11, 2 + 5 * n % 23, at=n % 9, user=f"user-{n % 3}") for n in range(60)]
    lives = play(policy, 2, 3, jobs)
    assert all(len(life.launches) == 1 for life in lives)


@pytest.mark.parametrize(("name", "value"), [("timeout", -1), ("reserved_cpus", -1), ("unknown", 0), ("alpha", 1)])
def test_settings_that_cannot_be_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        stages("allox-plus", PreemptionSettings(), own={name: value})


# ---- the paper's lemmas --------------------------------------------------------------------------------------------------


def done_by(lives: Sequence[Life], minutes: float) -> dict[str, int]:
    """By user: how many jobs have completed."""
    found: dict[str, int] = {life.job.user: 0 for life in lives}
    for life in lives:
        assert life.end_us is not None
        found[life.job.user] += life.end_us <= minutes * MINUTE
    return found


def alike(user: str, on_gpu: float, on_cpu: float, count: int = 120) -> list[SimJob]:
    return [either(on_gpu, on_cpu, user=user)] * count


def test_lemma_3_2_drf_is_neither_efficient_nor_fair_nor_safe_from_lies() -> None:
    """A.2: all jobs are a little faster on GPUs, so DRF leaves all CPUs idle, and everybody is worse off than with an equal
    share. Who lies that CPUs are faster has all of them."""
    honest = alike("ann", 10, 11) + alike("bob", 10, 11)
    drf, equal = (done_by(play(policy, 4, 4, honest), 110) for policy in ("drfs", "es"))
    assert drf == {"ann": 22, "bob": 22}
    assert all(equal[user] > drf[user] for user in drf)
    assert not any(configurations(play("drfs", 4, 4, honest)))
    lies = [job._replace(spec=with_changes(job.spec, estimate_us=12 * MINUTE)) for job in alike("bob", 10, 11)]
    assert done_by(play("drfs", 4, 4, alike("ann", 10, 11) + lies), 110)["bob"] == 40


@given(times=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=4))
@settings(max_examples=25, deadline=None)
def test_lemma_3_4_allox_is_pareto_efficient_for_jobs_that_are_there_at_once(times: list[tuple[int, int]]) -> None:
    """In no schedule on one GPU and one CPU is some job done sooner, and none later."""
    jobs = of(times)
    mine = completion(play("allox", 1, 1, jobs, alpha=1))
    for order in permutations(range(len(times))):
        for kinds in product((0, 1), repeat=len(times)):
            free, theirs = [0, 0], [0] * len(times)
            for job in order:
                kind = kinds[job]
                free[kind] += times[job][kind]
                theirs[job] = free[kind]
            dominated = all(a <= b for a, b in zip(theirs, mine, strict=True)) and theirs != mine
            assert not dominated, (theirs, mine)


@pytest.mark.parametrize(("speedups", "incentive"), [((2, 2), True), ((3, 9), False)], ids=str)
def test_lemma_3_4_with_alpha_0_users_progress_alike(speedups: tuple[int, int], incentive: bool) -> None:
    """Each user's jobs are all alike. Both users progress alike. Nobody is worse off than with an equal share if both have the
    same speed-up. With speed-ups that differ the lemma does not carry over from divisible jobs and a static allocation: whoever
    has the lowest progress is matched alone, and takes CPUs that the other user's jobs would make better use of."""
    jobs = [job for user, speedup in zip(("ann", "bob"), speedups, strict=True) for job in alike(user, 10, 10 * speedup, 60)]
    allox, equal = (done_by(play(policy, 4, 4, jobs, **own), 100) for policy, own in (("allox", {"alpha": 0}), ("es", {})))
    assert abs(allox["ann"] - allox["bob"]) <= 1
    assert all(allox[user] >= equal[user] for user in equal) is incentive, (allox, equal)
