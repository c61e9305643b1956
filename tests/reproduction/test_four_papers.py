"""The study of four papers at once: its workload, its plan, and the command."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.patches import Rectangle

from reproduction.__main__ import main
from reproduction.four_papers import Seen, by_class, by_tenant, draw_medians, range_text
from reproduction.four_papers_plan import ALONE, INSIDE, MIXED, NODES, Traces, Way, cases, own_policies
from scheduler_service.core.model import JobClass
from scheduler_service.sim.experiments.cases import Case, preview
from scheduler_service.sim.sharing.config import Sharing
from scheduler_service.sim.sharing.kinds import UNKNOWN
from scheduler_service.sim.workloads import GavelChoices, jobs_of
from scheduler_service.sim.workloads.gavel_choices import Tenant, tenants

DATA = Path(__file__).parents[1] / "sim" / "data"
HOUR = 3600
TRACE = "submit_s,duration_s,num_gpus,vc\n" + "".join(
    f"{64 * 86400 + 600 * number},{120 if number % 3 else 9 * HOUR},{1 + number % 2},{'abc'[number % 3]}\n"
    for number in range(24)
)
RATES = "device,placement,model,batch_size,gpus,steps_per_s\n" + "".join(
    f"{device},consolidated,{name},1,{gpus},{rate}\n"
    for device, rates in {"v100": (20, 9), "p100": (10, 5), "k80": (4, 0)}.items()
    for name, rate in zip(("small", "large"), rates, strict=True)
    for gpus in (1, 2)
)
PAIRS = "device,model,batch_size,gpus,with_model,with_batch_size,steps_per_s,with_steps_per_s\np100,small,1,1,small,1,8,8\n"


@pytest.fixture
def traces(tmp_path: Path) -> Traces:
    for name, text in {"philly.csv": TRACE, "rates.csv": RATES, "pairs.csv": PAIRS}.items():
        (tmp_path / name).write_text(text)
    return Traces(tmp_path / "philly.csv", tmp_path / "rates.csv", tmp_path / "pairs.csv")


def workload(traces: Traces, **others: object) -> GavelChoices:
    told = {"file": traces.philly, "rates": traces.rates, "error": 0, "longest_s": 6 * HOUR, **others}
    return GavelChoices.model_validate(told)


def test_a_job_has_a_configuration_for_each_gpu_on_which_its_kind_runs(traces: Traces) -> None:
    jobs = list(jobs_of(workload(traces), 1, Path()))
    models = {job.kind: [one.cells.model for one in job.spec.in_each_configuration()] for job in jobs}
    assert models == {"small-1": ["v100", "p100", "k80"], "large-1": ["v100", "p100"]}
    small = next(job for job in jobs if job.kind == "small-1")
    assert [one.estimate_us / small.work_us for one in small.spec.in_each_configuration()] == [0.5, 1, 2.5]
    assert not small.times_us, "its rate follows from where it is"


def test_short_jobs_are_trials_and_long_ones_are_cut(traces: Traces) -> None:
    jobs = list(jobs_of(workload(traces), 1, Path()))
    assert {(job.spec.job_class, job.work_us // 10**6) for job in jobs} == {
        (JobClass.TRIAL, 120),
        (JobClass.BEST_EFFORT, 6 * HOUR),
    }


def test_tenants_are_those_with_the_most_jobs_of_the_time_that_is_simulated(traces: Traces) -> None:
    assert tenants(traces.philly, workload(traces, vcs=2, jobs=4)) == {
        "a": Tenant(2, 0, 6 * HOUR * (1 + 2)),
        "b": Tenant(1, 1, 120 * 2),
    }
    assert {job.vc for job in jobs_of(workload(traces, vcs=1), 1, Path())} == {"a"}


def test_each_virtual_cluster_gets_the_policy_for_its_jobs() -> None:
    found = {"long": Tenant(10, 1, 1e6), "short": Tenant(10, 9, 1e3), "some": Tenant(10, 2, 1e4)}
    assert own_policies(found) == {"short": "fitgpp", "long": "allox", "some": "gandiva"}


def test_all_ways_have_the_same_jobs_on_the_same_cluster(traces: Traces) -> None:
    made, found = cases(traces, 24, seed=1)
    assert [way.title for way in made] == [*(way.title for way in (*ALONE, *INSIDE)), MIXED]
    assert len({(case.cluster, case.workload, case.sharing, case.seed) for case in made.values()}) == 1
    for way, case in made.items():
        assert len(case.virtual_clusters) == (len(found) if way.inside else 0)
        assert preview(case)[0] == 24
        if way.inside:
            owned = [dict(vc.owns)[f"{model}-2x2"][0][1] for model in NODES for vc in case.virtual_clusters]
            assert sum(owned) == sum(NODES.values())
            assert min(owned) >= 1
    assert {vc.policy for vc in _of(made, MIXED).virtual_clusters} == {"fitgpp", "allox", "gandiva"}


def _of(made: dict[Way, Case], title: str) -> Case:
    (found,) = [case for way, case in made.items() if way.title == title]
    return found


def test_what_the_tables_lack_is_assumed_only_if_that_is_asked_for(traces: Traces) -> None:
    def kind(assume: bool, name: str) -> tuple[int, int]:
        sharing = Sharing(rates="gavel", throughputs=traces.rates, pairs=traces.pairs, assume_use=assume)
        found = sharing.model(Path()).kind(name, 1)
        assert found is not None
        return found.utilisation, found.peak_mib

    assert kind(False, "small-1") == (UNKNOWN, 0)
    assert kind(True, "small-1") == (625_000, 5120), "two do 1.6 times the work of one"
    assert kind(True, "large-1") == (1_000_000, 8192), "nobody has measured that two fit"
    with pytest.raises(ValueError, match="assume_use are for rates: gavel"):
        Sharing(assume_use=True)


def test_results_from_before_assumptions_could_be_made_are_still_valid(traces: Traces) -> None:
    made = _of(cases(traces, 24, seed=1)[0], "FIFO")
    assert made.sharing is not None
    plain = made.model_copy(update={"sharing": made.sharing.model_copy(update={"assume_use": False})})
    assert plain.digest() != made.digest()


def seen(lost: float) -> Seen:
    numbers = {"preemptions": 2, "reclaimed": 1, "sharing.packings": 0, "sharing.rate.arrivals": 0.5}
    classes = ["trial", "best_effort", "best_effort"]
    return Seen(["a", "a", "b"], classes, np.array([1.0, 10.0, 30.0]), np.array([60.0, 100.0, 300.0]), lost, numbers)


def test_tables_have_means_by_class_and_by_virtual_cluster() -> None:
    way = Way("FIFO", "fifo")
    found = {"a": Tenant(2, 1, 7200), "b": Tenant(1, 0, 3600), "c": Tenant(1, 0, 0)}
    ((_, cells),) = by_class({way: [seen(1.5)]}).rows
    assert cells == ("1.00", "1.00", "60.0", "20.0", "29.0", "200", "0.00", "50.0", "2", "1", "0", "1.50")
    ((_, cells),) = by_tenant({way: [seen(0)]}, found).rows
    assert cells == ("60.0", "100", "-", "300", "-", "-"), "b has no trials, and c no jobs"


def test_several_seeds_are_a_median_with_the_least_and_the_most() -> None:
    way = Way("FIFO", "fifo")
    late = seen(4)._replace(completion_s=np.array([90.0, 200.0, 600.0]))
    later = seen(2)._replace(completion_s=np.array([70.0, 200.0, 600.0]))
    every = {way: [seen(1.5), late, later], Way("AlloX", "allox"): [seen(1.5), seen(1.5), later]}
    (_, cells), (_, other) = by_class(every).rows
    assert cells[6] == "0.00"
    assert other[6] == "0.00 (-50.0 to 0.00)", "each seed is compared with the same seed"
    assert (cells[2], cells[5], cells[-1]) == ("70.0 (60.0 to 90.0)", "400 (200 to 400)", "2.00 (1.50 to 4.00)")
    assert cells[0] == "1.00", "all seeds have the same"
    assert "median of 3 seeds" in by_class(every).note
    (_, cells), _ = by_tenant(every, {"a": Tenant(2, 1, 7200)}).rows
    assert cells == ("70.0 (60.0 to 90.0)", "200 (100 to 200)")
    (trials, _) = draw_medians(every).axes
    bar, _ = trials.patches
    assert isinstance(bar, Rectangle)
    assert bar.get_width() == pytest.approx(70 / 60)
    assert range_text([0.0, 0.001, 0.002]) == "0.00100 (0.00 to 0.00200)"


@pytest.mark.long
def test_the_command_compares_all_ways(traces: Traces, tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    parts = ("together", "together-tenants", "figure-together")
    document.write_text("".join(f"<!-- begin: {name} -->\n<!-- end: {name} -->\n" for name in parts))
    told = [
        "together",
        "--quick",
        "--seeds",
        "2",
        "--traces",
        *map(str, traces),
        "-o",
        str(tmp_path / "results"),
        "--on",
        "local[1]",
    ]
    done = CliRunner().invoke(main, [*told, "--document", str(document)])
    assert done.exit_code == 0, done.output
    text = document.read_text()
    assert all(f"| {way.title} | " in text for way in (*ALONE, *INSIDE))
    assert "median of 2 seeds" in text
    assert "a: 8 jobs, 0 % trials" in text
    assert (tmp_path / "page" / "figure-together.svg").exists()
