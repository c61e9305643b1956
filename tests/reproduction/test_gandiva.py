"""Gandiva's evaluation: its plan, its tables, and the command."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from reproduction.__main__ import main
from reproduction.gandiva import published
from reproduction.gandiva import shared as gandiva_shared
from reproduction.gandiva import study as gandiva
from reproduction.gandiva.growing import Span, spans, table
from reproduction.gandiva.plan import (
    BASELINE,
    GANDIVA,
    PARTS,
    QUICK,
    TURNS,
    Part,
    Study,
    Traces,
    cases,
    policies,
)
from reproduction.gandiva.tables import shares
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.workloads import GandivaShared

DATA = Path(__file__).parents[1] / "sim" / "data"
TRACES = Traces(DATA / "philly_slice_1000.csv.gz", DATA / "gavel_rates.csv", DATA / "gavel_pairs.csv")
TINY = QUICK._replace(traces=TRACES)


def test_what_the_paper_prints_fits_together() -> None:
    assert pytest.approx(0.77, abs=0.005) == published.LESS_EARLY
    assert pytest.approx(0.253, abs=0.001) == published.MORE_UTILISATION
    assert pytest.approx((0.212, 0.151), abs=0.001) == (published.LESS_COMPLETION, published.LESS_MAKESPAN)


@pytest.mark.parametrize("part", PARTS)
def test_each_policy_has_the_same_jobs_on_the_same_cluster(part: Part) -> None:
    for of in zip(*(cases(TINY, part, name) for name in policies()), strict=True):
        assert len({(case.cluster, case.workload, case.sharing, case.seed) for case in of}) == 1
        assert len({case.policy.name for case in of}) == len(of) >= 2
        assert of[0].sharing is not None


def test_the_clusters_are_the_papers() -> None:
    gpus = {part: cases(Study(traces=TRACES), part, BASELINE)[0].capacity().devices for part in PARTS}
    assert gpus == {"slicing": 4, "growing": 4, "experiment": 180, "trace": 100, "measured": 100}


def test_the_command_makes_the_table_of_figure_9(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("<!-- begin: figure-9 -->\n<!-- end: figure-9 -->\n")
    told = ["gandiva", "--part", "slicing", "-o", str(tmp_path / "results"), "--document", str(document)]
    done = CliRunner().invoke(main, told)
    assert done.exit_code == 0, done.output
    text = document.read_text()
    assert "| paper | 66.7 | " in text
    assert "| round robin | 66." in text
    for policy in (TURNS, GANDIVA):
        (fair,) = [shares(folder) for folder in (tmp_path / "results").iterdir() if _is_of(folder, policy)]
        assert (*fair.long, *fair.short) == pytest.approx((4 / 6,) * 6, abs=0.02), "jobs change places"


def test_the_command_makes_the_table_and_the_figure_of_figure_11(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    parts = ("figure-11", "growing")
    document.write_text("".join(f"<!-- begin: {name} -->\n<!-- end: {name} -->\n" for name in parts))
    told = ["gandiva", "--part", "growing", "-o", str(tmp_path / "results"), "--document", str(document)]
    done = CliRunner().invoke(main, told)
    assert done.exit_code == 0, done.output
    assert "| minute 45: the job with two GPUs ends | 4 | 4 | " in document.read_text()
    assert (tmp_path / "page" / "growing.svg").exists()
    (folder,) = [folder for folder in (tmp_path / "results" / "growing").iterdir() if _is_of(folder, GANDIVA)]
    elastic, *others = spans(folder)
    assert [span.gpus for span in elastic] == [1, 2, 4, 2, 1]
    begun = [span.begin for span in elastic[1:]]
    assert begun == pytest.approx([30, 50, 75, 85], abs=1.5), "growth waits for five idle minutes, and shrinking for nothing"
    assert all(job[0].begin == pytest.approx(at, abs=0.5) for job, at in zip(others, (0, 0, 75, 85), strict=True))


def test_the_table_of_figure_11_has_no_number_where_nothing_followed() -> None:
    growing = {GANDIVA: [[Span(0, 45, 1), Span(50, 225, 4)]], BASELINE: [[Span(0, 225, 1)]]}
    rows = dict(table(growing).rows)
    assert rows["minute 25: the job with one GPU ends"] == ("2", "-", "-")
    assert rows["minute 45: the job with two GPUs ends"] == ("4", "4", "300")
    assert rows["minute 75: a job with two GPUs comes"] == ("2", "-", "-")


def test_the_command_makes_the_table_of_figure_18(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gandiva, "QUICK", QUICK._replace(shared_days=0.03, shared_at_min=20))
    document = tmp_path / "page.md"
    document.write_text("<!-- begin: figure-18 -->\n<!-- end: figure-18 -->\n")
    told = ["gandiva", "--quick", "--part", "shared", "-o", str(tmp_path / "results"), "--document", str(document)]
    done = CliRunner().invoke(main, told)
    assert done.exit_code == 0, done.output
    rows = [line.split("|")[1:-1] for line in document.read_text().splitlines() if line.startswith("| search")]
    assert [row[0].strip() for row in rows] == ["search 1", "search 2"]
    for row in rows:
        first, ours, faster = float(row[2]), float(row[4]), float(row[6])
        assert faster == pytest.approx(first / ours, rel=0.02)
        assert faster > 4


def test_each_search_of_figure_18_has_eight_gpus_and_both_ways_have_the_same_configurations() -> None:
    made = gandiva_shared.cases(1.5, 1440, [1])
    fifo, ours = (made[policy][0] for policy in (BASELINE, GANDIVA))
    assert fifo.cluster == ours.cluster
    assert [vc.owns for vc in fifo.virtual_clusters] == [vc.owns for vc in ours.virtual_clusters]
    plain = {"exclusive": 0, "live": 0}
    assert isinstance(ours.workload, GandivaShared)
    same = tuple(search.model_copy(update=plain) for search in ours.workload.searches)
    assert ours.workload.model_copy(update={"searches": same}) == fifo.workload
    owned = {vc.name: 4 * sum(count for _, levels in vc.owns for _, count in levels) for vc in fifo.virtual_clusters}
    assert owned == {"search-1": 8, "search-2": 8, "others": 84}


def _is_of(folder: Path, policy: str) -> bool:
    case = folder / "case.json"
    return case.exists() and Case.model_validate_json(case.read_text()).policy.name == policy


def test_the_part_with_real_jobs_asks_for_its_files() -> None:
    done = CliRunner().invoke(main, ["gandiva", "--part", "measured"])
    assert done.exit_code == 2
    assert "--on-traces" in done.output


@pytest.mark.long
def test_all_parts_together(tmp_path: Path) -> None:
    files = [str(file) for file in TRACES]
    done = CliRunner().invoke(main, ["gandiva", "--quick", "-o", str(tmp_path), "--on-traces", *files])
    assert done.exit_code == 0, done.output
    tables = (tmp_path / "tables.md").read_text()
    assert all(title in tables for title in ("Figure 9", "Figure 11", "Figure 18", "Section 6.3", "Table 5", "Gavel"))
