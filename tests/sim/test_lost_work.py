"""Jobs have a site's grace period if their workload says nothing, and readers are told if much work was lost."""

from pathlib import Path

import pytest

from scheduler_service.config import Config
from scheduler_service.core.model.values import SECOND
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.experiments.commands import MOST_LOST, warnings
from scheduler_service.sim.experiments.sweep import sweep
from scheduler_service.sim.site import Nodes, Policy
from scheduler_service.sim.workloads import Csv, Generated, jobs_of
from scheduler_service.sim.workloads.assuming import SITE_GRACE_S

CLUSTER = (Nodes(nodes=1, cpus=8, memory_gib=64, gpus=2),)


def generated(**of_kind: object) -> Generated:
    kind = {"work_s": {"kind": "uniform", "low": 600, "high": 6000}, "gpus": 1, "cpus": 1, **of_kind}
    return Generated.model_validate({"jobs": 40, "kinds": [kind], "arrivals": {"kind": "poisson", "per_hour": 5}})


def test_the_default_is_that_of_a_site(tmp_path: Path) -> None:
    assert Config.model_fields["default_grace"].default == SITE_GRACE_S
    (tmp_path / "jobs.csv").write_text("submit_s,work_s,grace_s\n0,10,\n1,10,0\n2,10,7\n")
    of_a_file = [job.spec.grace_us for job in jobs_of(Csv(file=Path("jobs.csv")), 1, tmp_path)]
    assert of_a_file == [SITE_GRACE_S * SECOND, 0, 7 * SECOND]
    assert {job.spec.grace_us for job in jobs_of(generated(), 1, tmp_path)} == {SITE_GRACE_S * SECOND}
    assert {job.spec.grace_us for job in jobs_of(generated(grace_s=0), 1, tmp_path)} == {0}


@pytest.mark.parametrize(("of_kind", "loses"), [({"grace_s": 0}, True), ({}, False)], ids=["no grace period", "default"])
def test_readers_are_told_if_much_work_was_lost(tmp_path: Path, of_kind: dict[str, object], loses: bool) -> None:
    """Least attained service stops jobs again and again. Without a grace period, each stop loses all of a job's work."""
    policy = Policy(name="las", settings={"threshold": 300, "budget": 20}, min_run=0)
    case = Case(cluster=CLUSTER, workload=generated(**of_kind), policy=policy, seed=1)
    (summary,) = sweep([case], tmp_path, "local[1]")
    lost = summary.numbers["lost.share"]
    assert (lost > MOST_LOST) is loses
    said = [line for line in warnings([summary]) if "of the work was lost" in line]
    assert len(said) == loses
    if loses:
        assert f"{lost:.0%} of the work was lost" in said[0]
