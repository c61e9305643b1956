"""The Gandiva paper's workloads, and cases that share devices."""

from collections import Counter
from pathlib import Path

import pytest
from pydantic import ValidationError

from scheduler_service.core.model.values import SECOND
from scheduler_service.sim.experiments.cases import Case, preview, simulate
from scheduler_service.sim.sharing.config import Sharing
from scheduler_service.sim.sharing.kinds import GANDIVA
from scheduler_service.sim.site import Nodes, Policy
from scheduler_service.sim.workloads import Csv, Gandiva, GandivaSlicing, GandivaTrace, GavelKinds, jobs_of, write
from scheduler_service.sim.workloads.gandiva import HIGH, LARGE, LOW, MID, MINUTE

DATA = Path(__file__).parent.parent / "data"
SERVER = {"cpus": 12, "memory_gib": 448, "gpus": 4, "gpu_memory_gib": 24}


def test_the_experiment_has_the_papers_mix() -> None:
    jobs = list(jobs_of(Gandiva(jobs=4000), 1, Path()))
    count = Counter(job.kind for job in jobs)
    shares = [sum(count[kind] for kind in of) / len(jobs) for of in (LOW, MID, HIGH)]
    assert shares == pytest.approx([0.3, 0.25, 0.45], abs=0.03)
    assert {job.spec.demand.devices for job in jobs if job.kind in LARGE} == {2, 4}
    assert {job.spec.demand.devices for job in jobs if job.kind not in LARGE} == {1}
    gpu_time = [job.work_us * job.spec.demand.devices / MINUTE for job in jobs]
    assert min(gpu_time) >= 30
    assert max(gpu_time) <= 45.001
    times = [job.submit_us for job in jobs]
    assert times == sorted(times)
    assert times[-1] < 7200 * SECOND


def test_the_trace_has_the_papers_mix_and_the_load_that_is_asked_for() -> None:
    model = GandivaTrace(jobs=3000, load=0.9)
    jobs = list(jobs_of(model, 1, Path()))
    users = Counter(job.user for job in jobs)
    assert [users[name] / 3000 for name in ("cv", "nlp", "speech")] == pytest.approx([0.1, 0.6, 0.3], abs=0.03)
    asked = sum(job.work_us * job.spec.demand.devices for job in jobs)
    assert asked / (100 * 8.25 * 24 * 60 * MINUTE) == pytest.approx(0.9, rel=1e-6)
    assert all(job.kind in GANDIVA for job in jobs)


def test_kinds_survive_the_csv(tmp_path: Path) -> None:
    jobs = list(jobs_of(Gandiva(jobs=20), 3, tmp_path))
    write(jobs, tmp_path / "jobs.csv")
    assert [job.kind for job in jobs_of(Csv(file=Path("jobs.csv")), 1, tmp_path)] == [job.kind for job in jobs]


def test_jobs_of_a_real_trace_have_kinds_that_were_measured_with_their_gpus() -> None:
    rates = DATA / "gavel_rates.csv"
    jobs = list(jobs_of(GavelKinds(file=DATA / "philly_slice_1000.csv.gz", rates=rates), 1, Path()))
    measured = {tuple(line.split(",")[2:5]) for line in rates.read_text().splitlines()}
    assert jobs
    assert all((*job.kind.rsplit("-", 1), str(job.spec.demand.devices)) in measured for job in jobs)


def case(policy: str = "round-robin", **sharing: object) -> Case:
    made = Sharing(**sharing)  # type: ignore[arg-type]
    cluster = (Nodes(nodes=2, **SERVER),)  # type: ignore[arg-type]
    return Case(cluster=cluster, workload=Gandiva(jobs=40, hours=0.2), policy=Policy(name=policy), sharing=made)


def test_a_case_that_shares_tells_how_and_no_figures_of_single_holders() -> None:
    summary = simulate(case(stable=(60, 1200))).summary
    assert summary["unfinished"] == 0
    assert summary["sharing.groups"] > 0
    assert 0 < summary["sharing.utilisation.stable"] <= 1
    assert 0 < summary["sharing.rate"] <= 1
    assert summary["sharing.early.jobs"] == 40
    assert not [name for name in summary if name.startswith(("gpu_h", "utilisation.gpu"))]


def test_jobs_that_take_turns_have_early_feedback() -> None:
    waiting, turns = (simulate(case(policy, slices="exact")).summary for policy in ("fifo", "round-robin"))
    assert waiting["sharing.parks"] == 0
    assert turns["sharing.early_s.mean"] < waiting["sharing.early_s.mean"] / 2


def test_the_digest_of_a_case_depends_on_how_devices_are_shared_and_on_files_of_rates(tmp_path: Path) -> None:
    plain = case().model_copy(update={"sharing": None})
    assert len({plain.digest(), case().digest(), case(park=1).digest()}) == 3
    assert '"sharing"' not in str(sorted(plain.files()))
    (tmp_path / "alone.csv").write_text("a")
    (tmp_path / "pairs.csv").write_text("b")
    gavel = case(rates="gavel", throughputs="alone.csv", pairs="pairs.csv").model_copy(update={"folder": tmp_path})
    before = gavel.digest()
    (tmp_path / "pairs.csv").write_text("c")
    assert gavel.digest() != before


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"rates": "gavel"}, "give throughputs and pairs"),
        ({"pairs": "x.csv"}, "are for rates: gavel"),
        ({"stable": (5, 5)}, "is not after"),
        ({"copy": 1}, "Extra inputs"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Sharing.model_validate(wrong)


def test_figure_9_has_four_long_jobs_and_two_short_ones() -> None:
    jobs = list(jobs_of(GandivaSlicing(), 1, Path()))
    assert [(job.submit_us // MINUTE, job.work_us // MINUTE) for job in jobs] == [(0, 100)] * 4 + [(25, 20)] * 2


def test_gpus_of_which_no_rates_are_known_are_refused_before_anything_is_simulated() -> None:
    rates, pairs = DATA / "gavel_rates.csv", DATA / "gavel_pairs.csv"
    gavel = case(rates="gavel", throughputs=rates, pairs=pairs)
    with pytest.raises(ValueError, match="no rates of GPUs of the model 'gpu'; it has k80, p100, v100"):
        preview(gavel)
    known = (Nodes(nodes=2, model="p100", **SERVER),)  # type: ignore[arg-type]
    assert preview(gavel.model_copy(update={"cluster": known}))[0] == 40
