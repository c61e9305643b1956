"""The study of other scores: what is compared with what, and what the tables say of it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from reproduction import victim_selection as scores
from reproduction.__main__ import main
from reproduction.fitgpp.plan import Traces
from reproduction.victim_selection import FITGPP, IN_PART, PARTS, Study, case, change, told_change
from scheduler_service.policies.options import AS_PUBLISHED
from scheduler_service.sim.experiments.cases import simulate
from scheduler_service.sim.experiments.estimates import Estimate

DOCUMENT = Path(__file__).parents[2] / "docs" / "scores.md"
TINY = Study(jobs=240, development=(101, 102), held_out=(201, 202))
PHILLY = Path(__file__).parents[1] / "sim" / "data" / "philly_slice_1000.csv.gz"


def test_what_was_chosen_by_is_not_what_it_is_judged_by() -> None:
    study = Study()
    assert not set(study.seeds("tried")) & set(study.seeds("held-out"))
    assert len(study.seeds("held-out")) == 8
    assert set(study.development + study.held_out) == set(scores.PHILLY_DAYS)


def test_all_policies_of_a_table_have_the_same_jobs() -> None:
    for part, (_, policies) in PARTS.items():
        for workload in IN_PART[part]:
            study = TINY._replace(traces=Traces(PHILLY, PHILLY))
            cases = [case(study, workload, policy, 201) for policy in (FITGPP, *policies)]
            assert len({one.model_dump_json(exclude={"policy"}) for one in cases}) == 1
            assert len({one.digest() for one in cases}) == len(cases), f"{part}, {workload}: two are the same"


def test_as_published_is_as_published() -> None:
    found = case(TINY, "published", FITGPP, 201)
    assert found.policy.victims() == AS_PUBLISHED
    assert found.decide_every == 60
    assert case(TINY, "at-once", FITGPP, 201).decide_every == 0


def test_some_of_the_gangs_are_trials() -> None:
    jobs = simulate(case(TINY, "gangs", FITGPP, 201)).jobs.to_pylist()
    kinds = {(job["class"], job["tasks"] > 1) for job in jobs}
    assert kinds == {(name, wide) for name in ("trial", "best_effort") for wide in (False, True)}
    assert all(job["end_us"] is not None for job in jobs)


def test_changes_are_seed_by_seed() -> None:
    """Of 10 and 30 the others are 11 and 33: 2 of 20 more, though the seeds themselves are far apart."""
    found = change([(10.0, 11.0), (30.0, 33.0)])
    assert found is not None
    assert found.mean == pytest.approx(0.1)
    assert found.half == pytest.approx(12.7062 * 0.05, rel=1e-4)  # t(1) = 12.7062; a standard error of (0.15 - 0.05) / 2
    assert change([(0.0, 0.0), (0.0, 0.0)]) is None
    assert change([]) is None


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Estimate(-0.12, 0.11), "-12.0 ± 11.0 *"),
        (Estimate(0.12, 0.13), "+12.0 ± 13.0"),
        (Estimate(0.5, None), "+50.0"),
        (None, "-"),
    ],
)
def test_what_leaves_out_zero_is_marked(found: Estimate | None, told: str) -> None:
    assert told_change(found) == told


def test_the_document_has_a_place_for_every_table() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for part, workloads in IN_PART.items():
        for workload in workloads:
            assert f"<!-- begin: {part}-{workload} -->" in text
            assert f"<!-- end: {part}-{workload} -->" in text


def test_the_command_fills_it_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "QUICK", TINY)
    monkeypatch.setitem(scores.IN_PART, "in-flight", ("gangs",))
    document = tmp_path / "scores.md"
    document.write_text("before\n<!-- begin: in-flight-gangs -->\n<!-- end: in-flight-gangs -->\nafter\n")
    words = ["scores", "--quick", "--part", "in-flight", "--on", "local[1]", "-o", str(tmp_path / "out")]
    found = CliRunner().invoke(main, [*words, "--document", str(document)])
    assert found.exit_code == 0, found.output
    text = document.read_text()
    assert text.startswith("before\n")
    assert "| FitGpp |" in text
    for policy in PARTS["in-flight"][1]:
        assert f"| {policy.title} |" in text
    assert "2 seeds" in text
    assert (tmp_path / "out" / "tables.md").read_text().count("|---|") == 1
