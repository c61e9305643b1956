"""FitGpp's evaluation: the right simulations are made, and what comes of them stands beside the right numbers of the paper."""

import shutil
from collections import Counter
from pathlib import Path
from statistics import NormalDist

import pytest
from click.testing import CliRunner, Result

from reproduction.__main__ import main
from reproduction.fitgpp import plan, study
from reproduction.fitgpp.figures import FIGURES
from reproduction.fitgpp.plan import FIFO, FITGPP, LRTP, PARTS, RAND, Point, Study, Traces, cases, points
from reproduction.fitgpp.published import INTERVALS, OFTEN, PREEMPTED, SLOWDOWNS
from reproduction.studies import BadDocument, Table, as_markdown, estimate_text, filled_in, number
from scheduler_service.core.model import JobClass
from scheduler_service.policies.options import AS_PUBLISHED
from scheduler_service.sim.experiments.cases import Case, simulate
from scheduler_service.sim.experiments.estimates import Estimate
from scheduler_service.sim.experiments.kept_results import load
from scheduler_service.sim.site import Nodes, Policy
from scheduler_service.sim.workloads import FitGpp
from scheduler_service.sim.workloads.fitgpp import jobs

PHILLY = Path(__file__).parents[1] / "sim" / "data" / "philly_slice_1000.csv.gz"
DOCUMENT = Path(__file__).parents[2] / "docs" / "reproduction.md"
TINY = Study(jobs=150, sets=2, figure_sets=1, repeats=2, trace_sets=1, trace_jobs=40)
OPENB = """job_id,qos,submit_s,sched_s,end_s,cpu_milli,mem_mib,num_gpus,gpu_milli
0,LS,0,0,600,12000,16384,1,1000
1,BE,5,9,700,4000,8192,0,
2,LS,7,7,90,24000,65536,8,1000
"""


def simulations(of: Study, *parts: str) -> set[Case]:
    return {case for part in parts for point in points(part) for case in cases(of, part, point)}


# ---- the workload ----------------------------------------------------------------------------------------------------------


def test_demands_are_rounded_before_they_are_cut() -> None:
    """The shares of each number of GPUs are those of the normal distribution over [-0.5, 8.5], not of [0, 8]."""
    drawn = {kind: Counter[int]() for kind in JobClass}
    for job in jobs(2**14, seed=1):
        drawn[job.spec.job_class][job.spec.demand.devices] += 1
    for kind, normal in ((JobClass.TRIAL, NormalDist(0.8, 2.3)), (JobClass.BEST_EFFORT, NormalDist(0.5, 2.4))):
        whole = normal.cdf(8.5) - normal.cdf(-0.5)
        for gpus in range(9):
            share = (normal.cdf(gpus + 0.5) - normal.cdf(gpus - 0.5)) / whole
            assert drawn[kind][gpus] / drawn[kind].total() == pytest.approx(share, abs=0.02)


# ---- the plan --------------------------------------------------------------------------------------------------------------


def test_policies_decide_as_published() -> None:
    assert FITGPP.victims() == LRTP.victims() == RAND.victims() == AS_PUBLISHED
    assert plan.fitgpp(s=8).victims() == AS_PUBLISHED._replace(s=8)
    assert plan.without_cap(RAND).victims().cap > 1000


def test_the_tables_are_made_of_eight_sets_and_four_runs_of_rand() -> None:
    made = simulations(Study(), "tables")
    assert {case.seed for case in made} == set(range(1, 9))
    assert {case.workload for case in made} == {FitGpp()}
    assert Counter(case.policy for case in made) == {
        FIFO: 8, LRTP: 8, RAND: 32, FITGPP: 8, plan.SERVED: 8,
        plan.without_cap(LRTP): 8, plan.without_cap(RAND): 32, plan.without_cap(FITGPP): 8,
    }  # fmt: skip


def test_all_other_policies_are_given_the_times_of_fifo_s_own_row() -> None:
    """So FIFO is simulated once for each workload and set, for itself and for the others."""
    made = {case.digest(): case for case in simulations(TINY, *PARTS[:-1])}
    for case in made.values():
        recording = case.recording()
        if case.policy == FIFO:
            assert recording is None
        else:
            assert recording is not None
            assert made[recording.digest()].policy == FIFO


def test_what_several_parts_need_is_simulated_once() -> None:
    alone = [len(simulations(Study(), part)) for part in PARTS[:-1]]
    assert alone == [112, 56, 40, 160, 160]
    assert len(simulations(Study(), *PARTS[:-1])) == 112 + (56 - 8) + (40 - 16) + (160 - 32) + (160 - 32 - 8) == 432


def test_a_trace_has_times_of_its_own() -> None:
    made = simulations(TINY._replace(traces=Traces(PHILLY, PHILLY)), "traces")
    assert len(made) == 2 * 6
    assert {case.recording() for case in made} == {None}


# ---- what comes of it ------------------------------------------------------------------------------------------------------


def test_lrtp_and_rand_preempt_many_times_as_often_as_fitgpp_as_the_paper_found() -> None:
    """Table 3: 9.6 and 9.7 % against 0.63 %, and not if those not needed are spared. On fewer nodes, which few jobs fill."""
    nodes = Nodes(nodes=28, cpus=32, memory_gib=256, gpus=8)
    fifo = simulate(Case(cluster=(nodes,), workload=FitGpp(jobs=1200), policy=FIFO, decide_every=60))

    def preempted(policy: Policy) -> float:
        return simulate(fifo.case.model_copy(update={"policy": policy}), fifo.times_us()).summary["preempted.share"]

    assert fifo.summary["preempted.share"] == 0
    ours = preempted(FITGPP)
    assert 0 < ours < 0.04
    assert 2 * ours < preempted(LRTP)
    assert 2 * preempted(RAND.model_copy(update={"sparing": True})) < preempted(RAND)


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it, by the command, on tiny sets; the document is filled in."""
    folder = tmp_path_factory.mktemp("reproduced")
    shutil.copy(DOCUMENT, folder / "page.md")
    (folder / "openb.csv").write_text(OPENB)
    done = run(folder, "--document", str(folder / "page.md"))
    assert done.exit_code == 0, done.output
    return folder


def run(folder: Path, *arguments: str) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "QUICK", TINY)
        patch.setattr(plan, "PAPERS_CLUSTER", Nodes(nodes=6, cpus=32, memory_gib=256, gpus=8))
        traces = ("--on-traces", str(PHILLY), str(folder / "openb.csv"))
        command = ["fitgpp", "--quick", "--on", "local[2]", "-o", str(folder / "results"), *traces, *arguments]
        return CliRunner().invoke(main, command)


def test_the_page_has_every_table_and_figure(reproduced: Path) -> None:
    page = (reproduced / "page.md").read_text()
    for title in ("Table 1", "FitGpp against FIFO", "Table 2", "Table 3", "Table 4", "Philly", "openb's demands"):
        assert f"**{title}" in page
    for name in (*FIGURES, "figure-philly", "figure-openb"):
        assert f"(page/{name}.svg)" in page
        assert (reproduced / "page" / f"{name}.svg").read_text().startswith("<?xml")
    assert "<!-- begin: table-1 -->\n**Table 1" in page
    assert "* the least run time, a minute\n" in page


def test_ebb_s_numbers_stand_beside_the_paper_s(reproduced: Path) -> None:
    page = (reproduced / "results" / "tables.md").read_text()
    of_set = {
        (summary.case.policy.title, summary.case.seed): summary.numbers["trial.slowdown.p95"]
        for summary in load(reproduced / "results").complete
        if summary.case.policy.title == "FIFO" and summary.case.workload == FitGpp(jobs=TINY.jobs)
    }
    mean = (of_set["FIFO", 1] + of_set["FIFO", 2]) / 2
    rows = {line.split(" | ")[0]: line.split(" | ") for line in reversed(page.splitlines()) if line.startswith("| ")}
    assert rows["| FIFO: paper"][1:4] == ["9.38", "33.4", "48.5"]
    assert rows["| FIFO: plain simulator"][1:4] == ["9.40", "33.4", "48.3"]
    assert rows["| FIFO: Ebb"][2].startswith(f"{number(mean)} ± ")
    assert "Ebb: 2 sets of 150 jobs, 2 runs of RAND on each" in page


def test_what_is_there_is_not_simulated_again(reproduced: Path) -> None:
    again = run(reproduced, "--part", "tables")
    assert again.exit_code == 0
    assert "simulations are there already" in again.output
    assert "to do" not in again.output
    assert "Table 1: percentiles of slowdown" in again.output
    assert "Philly" not in again.output


def test_a_document_without_a_place_is_not_touched(reproduced: Path) -> None:
    page = reproduced / "other.md"
    page.write_text("nothing\n")
    done = run(reproduced, "--part", "s", "--document", str(page))
    assert done.exit_code == 2
    assert "there is no place for fitted in it, between <!-- begin: fitted --> and <!-- end: fitted -->" in done.output
    assert page.read_text() == "nothing\n"


def test_traces_have_to_be_named() -> None:
    done = CliRunner().invoke(main, ["fitgpp", "--part", "traces"])
    assert done.exit_code == 2
    assert "for the part traces say where they are: --on-traces PHILLY OPENB" in done.output


# ---- tables ----------------------------------------------------------------------------------------------------------------


def test_what_the_paper_prints_is_whole() -> None:
    for printed, columns in ((SLOWDOWNS, 6), (INTERVALS, 4), (PREEMPTED, 1), (OFTEN, 3)):
        assert set(printed) >= {"LRTP", "RAND", "FitGpp"}
        for row in printed.values():
            assert row.plain is not None
            assert (len(row.paper), len(row.plain)) == (columns, columns)


@pytest.mark.parametrize(
    ("value", "told"),
    [(9.38, "9.38"), (33.44, "33.4"), (1, "1.00"), (0.0098, "0.00980"), (123.4, "123"), (5222.2, "5,222"), (None, "-")],
)
def test_three_digits_count(value: float | None, told: str) -> None:
    assert number(value) == told


def test_an_estimate_has_its_interval() -> None:
    assert estimate_text(Estimate(0.0961, 0.0012), 100) == "9.61 ± 0.12"
    assert estimate_text(Estimate(9.4, None)) == "9.40"
    assert estimate_text(None) == "-"


def test_a_document_is_filled_in_again_and_again() -> None:
    page = "one\n<!-- begin: a -->\nold \\1\n<!-- end: a -->\ntwo\n<!-- begin: b -->\n<!-- end: b -->\n"
    once = filled_in(page, {"a": "new \\g<0>\n"})
    assert once == "one\n<!-- begin: a -->\nnew \\g<0>\n<!-- end: a -->\ntwo\n<!-- begin: b -->\n<!-- end: b -->\n"
    assert filled_in(once, {"a": "new \\g<0>\n"}) == once
    with pytest.raises(BadDocument, match="no place for c in it"):
        filled_in(page, {"c": ""})


def test_a_table_as_markdown() -> None:
    table = Table("t", "Title", ("a", "b"), (("x", ("1", "2")),), "note")
    assert as_markdown(table) == "**Title**\n\n| | a | b |\n|---|---:|---:|\n| x | 1 | 2 |\n\nnote\n"


def test_a_point_of_figure_6_has_the_trials_it_says() -> None:
    (case,) = cases(TINY, "trials", Point(FITGPP, trials=0.9))
    assert isinstance(case.workload, FitGpp)
    assert (case.workload.trials, case.decide_every) == (0.9, 60)
