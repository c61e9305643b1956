"""AlloX's evaluation: the workload, the bound, what is measured, and the command."""

import math
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from reproduction.__main__ import main
from reproduction.allox import rates as allox_rates
from reproduction.allox import study as allox
from reproduction.allox.devices import weights
from reproduction.allox.measures import Measures, Seen, measures, progress
from reproduction.allox.plan import (
    PARTS,
    SRPT,
    Point,
    Study,
    Traces,
    average_speedup,
    cases,
    points,
    title,
)
from reproduction.allox.srpt import Slots, srpt
from scheduler_service.core.model import Configuration, JobSpec
from scheduler_service.core.model.values import SECOND, Micros, Vector
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.workloads import (
    Allox,
    AlloxExperiment,
    AlloxLongJobs,
    BadTrace,
    Gavel,
    Philly,
    Skipped,
    gavel,
    jobs_of,
)
from scheduler_service.sim.workloads.allox import ON_CPU, SPEEDUPS, experiment, jobs

DOCUMENT = Path(__file__).parents[2] / "docs" / "reproduction-allox.md"
RATES, PHILLY = (Path(__file__).parents[1] / "sim" / "data" / name for name in ("gavel_rates.csv", "philly_slice_1000.csv.gz"))
TINY = Study(until_s=120, varied_s=60, varied_seeds=(1,), experiments=(1, 2), rates_s=60, rate_seeds=(1, 2))
ON_TRACES = TINY._replace(traces=Traces(PHILLY, RATES), traced=60)


# ---- the workload --------------------------------------------------------------------------------------------------------


def test_the_jobs_are_as_many_and_as_long_as_the_authors() -> None:
    drawn = list(jobs(Allox(profiling=0), 1))
    assert 9_000 < len(drawn) < 11_500
    load = sum(job.times_us[0] for job in drawn) / 20 / drawn[-1].submit_us
    assert 1.1 < load < 1.45, "the GPUs alone are asked for 1.28 times what they are"
    for user, speedup in enumerate(SPEEDUPS):
        mine = [job.times_us for job in drawn if job.user == f"user-{user}"]
        assert 800 < len(mine) < 1_250
        assert fmean(on_cpu for _, on_cpu in mine) / SECOND == pytest.approx(80 + 30 * user, rel=0.03)
        logs = [math.log(on_cpu / on_gpu) for on_gpu, on_cpu in mine]
        assert fmean(logs) == pytest.approx(speedup.mu, abs=0.12)


def test_jobs_come_in_batches() -> None:
    times = [job.submit_us for job in jobs(Allox(), 2)]
    assert times == sorted(times)
    sizes = np.unique(times, return_counts=True)[1]
    gaps = [b - a for a, b in pairwise(sorted(set(times)))]
    assert (sizes == 1).mean() == pytest.approx(0.6, abs=0.03)
    assert sizes.mean() == pytest.approx(2, abs=0.15)
    assert sizes.max() <= 48
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(2.1, abs=0.6)
    assert list(jobs(Allox(until_s=600), 2)) == list(jobs(Allox(), 2))[: sum(at < 600 * SECOND for at in times)]


def test_a_rate_brings_the_arrivals_closer_together_and_changes_no_job() -> None:
    usual, twice = list(jobs(Allox(until_s=600), 2)), list(jobs(Allox(until_s=300, rate=2), 2))
    assert len(usual) == len(twice)
    assert [job.times_us for job in usual] == [job.times_us for job in twice]
    assert all(a.submit_us == pytest.approx(2 * b.submit_us, abs=2) for a, b in zip(usual, twice, strict=True))


def test_errors_change_the_estimates_alone_and_in_proportion() -> None:
    right, wrong, worse = (list(jobs(Allox(until_s=300, error=error), 3)) for error in (0, 0.1, 0.2))
    assert [job.times_us for job in right] == [job.times_us for job in worse]
    assert all(job.spec.estimate_us == job.work_us for job in right)
    error = [(a.spec.estimate_us - a.work_us, b.spec.estimate_us - b.work_us) for a, b in zip(wrong, worse, strict=True)]
    assert all(2 * once == pytest.approx(twice, abs=3) for once, twice in error)
    assert pstdev(job.spec.alternatives[0].estimate_us / job.times_us[1] for job in wrong) == pytest.approx(0.1, abs=0.03)


def test_profiling_makes_jobs_longer_in_both_configurations() -> None:
    plain, profiled = (list(experiment(AlloxExperiment(profiling=part), 1)) for part in (0, 0.2))
    for a, b in zip(plain, profiled, strict=True):
        assert all(longer == pytest.approx(1.2 * time, abs=1) for time, longer in zip(a.times_us, b.times_us, strict=True))
    assert all(1.79 < job.times_us[1] / job.times_us[0] < 10.01 for job in plain)
    assert len({job.user for job in plain}) == 4


def test_one_users_jobs_may_be_much_longer() -> None:
    plain, longer = list(jobs(Allox(until_s=300), 1)), list(jobs(AlloxLongJobs(until_s=300, factor=4), 1))
    for a, b in zip(plain, longer, strict=True):
        factor = 4 if a.user == "user-9" else 1
        assert all(time == pytest.approx(factor * usual, abs=4) for usual, time in zip(a.times_us, b.times_us, strict=True))


# ---- Philly's jobs on several models of GPU ------------------------------------------------------------------------------


def traced(**more: object) -> list[SimJob]:
    model = Gavel(file=PHILLY, rates=RATES, **more)  # type: ignore[arg-type]
    return sorted(gavel.read(model, Path(), 1, Skipped()), key=lambda job: job.submit_us)


def test_times_on_other_devices_follow_from_the_rates() -> None:
    """The table has kinds of 1 and 2 GPUs alone; the durations are taken to be those on a P100."""
    kinds = gavel.rates_of(RATES)
    assert kinds == {1: [(4.0, 2.0, 1.0), (9.0, 3.0, 0.0)], 2: [(8.0, 5.0, 2.0)]}
    mine = traced(error=0)
    assert {job.spec.demand.devices for job in mine} == {1, 2}
    durations = [job.work_us for job in jobs_of(Philly(file=PHILLY, gpus=(1, 2)), 1, Path())]
    assert [job.times_us[1] for job in mine] == durations
    for job in mine:
        models = [spec.cells.model for spec in job.spec.in_each_configuration()]
        assert models == ["v100", "p100", "k80"][: len(models)]
        assert [spec.estimate_us for spec in job.spec.in_each_configuration()] == list(job.times_us)
        found = tuple(time / job.times_us[1] for time in job.times_us)
        expected = ((1 / 2, 1, 2), (1 / 3, 1)) if job.spec.demand.devices == 1 else ((5 / 8, 1, 5 / 2),)
        assert any(len(of) == len(found) and found == pytest.approx(of, abs=1e-5) for of in expected)
    assert {len(job.times_us) for job in mine} == {2, 3}, "some do not fit into the memory of a K80"


def test_the_durations_may_have_been_on_another_device() -> None:
    on_v100, on_p100 = traced(error=0, measured_on="v100"), traced(error=0)
    assert [job.times_us[0] for job in on_v100] == [job.times_us[1] for job in on_p100]


def test_a_table_of_rates_that_lacks_a_column_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("device,model,batch_size,gpus,steps_per_s\n")
    with pytest.raises(BadTrace, match="placement"):
        gavel.rates_of(tmp_path / "rates.csv")


def test_drfa_weighs_devices_by_their_average_speedup() -> None:
    assert weights(RATES) == [4, 2, 1]


# ---- the bound -----------------------------------------------------------------------------------------------------------


def either(on_gpu: Micros, on_cpu: Micros, at: Micros = 0, user: str = "ann") -> SimJob:
    spec = JobSpec(("x",), Vector(0, 0, 1), estimate_us=on_gpu, alternatives=(Configuration(ON_CPU, estimate_us=on_cpu),))
    return SimJob(spec, on_gpu, at, user, times_us=(on_gpu, on_cpu))


def one_each(count: int) -> list[Slots]:
    return [Slots(1, [1] * count)] * 2


def test_srpt_preempts_and_moves_at_no_cost() -> None:
    """The second job takes the GPU from the first one, which goes on on the CPU at half the rate, and comes back."""
    bound = srpt([either(10_000, 20_000), either(4_000, 90_000, at=2_000)], one_each(2))
    assert bound.ends_us == [12_000, 6_000]
    mine = [(piece.configuration, piece.begin_us, piece.end_us) for piece in bound.pieces if piece.job == 0]
    assert mine == [(0, 0, 2_000), (1, 2_000, 6_000), (0, 6_000, 12_000)]


def test_srpt_gives_no_more_devices_than_there_are() -> None:
    """The second job needs both GPUs. Until the first one is done the third runs, and then it is preempted."""
    three = [either(1_000, 10**9), either(3_000, 10**9), either(5_000, 10**9)]
    bound = srpt(three, [Slots(2, [1, 2, 1]), Slots(0, [1, 1, 1])])
    assert bound.ends_us == [1_000, 4_000, 8_000]


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**6)), min_size=1, max_size=12))
def test_srpt_on_one_device_is_the_textbooks(drawn: list[tuple[int, int]]) -> None:
    """Of one device: no order of the jobs without preemption has a lower sum, and the device is never idle in vain."""
    these = [either(time, 10**15, at) for time, at in sorted(drawn, key=lambda one: one[1])]
    bound = srpt(these, [Slots(1, [1] * len(these)), Slots(0, [1] * len(these))])
    free = 0
    shortest_first: list[int] = []
    waiting = list(these)
    while waiting:
        there = [job for job in waiting if job.submit_us <= free] or [waiting[0]]
        job = min(there, key=lambda one: one.work_us)
        waiting.remove(job)
        free = max(free, job.submit_us) + job.work_us
        shortest_first.append(free)
    slack = 2 * len(these) ** 2  # each piece is rounded to a microsecond
    assert sum(bound.ends_us) <= sum(shortest_first) + slack
    assert max(bound.ends_us) == pytest.approx(free, abs=slack)


# ---- what is measured ----------------------------------------------------------------------------------------------------


def test_progress_counts_the_share_of_the_fastest_configuration_less_as_it_runs_elsewhere() -> None:
    """Two GPUs and four CPUs. Ann's job is on a GPU (1/2) from 0 to 10, Bob's, 4 times slower, on a CPU (1/8) from 0 to 40."""
    times = np.array([[10, 40], [10, 40]])
    one = np.array([[1, 1], [1, 1]])
    of = Seen(
        np.array([0, 20]), np.array([10, 40]), times, np.array([0, 1]), ["ann", "bob"], one, np.array([2, 4]),
        np.array([0, 1]), np.array([0, 1]), np.array([0, 0]), np.array([10, 40]),
    )  # fmt: skip
    found = progress(of, np.array([0.0, 10.0, 20.0, 40.0]))
    assert found.tolist() == [[0.5, 0, 0], [0.125, 0.125, 0.125]]
    assert measures(of).utilisation == (10 / 40, 20 / 80), "while jobs come, until 20"
    assert measures(of).completion_s == pytest.approx(15e-6)


# ---- the plan and the command --------------------------------------------------------------------------------------------


def test_all_policies_of_a_part_have_the_same_jobs() -> None:
    for part in PARTS:
        for point in points(part, ON_TRACES):
            for case in cases(ON_TRACES, part, point):
                assert case.seed in (1, 2)
                assert case.policy.label == title(point)
    simulated = [cases(TINY, "simulation", Point(name))[0] for name in ("allox", "drfa", "es", "sjf-plus")]
    assert len({case.model_dump_json(exclude={"policy"}) for case in simulated}) == 1
    assert average_speedup() == pytest.approx(7.5, abs=0.1)


def test_a_set_of_jobs_is_one_sample_whatever_rates_it_was_tried_at() -> None:
    def of(*completions: float) -> list[Measures]:
        return [Measures(time, 0, 0, time / 100, time, 0, 0, ()) for time in completions]

    allox, sjf = Point("allox"), Point("sjf-plus")
    measured = {
        allox: of(10, 20), allox._replace(rate=2): of(30, 40),
        sjf: of(20, 10), sjf._replace(rate=2): of(30, 60),
    }  # fmt: skip
    rows = dict(allox_rates.table(measured, TINY).rows)
    assert list(rows) == ["1: AlloX", "1: SJF+", "2: AlloX", "2: SJF+", "all: AlloX", "all: SJF+"]
    assert rows["2: SJF+"][:3] == ("45.0 ± 191", "+25.0 ± 317.7 %", "")
    # means of the sets: 20 and 30, and 25 and 35; of what SJF+ has more: +50 % (100 % and 0 %) and 0 % (-50 % and 50 %)
    assert rows["all: AlloX"][0] == "25.0 ± 63.5"
    assert rows["all: SJF+"][1] == "+25.0 ± 317.7 %"


def test_the_document_has_a_place_for_everything() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    tables = (
        "experiment",
        "claims",
        "simulation",
        "starvation",
        "alpha",
        "errors",
        "profiling",
        "rates",
        "devices",
        "busy-devices",
    )
    for name in (
        *(f"allox-{table}" for table in tables),
        *(f"figure-{n}" for n in (11, 13, 14, 15, 16, 17, 18, "rates", "devices", "busy-devices")),
    ):
        assert f"<!-- begin: {name} -->" in text
        assert f"<!-- end: {name} -->" in text


def test_the_command_fills_it_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allox, "QUICK", TINY)
    document = tmp_path / "allox.md"
    document.write_text(DOCUMENT.read_text(encoding="utf-8"))
    parts = [word for part in ("experiment", "simulation", "rates", "devices", "busy-devices") for word in ("--part", part)]
    parts += ["--on-traces", str(PHILLY), str(RATES), "--jobs", "30"]
    words = ["allox", "--quick", *parts, "--on", "local[1]", "-o", str(tmp_path / "out")]
    found = CliRunner().invoke(main, [*words, "--document", str(document)])
    assert found.exit_code == 0, found.output
    text = document.read_text()
    for name in points("simulation", TINY):
        assert f"| {title(name)} |" in text
    assert "less than DRFF" in text
    assert "30 jobs on 128 V100s, 192 P100s, 256 K80s" in text
    assert "30 jobs on 64 V100s, 96 P100s, 128 K80s" in text
    assert all(f"| {rate}: AlloX, priced |" in text for rate in ("0.85", "1", "1.15", "all"))
    assert (tmp_path / "allox" / "figure-14.svg").exists()
    assert not any(SRPT in case.policy.name for case in cases(TINY, "simulation", Point(SRPT)))


def test_the_part_on_devices_needs_the_traces() -> None:
    found = CliRunner().invoke(main, ["allox", "--part", "devices"])
    assert found.exit_code == 2
    assert "--on-traces PHILLY RATES" in found.output
