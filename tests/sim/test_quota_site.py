"""Cases under the policy `quota`: the quotas that the scheduler is given, and what jobs do within and beyond them."""

from typing import Any

import pytest

from scheduler_service.core.model.virtual_clusters import Quota
from scheduler_service.sim.cases import Case, preview, simulate, site_of

GPUS = "gpu-2x2x2"


def case(owns: dict[str, dict[str, dict[str, int]]], gpus: Any = 8, **more: Any) -> Case:
    """Three nodes of 8 GPUs, and jobs that run for ten minutes, on all GPUs of a node unless `gpus` says otherwise."""
    tree = {"socket": 2, "switch": 2}
    users = [{"name": f"user-{name}", "vc": name} for name in owns]
    kind = {"work_s": 600, "gpus": gpus, "grace_s": 20, "users": users}
    made = {
        "cluster": [{"nodes": 3, "gpus": 8, "tree": tree}],
        "workload": {"kind": "generated", "jobs": 20, "kinds": [kind], "arrivals": {"kind": "poisson", "load": 2}},
        "policy": {"name": "quota"},
        "virtual_clusters": [{"name": name, "owns": pools} for name, pools in owns.items()],
    }
    return Case.model_validate(made | more)


def owned(case: Case) -> dict[str, tuple[Quota, ...] | None]:
    return {request.name: request.quotas for request in site_of(case, case.inventories()).vcs}


def test_cells_of_each_level_are_so_many_devices() -> None:
    made = case({"a": {GPUS: {"node": 1, "socket": 1, "device": 3}}, "b": {}})
    assert owned(made) == {"a": (Quota(GPUS, "device", 15),), "b": ()}


def test_cells_above_the_node_are_so_many_devices() -> None:
    pools = [{"name": "all", "first": 1, "last": 2, "levels": [{"name": "rack", "of": 2}]}]
    made = case({"a": {"all": {"rack": 1}, GPUS: {"switch": 2}}}, pools=pools)
    assert owned(made) == {"a": (Quota("all", "device", 16), Quota(GPUS, "device", 4))}


def test_under_the_policy_cells_quotas_stay_as_they_are() -> None:
    made = case({"a": {GPUS: {"node": 1}}}, policy={"name": "cells"})
    assert owned(made) == {"a": (Quota(GPUS, "node", 1),)}


@pytest.mark.parametrize(
    ("owns", "said"),
    [
        ({"gpu-8": {"node": 1}}, "there is no pool 'gpu-8'"),
        ({GPUS: {"rack": 1}}, f"pool {GPUS} has no level 'rack'"),
        ({GPUS: {"node": 4}}, f"pool {GPUS} has 8 cells of the level device too few"),
    ],
)
def test_what_cannot_be_owned_is_refused_before_anything_is_simulated(owns: dict[str, dict[str, int]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        preview(case({"a": owns}))


def test_guaranteed_jobs_run_within_their_quota_alone() -> None:
    """Although each has 8 GPUs of one node, which cells of one device do not guarantee."""
    outcome = simulate(case({"a": {GPUS: {"node": 1}}, "b": {GPUS: {"device": 8}}}, guarantee="guaranteed"))
    runs = outcome.runs.to_pylist()
    assert len(runs) == 20
    assert all(run["guaranteed_us"] == run["placed_us"] for run in runs)
    assert most_at_once(runs) == 2, "nobody owns the third node"


def test_other_jobs_run_beyond_their_quota() -> None:
    outcome = simulate(case({"a": {GPUS: {"node": 1}}, "b": {GPUS: {"device": 8}}}))
    assert most_at_once(outcome.runs.to_pylist()) == 3


def test_a_guaranteed_job_wider_than_the_quota_never_starts_and_blocks_nobody() -> None:
    sizes = {"kind": "choice", "values": [4, 8]}
    table = simulate(case({"a": {GPUS: {"socket": 1}}}, gpus=sizes, guarantee="guaranteed")).jobs
    assert {(job["gpus"], job["end_us"] is None) for job in table.to_pylist()} == {(4, False), (8, True)}


def most_at_once(runs: list[dict[str, Any]]) -> int:
    times: list[tuple[int, int]] = [(run["placed_us"], run["ended_us"]) for run in runs]
    return max(sum(begin <= at < end for begin, end in times) for at, _ in times)
