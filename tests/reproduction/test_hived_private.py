"""Private clusters, simulated by Ebb's engine and joined; and the figures that are drawn of such things."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reproduction.hived import figures as hived_figures
from reproduction.hived import measures as hived_measures
from reproduction.hived.plan import FIGURES, Setting
from reproduction.hived.published import BALANCED, CLAIMS, DEFAULT
from reproduction.hived.simulated import join_tables, read_tables
from scheduler_service.sim.experiments.cases import Case, Nodes, Outcome, Policy, simulate
from scheduler_service.sim.experiments.figures import save
from scheduler_service.sim.experiments.history import History
from scheduler_service.sim.experiments.sweep import sweep
from scheduler_service.sim.workloads import Hived
from scheduler_service.sim.workloads.hived import TENANTS, quotas

JOBS = Hived(jobs=600, days=3, tenants=("res-a", "res-b", "prod-a"), scale=2)
SHARED = Case(cluster=(Nodes(nodes=27, gpus=8),), workload=JOBS, policy=Policy(name="fifo"))


def private(shared: Case, quotas: Mapping[str, int]) -> dict[str, Case]:
    """A case for each tenant: its own jobs, which come when they do in the shared cluster, on its own nodes."""
    (nodes,) = shared.cluster
    return {
        name: shared.model_copy(
            update={
                "cluster": (nodes.model_copy(update={"nodes": quotas[name]}),),
                "workload": JOBS.model_copy(update={"tenants": (name,)}),
            }
        )
        for name in JOBS.counts()
    }


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return {name: simulate(case) for name, case in private(SHARED, quotas()).items()}


@pytest.fixture(scope="module")
def as_one(outcomes: dict[str, Outcome]) -> tuple[Any, Any]:
    return join_tables([(o.jobs, o.runs) for o in outcomes.values()], [quotas()[name] for name in outcomes])


def test_each_tenant_is_alone_on_what_it_owns(outcomes: dict[str, Outcome]) -> None:
    assert {name: o.case.cluster[0].nodes for name, o in outcomes.items()} == {"res-a": 1, "res-b": 2, "prod-a": 24}
    shared = simulate(SHARED)
    for name, outcome in outcomes.items():
        assert set(outcome.jobs["vc"].to_pylist()) == {name}
        came = set(outcome.jobs["submit_us"].to_pylist())
        all_of_it = {
            at for at, vc in zip(*(shared.jobs[c].to_pylist() for c in ("submit_us", "vc")), strict=True) if vc == name
        }
        assert came <= all_of_it
        assert len(all_of_it - came) == sum(outcome.skipped.values())


def test_joined_they_are_one_cluster(outcomes: dict[str, Outcome], as_one: tuple[Any, Any]) -> None:
    """Every run is where it was, on nodes of its tenant's own, and is its job's."""
    jobs, runs = as_one
    assert jobs["job"].to_pylist() == sorted(set(jobs["job"].to_pylist()))
    history = hived_measures.history_of(as_one, 27)
    codes, names = history.vcs
    own = {"res-a": {1}, "res-b": {2, 3}, "prod-a": set(range(4, 28))}
    for owner, nodes in zip(history.owner.tolist(), runs["nodes"].to_pylist(), strict=True):
        assert set(nodes) <= own[names[codes[owner]]]
    for name in outcomes:
        mine = (codes == names.index(name))[history.owner]
        placed = sorted(outcomes[name].runs["placed_us"].to_pylist())
        assert sorted(history.placed[mine].tolist()) == placed
    uses = hived_measures.uses(history, runs)
    level = hived_measures.busy(uses)
    assert 0 < level.largest() <= 27
    each = (History(o.jobs, o.runs, o.case.capacity()) for o in outcomes.values())
    alone = sum(
        hived_measures.gpus_in_use(hived_measures.uses(h, o.runs)).mean(0, 1e12)
        for h, o in zip(each, outcomes.values(), strict=True)
    )
    assert hived_measures.gpus_in_use(uses).mean(0, 1e12) == pytest.approx(alone)


def test_no_job_of_a_private_cluster_has_met_an_anomaly(as_one: tuple[Any, Any]) -> None:
    history = hived_measures.history_of(as_one, 27)
    delays = hived_measures.delays(history, as_one[0])
    assert delays.max() > 0
    own = {name: 8 * nodes for name, nodes in quotas().items()}
    within = hived_measures.waited_in_quota(history, delays, hived_measures.uses(history, as_one[1]), own)
    lengths = hived_measures.anomalies(hived_measures.excess(history, delays, history, delays), within)
    assert lengths.max() == 0


def test_a_shared_cluster_without_quotas_has_anomalies(as_one: tuple[Any, Any]) -> None:
    """Strict FIFO over all tenants: whoever comes behind a job that has to wait waits, too."""
    loaded = simulate(SHARED.model_copy(update={"cluster": (Nodes(nodes=5, gpus=8),)}))
    shared, alone = (hived_measures.history_of(of, 27) for of in ((loaded.jobs, loaded.runs), as_one))
    delays = hived_measures.delays(shared, loaded.jobs)
    over = hived_measures.excess(shared, delays, alone, hived_measures.delays(alone, as_one[0]))
    own = {name: 8 * nodes for name, nodes in quotas().items()}
    within = hived_measures.waited_in_quota(shared, delays, hived_measures.uses(shared, loaded.runs), own)
    found = hived_measures.count_delayed(shared, hived_measures.anomalies(over, within), 60_000_000)
    assert found["prod-a"][0] > 0


def test_what_a_sweep_keeps_is_what_is_joined(tmp_path: Path, outcomes: dict[str, Outcome]) -> None:
    case = private(SHARED, quotas())["res-b"]
    (summary,) = sweep([case], tmp_path, "local[1]", keep="all")
    jobs, runs = join_tables([read_tables(summary.folder)], [2])
    assert jobs["submit_us"].to_pylist() == outcomes["res-b"].jobs["submit_us"].to_pylist()
    assert runs["nodes"].to_pylist() == outcomes["res-b"].runs["nodes"].to_pylist()


def test_the_plan_has_what_the_paper_compares() -> None:
    assert {setting.nodes for setting in FIGURES["figure-7b"]} == {200}
    assert [setting.scheme for setting in FIGURES["figure-7a"]] == ["private", "quota", "cells"]
    assert Setting(assignment="balanced").quotas() != Setting().quotas()
    assert set(DEFAULT) == set(BALANCED) == set(TENANTS)
    for table in (DEFAULT, BALANCED):
        for name, row in table.items():
            assert row.gain == pytest.approx(100 * row.increased / row.effective, abs=0.5), name
    assert CLAIMS["preempted"].number == 55


def test_figures_are_drawn(tmp_path: Path) -> None:
    days = np.linspace(0, 20, 50).tolist()
    two = {"quota": [0.5] * 50, "cells": [0.25] * 50}
    drawn = {
        "figure-6": hived_figures.queueing(days, {"YARN-CS": two, "Tiresias": two}),
        "figure-7": hived_figures.sharing(hived_figures.Shared(days, {"prod-a": two, "prod-e": two}, two, two)),
        "figure-8": hived_figures.preemption(days, two, two),
        "figure-9": hived_figures.fragmentation(days, two),
        "figure-10": hived_figures.draw_idle(days, {"10 hours": two, "100 hours": two}),
        "figure-11": hived_figures.draw_exchanged(days, {"res-e": two, "prod-c": two, "res-f": two}),
        "figure-12": hived_figures.usage(days, two),
    }
    shown = {name: [line.get_ydata()[0] for axes in figure.axes for line in axes.lines] for name, figure in drawn.items()}
    assert shown["figure-7"] == [0.5, 0.25, 0.5, 0.25, 50, 25, 50, 25]
    assert shown["figure-9"] == [50, 25]
    assert shown["figure-12"] == [0.5, 1, 0.25, 1]
    for name, figure in drawn.items():
        assert all(path.stat().st_size > 5000 for path in save(figure, tmp_path, name))
