"""What generators draw, and when it comes."""

import re
import statistics
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

from scheduler_service.core.model import JobClass, TaskGroup
from scheduler_service.core.model.inventory import Inventory
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.sim import workloads
from scheduler_service.sim.jobs import ClosedLoop, Load, SimJob
from scheduler_service.sim.workloads import FitGpp, NeedsCapacity, Skipped, Workload, arrivals_of, arriving, jobs_of
from scheduler_service.sim.workloads.arriving import Timed
from scheduler_service.sim.workloads.distributions import Amount, Distribution, Empirical
from scheduler_service.sim.world import Site, World
from tests.sim.building import Listed, papers_nodes

HERE = Path()
HOUR = 3600 * SECOND
NODES = papers_nodes(10)
MIXED: dict[str, Any] = {
    "kind": "generated",
    "jobs": 4000,
    "kinds": [
        {"name": "try", "share": 3, "trial": True, "work_s": 60, "gpus": 1, "cpus": 2.5, "memory_gib": 0.5, "users": 3},
        {
            "share": 7,
            "work_s": {"kind": "lognormal", "mean": 1800, "deviation": 2000, "low": 60},
            "grace_s": {"kind": "uniform", "low": 10, "high": 20},
            "gpus": {"kind": "choice", "values": [1, 8], "weights": [9, 1]},
            "tasks": {"kind": "choice", "values": [1, 2]},
            "users": [{"name": "ada", "weight": 3, "vc": "red"}, {"name": "bob", "vc": "blue"}],
            "estimate_error": 0.1,
        },
    ],
}
WORKLOADS: list[dict[str, Any]] = [
    {"kind": "fitgpp", "jobs": 50, "grace": 4, "times_from": None},
    {"kind": "hived", "jobs": 500, "tenants": ["res-a", "prod-e"], "scale": 1.5, "file": "philly.csv"},
    {"kind": "philly", "file": "philly.csv", "trials": {"shorter_than_s": 60}, "gpus": [1, 2], "gang_of": None},
    {"kind": "openb", "file": "a/b.csv.gz", "jobs": 9, "resample": True, "arrivals": {"kind": "poisson", "load": 2}},
    {"kind": "sacct", "file": "s.txt", "demand": "requested", "arrivals": {"kind": "recorded", "speed": 2}},
    {"kind": "csv", "file": "jobs.csv", "arrivals": {"kind": "closed_loop", "load": 0.9, "times_from": "fitgpp"}},
    {"kind": "history", "file": "jobs.csv", "from_s": 10},
    MIXED | {"arrivals": {"kind": "diurnal", "per_hour": 10}},
    MIXED | {"arrivals": {"kind": "batches", "gap_s": {"kind": "exponential", "mean": 9}, "size": 2}},
]


def workload(facts: dict[str, Any], **more: Any) -> Workload:
    made: Workload = TypeAdapter(Workload).validate_python(facts | more)
    return made


def drawn(distribution: object, count: int = 20_000) -> list[float]:
    made: Distribution = TypeAdapter(Distribution).validate_python(distribution)
    rng = Random("drawn")
    return [made.draw(rng) for _ in range(count)]


# -- distributions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distribution", "mean", "deviation", "low", "high"),
    [
        (7, 7, 0, 7, 7),
        ({"kind": "uniform", "low": 1, "high": 3}, 2, 0.577, 1, 3),
        ({"kind": "normal", "mean": 5, "deviation": 2}, 5, 2, -9, 19),
        # of N(0, 1) the upper half, which has the mean sqrt(2/pi): the rest is drawn again, not piled up at 0
        ({"kind": "normal", "mean": 0, "deviation": 1, "low": 0}, 0.798, 0.603, 0, 9),
        ({"kind": "lognormal", "mean": 4.45, "deviation": 4}, 4.45, 4, 0, 1000),
        ({"kind": "exponential", "mean": 3}, 3, 3, 0, 100),
        ({"kind": "choice", "values": [1, 5], "weights": [3, 1]}, 2, 1.732, 1, 5),
        ({"kind": "choice", "values": [1, 2, 3]}, 2, 0.816, 1, 3),
        ({"kind": "empirical", "quantiles": [0, 1, 10]}, 3, 3.11, 0, 10),
    ],
)
def test_what_is_drawn(distribution: object, mean: float, deviation: float, low: float, high: float) -> None:
    values = drawn(distribution)
    assert statistics.fmean(values) == pytest.approx(mean, rel=0.03)
    assert statistics.pstdev(values) == pytest.approx(deviation, rel=0.1)
    assert low <= min(values) <= max(values) <= high


def test_steps_are_multiples() -> None:
    assert set(drawn({"kind": "uniform", "low": 0, "high": 2, "step": 0.5})) == {0, 0.5, 1, 1.5, 2}


def test_measured_values_become_a_distribution() -> None:
    rng = Random(1)
    samples = [rng.gammavariate(2, 3) for _ in range(5000)]
    made = Empirical.from_samples(samples)
    assert made.quantiles[0] == min(samples)
    assert made.quantiles[50] == statistics.median(samples)
    assert made.quantiles[-1] == max(samples)
    again = [made.draw(rng) for _ in range(5000)]
    assert statistics.quantiles(again, n=10) == pytest.approx(statistics.quantiles(samples, n=10), rel=0.06)
    assert Empirical.from_samples([4.0]).draw(rng) == 4


@pytest.mark.parametrize(
    ("distribution", "rule"),
    [
        ({"kind": "normal", "mean": 0, "deviation": 1, "low": 5}, "only 2.9e-07 of the draws lie between 5 and 1e.12"),
        ({"kind": "normal", "mean": 1e15, "deviation": 1, "low": 0}, "only 0 of the draws lie between 0 and 1e.12"),
        ({"kind": "uniform", "low": 0, "high": 1e14}, "it can be more than 1e.12"),
        ({"kind": "exponential", "mean": 1, "high": 1e300}, "it can be more than 1e.12"),
        ({"kind": "choice", "values": [1, 1e13]}, "it can be more than 1e.12"),
        ({"kind": "empirical", "quantiles": [1, 1e13]}, "it can be more than 1e.12"),
        (1e13, "it is more than 1e.12"),
        ({"kind": "uniform", "low": 6, "high": 9, "step": 5}, "there is no multiple of the step 5 between 6 and 9"),
        ({"kind": "normal", "mean": 7, "deviation": 1, "low": 6, "high": 9, "step": 5}, "there is no multiple of the step 5"),
        ({"kind": "empirical", "quantiles": [6, 9], "step": 5}, "there is no multiple of the step 5 between 6 and 9"),
        ({"kind": "exponential", "mean": 1, "low": 2, "high": 1}, "low .2. must not be more than high"),
        ({"kind": "uniform", "low": 2, "high": 1}, "low .2. must not be more than high"),
        ({"kind": "choice", "values": [1, 2], "weights": [1]}, "there are 2 values and 1 weights"),
        ({"kind": "choice", "values": [1], "weights": [0]}, "one must be more than 0"),
        ({"kind": "empirical", "quantiles": [2, 1]}, "quantiles must not fall"),
        ({"kind": "normal", "mean": 1, "deviation": 0}, "greater than 0"),
        ({"kind": "normal", "mean": float("nan"), "deviation": 1}, "finite"),
        ({"kind": "normal", "mean": 9, "deviation": 1}, "it can be negative: give it `low: 0`"),
        (-1, "it can be negative"),
        ({"kind": "lognormal", "mean": 1e-300, "deviation": 1e300}, "it must be from 1e-09 to 1e.12, and is 1e-300"),
        ({"kind": "exponential", "mean": 1e-320}, "it must be from 1e-09 to 1e.12"),
        ({"kind": "uniform", "low": 1, "high": 2, "step": 1e-320}, "step .* must be 0, or from 1e-09 on"),
        ({"kind": "choice", "values": [1, 2], "weights": [1e308, 1e308]}, "weights must not be more than 1e.12"),
        ({"kind": "gauss"}, "does not match any of the expected tags"),
        ({"kind": "uniform", "low": 1, "high": 2, "mean": 3}, "Extra inputs are not permitted"),
    ],
)
def test_distributions_that_are_none(distribution: object, rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
        TypeAdapter(Amount).validate_python(distribution)


@pytest.mark.parametrize(
    ("distribution", "values"),
    [
        ({"kind": "uniform", "low": 4, "high": 11, "step": 5}, [5, 10]),
        ({"kind": "uniform", "low": 8, "high": 19, "step": 10}, [10]),
        ({"kind": "normal", "mean": 7, "deviation": 9, "low": 3, "high": 13, "step": 5}, [5, 10]),
        ({"kind": "exponential", "mean": 2, "low": 1, "high": 2, "step": 1}, [1, 2]),
        ({"kind": "empirical", "quantiles": [4, 11], "step": 5}, [5, 10]),
        ({"kind": "uniform", "low": 0.1, "high": 0.3, "step": 0.1}, [0.1, 0.2, 0.1 * 3]),
    ],
)
def test_what_is_rounded_stays_within_the_bounds(distribution: object, values: list[float]) -> None:
    made, rng = TypeAdapter(Distribution).validate_python(distribution), Random(1)
    assert sorted({made.draw(rng) for _ in range(2000)}) == values


def test_tasks_are_no_more_than_a_job_may_have() -> None:
    """One in a thousand draws has so few; where a distribution says itself that it can be more, it is refused."""
    kind = {"work_s": 1, "tasks": {"kind": "exponential", "mean": 9e7}}
    drawn = list(jobs_of(workload({"kind": "generated", "jobs": 20, "kinds": [kind]}), 1, HERE))
    assert max(sum(group.size for group in job.spec.gang) for job in drawn) <= 100_000
    with pytest.raises(ValidationError, match="a job has 100000 at most"):
        workload({"kind": "generated", "jobs": 1, "kinds": [{**kind, "tasks": {"kind": "uniform", "low": 1, "high": 1e6}}]})


# -- generators ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("facts", WORKLOADS, ids=lambda facts: str(facts["kind"]))
def test_a_workload_is_data(facts: dict[str, Any]) -> None:
    made = workload(facts)
    adapter: TypeAdapter[Workload] = TypeAdapter(Workload)
    assert adapter.validate_json(adapter.dump_json(made)) == made
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        workload(facts, job=1)


def test_the_papers_workload() -> None:
    jobs = list(jobs_of(FitGpp(jobs=20_000), 1, HERE))
    trials = [job for job in jobs if job.spec.job_class is JobClass.TRIAL]
    assert len(trials) / len(jobs) == pytest.approx(0.3, abs=0.01)
    assert max(job.work_us for job in trials) <= 30 * 60 * SECOND
    assert statistics.fmean(job.work_us for job in trials) == pytest.approx(6.85 * 60 * SECOND, rel=0.02)
    assert statistics.fmean(job.spec.grace_us for job in jobs) == pytest.approx(3 * 60 * SECOND, rel=0.02)
    for job in jobs:
        cpu, memory, gpus = job.spec.demand
        assert (cpu % 1000, memory % 1024) == (0, 0)
        assert 1000 <= cpu <= 32_000
        assert 1024 <= memory <= 256 << 10
        assert 0 <= gpus <= 8
    longer = list(jobs_of(FitGpp(jobs=2000, grace=8, trials=0), 1, HERE))
    assert statistics.fmean(job.spec.grace_us for job in longer) == pytest.approx(24 * 60 * SECOND, rel=0.02)
    assert not any(job.spec.job_class is JobClass.TRIAL for job in longer)


def test_drawn_jobs_are_as_their_kinds_say() -> None:
    jobs = list(jobs_of(workload(MIXED), 1, HERE))
    trials = [job for job in jobs if job.spec.name == "try"]
    others = [job for job in jobs if job.spec.name == ""]
    assert len(trials) + len(others) == 4000
    assert len(trials) == pytest.approx(1200, rel=0.1)
    assert {(job.spec.demand, job.spec.job_class, job.work_us) for job in trials} == {
        (Vector(2500, 512, 1), JobClass.TRIAL, 60 * SECOND)
    }
    assert Counter(job.user for job in trials).keys() == {"user-1", "user-2", "user-3"}
    gangs = [job for job in others if job.spec.gang]
    assert len(gangs) == pytest.approx(len(others) / 2, rel=0.1)
    assert {(job.spec.demand, job.spec.gang) for job in gangs} == {
        (Vector(0, 0, 2 * gpus), (TaskGroup(2, Vector(0, 0, gpus)),)) for gpus in (1, 8)
    }
    assert {(job.user, job.vc) for job in others} == {("ada", "red"), ("bob", "blue")}
    assert sum(job.user == "ada" for job in others) == pytest.approx(0.75 * len(others), rel=0.05)
    assert all(10 * SECOND <= job.spec.grace_us <= 20 * SECOND for job in others)
    errors = [job.spec.estimate_us / job.work_us - 1 for job in others]
    assert statistics.pstdev(errors) == pytest.approx(0.1, rel=0.1)
    assert {job.spec.estimate_us for job in trials} == {0}


@pytest.mark.parametrize("facts", [WORKLOADS[0], MIXED, WORKLOADS[-1]])
def test_the_same_seed_gives_the_same_jobs(facts: dict[str, Any]) -> None:
    made = workload(facts)
    assert list(jobs_of(made, 1, HERE)) == list(jobs_of(made, 1, HERE)) != list(jobs_of(made, 2, HERE))


def test_jobs_are_made_when_they_are_asked_for() -> None:
    for facts in ({"kind": "fitgpp", "jobs": 10**7}, MIXED | {"jobs": 10**7, "arrivals": {"kind": "poisson", "per_hour": 9}}):
        assert len(list(islice(jobs_of(workload(facts), 1, HERE, NODES), 3))) == 3


def test_what_fits_nowhere_is_left_out_and_told() -> None:
    big = {"share": 1, "work_s": 1, "gpus": 9}
    wide = {"share": 1, "work_s": 1, "gpus": 8, "tasks": 11}
    good = {"share": 1, "work_s": 1, "gpus": 8, "tasks": 10}
    mixed = workload({"kind": "generated", "jobs": 300, "kinds": [big, wide, good]}, arrivals={"kind": "poisson", "load": 1})
    skipped = Skipped()
    jobs = list(jobs_of(mixed, 1, HERE, NODES, skipped))
    assert {job.spec.demand.devices for job in jobs} == {80}
    assert skipped == {workloads.TOO_LARGE: 300 - len(jobs)}
    assert str(skipped) == f"{300 - len(jobs)} skipped: would not fit on this cluster, even if it were empty"
    assert len(list(jobs_of(workload(MIXED), 1, HERE))) == 4000, "without nodes nobody knows"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"kinds": []}, "at least 1 item"),
        ({"jobs": 0}, "greater than or equal to 1"),
        ({"jobs": 10**8}, "less than or equal to 10000000"),
        ({"kinds": [{"work_s": 1, "share": 1e308}]}, "it must be from 1e-09 to 1e.09, and is 1e.308"),
        ({"kinds": [{"work_s": 1, "users": [{"name": "x", "weight": 1e308}]}]}, "less than or equal to 1000000000"),
        ({"kinds": [{"work_s": 1, "estimate_error": 1e308}]}, "less than or equal to 100"),
        ({"arrivals": {"kind": "poisson", "per_hour": 1e-320}}, "it must be from 1e-06 to 1e.09, and is 9.99989e-321"),
        ({"arrivals": {"kind": "poisson", "load": 1e300}}, "it must be from 1e-06 to 1e.09"),
        ({"arrivals": {"kind": "closed_loop", "load": 1e-300}}, "it must be from 1e-06 to 1e.09"),
        ({"arrivals": {"kind": "diurnal", "per_hour": 1, "days": [1e-200] * 7}}, "each must be 0, or from 1e-06 to 1e.06"),
        ({"arrivals": {"kind": "diurnal", "per_hour": 1, "days": [9, 9, 9, 9, 9, 1e-3, 0]}}, "or a thousandth of the greatest"),
        ({"arrivals": {"kind": "diurnal", "per_hour": 1, "hours": [1e200] * 24}}, "each must be 0, or from 1e-06 to 1e.06"),
        ({"kinds": [{"work_s": 1, "users": 0}]}, "at least 1 item"),
        ({"kinds": [{"work_s": 1, "users": [{"name": "x", "weight": 0}]}]}, "one weight must be more than 0"),
        ({"kinds": [{"work_s": {"kind": "normal", "mean": 1, "deviation": 1}}]}, "it can be negative"),
        ({"arrivals": {"kind": "recorded"}}, "does not match any of the expected tags"),
        ({"arrivals": {"kind": "poisson"}}, "give per_hour or load, one of them"),
        ({"arrivals": {"kind": "diurnal", "per_hour": 1, "hours": [0] * 24}}, "one of each must be more than 0"),
    ],
)
def test_generators_that_are_none(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
        workload(MIXED, **change)


def test_what_the_documentation_shows(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text()
    shown = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    assert [workload(each["workload"]).kind for each in shown if "workload" in each] == [
        "generated",
        "history",
        "sacct",
        "openb",
    ]
    (arrivals,) = [each for each in shown if "workload" not in each]
    assert workload(MIXED, **arrivals).arrivals.kind == "batches"
    (table,) = re.findall(r"```csv\n(.*?)```", page, re.DOTALL)
    (tmp_path / "jobs.csv").write_text(table)
    first, second, gang = jobs_of(workload({"kind": "csv", "file": "jobs.csv"}), 1, tmp_path)
    assert (first.user, second.submit_us, gang.spec.demand) == ("ada", 12_500_000, Vector(96_000, 384 << 10, 20))


# -- arrivals ------------------------------------------------------------------------------------------------------------


def offered(jobs: list[SimJob], nodes: tuple[Inventory, ...]) -> float:
    """The load that they bring, from the first to the last."""
    span = jobs[-1].submit_us - jobs[0].submit_us
    asked = [sum(job.spec.demand[i] * job.work_us for job in jobs) for i in range(3)]
    whole = [sum(node.capacity[i] for node in nodes) * span for i in range(3)]
    return Load(Vector(*asked), Vector(*whole)).mean()


def test_poisson_arrivals_at_a_load() -> None:
    jobs = list(jobs_of(workload(MIXED, arrivals={"kind": "poisson", "load": 2.0}), 1, HERE, NODES))
    assert offered(jobs, NODES) == pytest.approx(2.0, rel=0.05)
    gaps = [b.submit_us - a.submit_us for a, b in pairwise(jobs)]
    assert statistics.pstdev(gaps) == pytest.approx(statistics.fmean(gaps), rel=0.05), "as an exponential distribution"
    with pytest.raises(NeedsCapacity):
        next(jobs_of(workload(MIXED, arrivals={"kind": "poisson", "load": 2.0}), 1, HERE))


def test_poisson_arrivals_at_a_rate() -> None:
    jobs = list(jobs_of(workload(MIXED, arrivals={"kind": "poisson", "per_hour": 100}), 1, HERE))
    assert jobs[-1].submit_us == pytest.approx(40 * HOUR, rel=0.05)


def test_diurnal_arrivals_follow_the_hour_and_the_day() -> None:
    hours = [0] * 8 + [1] * 8 + [3] * 8
    days = [1, 1, 1, 1, 1, 0.5, 0]
    arrivals = {"kind": "diurnal", "per_hour": 10, "hours": hours, "days": days}
    jobs = list(jobs_of(workload(MIXED, jobs=20000, arrivals=arrivals), 1, HERE))
    assert jobs[-1].submit_us == pytest.approx(2000 * HOUR, rel=0.1)
    at = [divmod(job.submit_us // HOUR, 24) for job in jobs]
    assert [job.submit_us for job in jobs] == sorted(job.submit_us for job in jobs)
    by_hour = Counter(hour // 8 for _, hour in at)
    assert by_hour[0] == 0
    assert by_hour[2] / by_hour[1] == pytest.approx(3, rel=0.1)
    weeks = Counter(day % 7 for day, _ in at if day < 77)
    assert weeks[6] == 0
    assert weeks[5] / statistics.fmean(weeks[day] for day in range(5)) == pytest.approx(0.5, rel=0.25)


def test_hours_in_which_nobody_comes_are_not_waited_out() -> None:
    """At a thousand million an hour it would take days to draw through six silent ones."""
    sundays = {"kind": "diurnal", "per_hour": 1e9, "days": [0, 0, 0, 0, 0, 0, 1], "hours": [0] * 23 + [1]}
    jobs = list(jobs_of(workload(MIXED, jobs=300, arrivals=sundays), 1, HERE))
    assert len(jobs) == 300
    assert 167 * HOUR <= jobs[0].submit_us <= jobs[-1].submit_us < 167 * HOUR + SECOND


def test_batches_by_allox_recipe() -> None:
    """About 44 arrivals in 100 s, in batches of mean 2 of which 60 % are single, gaps of mean 4.45 s and CV 2.1."""
    sizes = {"kind": "choice", "values": [1, 2, 3, 4, 6, 20, 48], "weights": [0.6, 0.2, 0.1, 0.05, 0.04, 0.009, 0.001]}
    arrivals = {"kind": "batches", "gap_s": {"kind": "lognormal", "mean": 4.45, "deviation": 9.35}, "size": sizes}
    jobs = list(jobs_of(workload(MIXED, jobs=20_000, arrivals=arrivals), 1, HERE))
    per_100_s = len(jobs) / (jobs[-1].submit_us / (100 * SECOND))
    assert per_100_s == pytest.approx(44, rel=0.1)
    batches = Counter(Counter(job.submit_us for job in jobs).values())
    assert batches[1] / batches.total() == pytest.approx(0.6, rel=0.05)


def test_a_closed_loop_and_the_times_that_it_had() -> None:
    loop = workload(WORKLOADS[0], times_from="fifo")
    assert isinstance(arrivals_of(loop, 1, HERE), ClosedLoop)
    assert workloads.times_from(loop) == "fifo"
    assert workloads.times_from(workload(MIXED)) is None
    recorded = arrivals_of(loop, 1, HERE, times_us=range(100, 150))
    load = Load(Vector(), Vector(1, 1, 1))
    assert recorded.next_us(3, load) == 100
    come = recorded.take(120, load)
    assert [job.submit_us for job in come] == list(range(100, 121))
    assert [job.spec for job in come] == [job.spec for job in islice(jobs_of(loop, 1, HERE), 21)]
    assert recorded.next_us(200, load) == 200
    assert len(recorded.take(200, load)) == 29
    assert recorded.next_us(200, load) is None


def test_recorded_times_of_another_workload() -> None:
    recorded = arrivals_of(workload(WORKLOADS[0]), 1, HERE, times_us=range(51))
    with pytest.raises(ValueError, match="there are 51 recorded times, and 50 jobs"):
        recorded.take(100, Load(Vector(), Vector(1, 1, 1)))


def test_jobs_that_did_not_come_when_the_times_were_recorded_do_not_come_now() -> None:
    skipped = Skipped()
    recorded = arrivals_of(workload(WORKLOADS[0]), 1, HERE, times_us=range(40), skipped=skipped)
    assert len(recorded.take(100, Load(Vector(), Vector(1, 1, 1)))) == 40
    assert skipped == {arriving.NEVER_CAME: 10}


def test_jobs_in_time_come_as_listed_ones() -> None:
    jobs = list(jobs_of(workload(MIXED, jobs=200, arrivals={"kind": "poisson", "load": 1.5}), 1, HERE, NODES))

    def history(arrivals: Listed | Timed) -> list[object]:
        world = World(Site(NODES, stages("fifo", PreemptionSettings()).policy), arrivals)
        world.run()
        return [(life.submit_us, life.start_us(), life.end_us) for life in world.lives.values()]

    alone = [job._replace(spec=job.spec.__class__(job.spec.command, Vector(0, 0, 1))) for job in jobs]
    assert len(alone) == 200
    assert history(Timed(alone)) == history(Listed(alone))
    with pytest.raises(ValueError, match="not in the order"):
        Timed(alone[::-1]).take(10**15, Load(Vector(), Vector(1, 1, 1)))


def test_a_recording_can_be_faster_or_bring_a_load() -> None:
    jobs = [job._replace(submit_us=5 * HOUR + n * HOUR) for n, job in enumerate(jobs_of(workload(MIXED, jobs=400), 1, HERE))]
    capacity = Vector(320_000, 10 * 256 << 10, 80)

    def come(**facts: Any) -> list[SimJob]:
        return list(arriving.with_arrival_times(lambda: jobs, arriving.Recorded(**facts), 1, capacity))

    assert [job.submit_us for job in come()] == [n * HOUR for n in range(400)]
    assert [job.submit_us for job in come(speed=2)] == [n * HOUR // 2 for n in range(400)]
    assert offered(come(load=0.7), NODES) == pytest.approx(0.7, rel=0.01)
    with pytest.raises(ValidationError, match="give speed or load, not both"):
        arriving.Recorded(speed=2, load=1)
    nothing = [job._replace(spec=job.spec.__class__(("x",), Vector())) for job in jobs]
    with pytest.raises(ValueError, match="ask for nothing"):
        list(arriving.with_arrival_times(lambda: nothing, arriving.Recorded(load=1), 1, capacity))
