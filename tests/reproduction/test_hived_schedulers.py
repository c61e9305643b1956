"""HiveD's figure 6: three schedulers in three ways, on samples of the jobs."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from reproduction.__main__ import main
from reproduction.hived import queueing_delay as h
from reproduction.hived.plan import Study
from reproduction.hived.queueing_delay_plan import NODES, SCHEDULERS, WAYS, cases, workload
from scheduler_service.sim.experiments.cases import simulate
from scheduler_service.sim.workloads import hived
from scheduler_service.sim.workloads.hived import sampled_quotas

HOUR_US = 3_600_000_000
SHORT = Study(share=0.01)
PLACES = ("hived-figure-6", "hived-schedulers", "hived-schedulers-tenants", "hived-schedulers-claims", "hived-schedulers-above")


def test_every_scheduler_has_the_same_jobs_and_gpus_in_every_way() -> None:
    owned = sampled_quotas(NODES)
    for scheduler in SCHEDULERS.values():
        for way in WAYS:
            made = cases(scheduler, way, workload(SHORT, 1), 1)
            assert sum(case.cluster[0].nodes for case in made) == NODES
            assert all(case.workload.model_copy(update={"tenants": ()}) == workload(SHORT, 1) for case in made)
            if way == "private":
                assert {case.workload.tenants[0]: case.cluster[0].nodes for case in made} == owned


def test_who_shares_by_quota_and_who_has_none() -> None:
    """Footnote 2: Tiresias has no tenants. In virtual clusters each has its own policy."""
    jobs = workload(SHORT, 1)
    shared = {key: cases(scheduler, "shared", jobs, 1)[0] for key, scheduler in SCHEDULERS.items()}
    assert {key: case.policy.name for key, case in shared.items()} == {
        "yarn": "quota",
        "gandiva": "quota",
        "no-turns": "quota",
        "tiresias": "las",
    }
    assert shared["tiresias"].virtual_clusters == ()
    for key, inside in (("yarn", "fifo"), ("gandiva", "gandiva"), ("tiresias", "las")):
        (case,) = cases(SCHEDULERS[key], "cells", jobs, 1)
        assert case.policy.name == "cells"
        assert {vc.policy for vc in case.virtual_clusters} == {inside}
    assert dict(shared["no-turns"].virtual_clusters[0].settings)["oversubscription"] == 1


def test_samples_are_of_ten_days_at_most_and_differ() -> None:
    assert workload(SHORT, 1).span_days == pytest.approx(0.62)
    assert workload(Study(), 1).span_days == 10
    first, second = (list(hived.jobs(workload(SHORT, seed), seed)) for seed in (1, 2))
    assert first != second


def test_jobs_of_a_sample_all_end_in_every_way() -> None:
    """Those that are wider than what their tenant owns are not among them."""
    for scheduler in SCHEDULERS.values():
        for way in WAYS:
            for case in cases(scheduler, way, workload(Study(share=0.002), 1), 1):
                assert None not in simulate(case).jobs["end_us"].to_pylist()


def waits(hours: list[tuple[str, float, float]]) -> h.Waits:
    """Of (tenant, submit, how much longer it queued)."""
    tenants, submit, over = zip(*hours, strict=True)
    times = (np.array(submit) * HOUR_US).astype(np.int64)
    return h.Waits(np.array(tenants), times, times, times, np.array(over, np.float64) * HOUR_US)


def test_what_is_above_the_private_cluster_is_a_mean_over_twelve_hours() -> None:
    of = waits([("a", 1, 3), ("a", 2, 1), ("a", 20, 2), ("b", 3, 50), ("a", 31, -4)])
    assert of.of_tenant("a").worst_window() == 180, "the first one alone"
    assert waits([("a", 1, 1), ("a", 2, 3), ("a", 20, -8)]).worst_window() == 120
    assert waits([("a", 1, -1)]).worst_window() == 0, "nobody queued longer"
    assert of.of_tenant("c").worst_window() == 0
    assert (of.longer(), of.of_tenant("a").longer()) == (4, 3)


def test_samples_are_looked_at_together() -> None:
    both = h.combine_samples([waits([("a", 1, 3)]), waits([("a", 2, 1), ("b", 2, 0)])])
    assert Counter(both.tenant.tolist()) == {"a": 2, "b": 1}
    assert both.of_tenant("a").worst_window() == 180


def test_tables_and_the_figure_come_out_of_one_command(tmp_path: Path) -> None:
    document = tmp_path / "six.md"
    document.write_text("".join(f"<!-- begin: {name} -->\n<!-- end: {name} -->\n" for name in PLACES))
    asked = ["hived", "--part", "figure-6", "--share", "0.002", "--samples", "2", "--on", "local[1]"]
    told = CliRunner().invoke(main, [*asked, "-o", str(tmp_path / "results"), "--document", str(document)])
    assert told.exit_code == 0, told.output
    text = document.read_text()
    for title in ("YARN-CS, shared by quota", "Gandiva, HiveD", "Gandiva, nobody takes turns, shared by quota"):
        assert f"| {title} |" in text
    assert "| Tiresias, shared |" in text
    assert "| prod-a (1) |" in text
    assert "2 samples of 0.124 days on 12 nodes, from seed 1 on" in text
    assert "| figure 6, Tiresias:" in text
    assert (tmp_path / "six" / "hived-figure-6.svg").exists()
