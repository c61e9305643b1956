"""`python -m reproduction hived`, on the beginning of the two months."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from reproduction.__main__ import main
from reproduction.hived import fit as hived_fit
from reproduction.hived.plan import FIGURES, Setting, Study, cases, needed_settings
from reproduction.hived.published import UTILISATION
from reproduction.hived.shared import SHARING
from reproduction.hived.simulated import see
from reproduction.hived.trace import FROM_DAY, NODES, TO_DAY, cut_trace, left_out, trace_cases
from reproduction.hived.traded import EXCHANGE, gains
from scheduler_service.sim.exchange import Exchange
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.experiments.kept_results import Summary
from scheduler_service.sim.experiments.metrics import HOUR_US
from scheduler_service.sim.experiments.sweep import sweep
from scheduler_service.sim.workloads import Hived, hived

DOCUMENT = """# Sharing
<!-- begin: hived-sharing -->
<!-- end: hived-sharing -->
<!-- begin: hived-claims -->
<!-- end: hived-claims -->
<!-- begin: hived-figure-7b -->
<!-- end: hived-figure-7b -->
"""


def test_tables_and_figures_come_out_of_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a folder beside, as long as no other is named."""
    monkeypatch.chdir(tmp_path)
    document = tmp_path / "sharing.md"
    document.write_text(DOCUMENT)
    asked = ["hived", "--part", "figure-7b", "--share", "0.002", "--on", "local[1]"]
    told = CliRunner().invoke(main, [*asked, "--document", str(document)])
    assert told.exit_code == 0, told.output
    assert (tmp_path / "results" / "hived" / "tables.md").exists()
    text = document.read_text()
    for title in ("private clusters", "shared by quota", "HiveD"):
        assert f"| 200 nodes, {title} |" in text
    assert "regular jobs delayed above their private cluster under HiveD" in text
    assert (tmp_path / "sharing" / "hived-figure-7b.svg").exists()


def test_all_figures_of_sharing_are_drawn(tmp_path: Path) -> None:
    document = tmp_path / "sharing.md"
    names = [f"hived-{part}" for part in SHARING]
    places = ("hived-sharing", "hived-claims", *names)
    document.write_text("".join(f"<!-- begin: {name} -->\n<!-- end: {name} -->\n" for name in places))
    parts = [f"--part={part}" for part in SHARING]
    asked = ["hived", *parts, "--share", "0.001", "--durations", "by-size", "--on", "local[1]"]
    told = CliRunner().invoke(main, [*asked, "-o", str(tmp_path / "results"), "--document", str(document)])
    assert told.exit_code == 0, told.output
    text = document.read_text()
    assert "| 279 nodes, HiveD, cells of every level |" in text
    assert "figure 8, preempted: fewer GPUs preempted" in text
    for name in names:
        assert (tmp_path / "sharing" / f"{name}.svg").exists()


def test_figures_of_sharing_are_of_busy_days_and_exchange_is_as_fitted() -> None:
    study = Study(share=0.1, scale=0.5)
    busy, fitted = (cases(setting, study)[0].workload for setting in (Setting(), FIGURES["table-4"][0]))
    assert isinstance(busy, Hived)
    assert isinstance(fitted, Hived)
    assert (fitted.scale, fitted.durations, busy.durations) == (0.5, "by_size", "alike")
    whole = busy.model_copy(update={"scale": 2 * busy.scale})
    used = hived_fit.regular(hived.jobs(whole, study.seed), whole.span_days, hived.quotas(), hived.NODES)
    assert used == pytest.approx(UTILISATION, abs=0.02)


def test_each_setting_is_measured_against_private_clusters_that_are_as_busy() -> None:
    for part in SHARING:
        settings = needed_settings(part)
        assert {setting.private for setting in settings} <= set(settings)
        assert len(set(settings)) == len(settings)
    assert FIGURES["figure-9"][0].private == FIGURES["figure-8"][0].private
    assert FIGURES["figure-8"][-1].private.busy is False


def test_figure_9_is_of_virtual_clusters_as_in_the_paper() -> None:
    """Of promotion it has nothing, and with it the figure comes out another way."""
    for setting in FIGURES["figure-9"][:2]:
        (case,) = cases(setting, Study(share=0.01))
        assert not case.policy.promotes
    (case,) = cases(Setting(), Study(share=0.01))
    assert case.policy.promotes


# ---- on a trace ------------------------------------------------------------------------------------------------------------

DAY = 86_400


def trace(folder: Path, jobs: list[tuple[float, str, int, float]]) -> Path:
    """Of (day, virtual cluster, GPUs, hours)."""
    file = folder / "philly.csv"
    lines = [f"{round(day * DAY)},{vc},{gpus},{round(hours * 3600)}" for day, vc, gpus, hours in jobs]
    file.write_text("\n".join(["submit_s,vc,num_gpus,duration_s", *lines]))
    return file


def test_a_trace_gives_quotas_by_what_is_asked_for(tmp_path: Path) -> None:
    """Jobs that come too early or too late count for nothing, and none is kept that is wider than what its tenant owns."""
    within = [(FROM_DAY + 1, "large", 8, 30.0), (FROM_DAY + 1, "large", 16, 5.0), (FROM_DAY + 2, "small", 1, 1.0)]
    others = [(1.0, "small", 8, 999.0), (FROM_DAY + 3, "small", 16, 0.1), (TO_DAY + 1, "small", 8, 999.0)]
    of = cut_trace(trace(tmp_path, sorted([*within, *others])), 1.0, tmp_path / "out")
    assert of.quotas == {"large": NODES - 1, "small": 1}
    assert (of.jobs, of.too_wide) == (3, 1)
    assert of.asked == pytest.approx((240 + 80 + 1) / (24 * (TO_DAY - FROM_DAY) * NODES * 8))
    made = trace_cases(of, 1)
    assert {case.cluster[0].nodes for case in made.values()} == {NODES}
    assert made["private"].guarantee == "guaranteed"
    assert [pool.last - pool.first + 1 for pool in made["private"].pools] == [NODES - 1, 1]
    assert cut_trace(trace(tmp_path, within), 0.03, tmp_path / "out").jobs == 2


def test_jobs_that_are_left_out_are_told_of_one_or_many() -> None:
    assert left_out(1) == "1 more is wider than what its virtual cluster owns, and left out."
    assert left_out(1200) == "1,200 more are wider than what their virtual clusters own, and left out."


def test_tenants_of_a_trace_share_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = tmp_path / "sharing.md"
    document.write_text("<!-- begin: hived-traces -->\n<!-- end: hived-traces -->\n")
    jobs = [(FROM_DAY + i / 1000, "one" if i % 3 else "two", 1 << i % 5, 3.0) for i in range(60)]
    asked = ["hived", "--part", "traces", "--on", "local[1]"]
    told = CliRunner().invoke(main, [*asked, "--on-traces", str(trace(tmp_path, jobs)), "--document", str(document)])
    assert told.exit_code == 0, told.output
    text = document.read_text()
    for title in ("private clusters", "shared by quota", "HiveD", "HiveD, static binding"):
        assert f"| {title} |" in text
    assert "60 jobs of 2 virtual clusters" in text
    assert CliRunner().invoke(main, asked).exit_code == 2, "there is no trace"


def test_a_trace_that_is_none_is_refused_in_words(tmp_path: Path) -> None:
    asked = ["hived", "--part", "traces", "-o", str(tmp_path / "results"), "--on-traces"]
    told = CliRunner().invoke(main, [*asked, str(trace(tmp_path, [(1.0, "one", 1, 3.0)]))])
    assert (told.exit_code, "comes in days 60 to 105" in told.output) == (2, True)
    broken = tmp_path / "broken.csv"
    broken.write_text("submit_s,vc,num_gpus,duration_s\nx,one,1,3\n")
    told = CliRunner().invoke(main, [*asked, str(broken)])
    assert (told.exit_code, "line 2, column submit_s: must be a number" in told.output) == (2, True)


def test_exchange_is_set_beside_what_the_paper_prints(tmp_path: Path) -> None:
    document = tmp_path / "sharing.md"
    names = ("hived-table-4", "hived-table-5", "hived-figure-11", "hived-figure-12")
    document.write_text("".join(f"<!-- begin: {name} -->\n<!-- end: {name} -->\n" for name in names))
    parts = [f"--part={name.removeprefix('hived-')}" for name in names]
    asked = ["hived", *parts, "--share", "0.002", "--on", "local[1]"]
    told = CliRunner().invoke(main, [*asked, "-o", str(tmp_path / "results"), "--document", str(document)])
    assert told.exit_code == 0, told.output
    text = document.read_text()
    for tenant, paper in (("prod-d", "47.0"), ("res-d", "24.8")):
        assert f"| {tenant} | {paper} | " in text
    for name in names[2:]:
        assert f"(sharing/{name}.svg)" in text
        assert (tmp_path / "sharing" / f"{name}.svg").exists()
    assert "How eleven tenants share a cluster" not in text


def test_only_exchange_is_simulated_for_what_is_of_exchange() -> None:
    for part in EXCHANGE:
        settings = needed_settings(part)
        assert all(setting.scheme == "cells" for setting in settings)
        exchanging = [case for setting in settings for case in cases(setting, Study(share=0.01)) if case.exchanges_cells]
        assert len(exchanging) == 1


def test_nobody_gains_beyond_what_it_gave_took_and_used(tmp_path: Path) -> None:
    """The beginning of the two months, in which cells are exchanged sooner than is assumed of the whole."""
    settings, known = FIGURES["table-4"], {}
    found: dict[Case, Summary] = {}
    for setting in settings:
        (case,) = cases(setting, Study(share=0.01, scale=2))
        if setting.exchange:
            case = case.model_copy(update={"exchange": Exchange(offer_after_h=1, request_for_h=2)})
        (found[case],) = sweep([case], tmp_path, on="local[1]")
        known[setting] = see([case], found)
    of = gains("table-4", known)
    begin, end = known[settings[0]].edges(1)
    rows = pq.read_table(found[case].folder / "exchanges.parquet").to_pylist()
    assert {row["taker"] for row in rows if row["opened_us"] < end} == {name for name, one in of.items() if one.taken_h}
    assert any(one.increased for one in of.values())
    for name, one in of.items():
        own_h = 8 * settings[0].quotas()[name] * (end - begin) / HOUR_US
        assert one.increased * own_h <= min(one.given_h, one.taken_h, one.had_h) + 1e-6
        assert one.had_h <= one.taken_h + 1e-6


def test_whoever_owns_what_is_the_same_number_of_gpus_however_it_is_cut() -> None:
    quotas = hived.quotas(hived.NODES)
    for setting in (Setting(), Setting(assignment="levels"), Setting(scheme="static"), Setting(scheme="quota")):
        (case,) = cases(setting, Study(share=0.01))
        sizes = {"node": 8, "socket": 4, "switch": 2, "device": 1}
        owned = {
            tenant.name: sum(sizes[level] * count for _, levels in tenant.owns for level, count in levels)
            for tenant in case.virtual_clusters
        }
        assert owned == {name: 8 * nodes for name, nodes in quotas.items()}


def test_private_clusters_are_as_large_as_the_quotas() -> None:
    quotas = hived.quotas(200)
    private = cases(Setting(200, "private"), Study(share=0.01))
    assert {case.virtual_clusters[0].name: case.cluster[0].nodes for case in private} == quotas
