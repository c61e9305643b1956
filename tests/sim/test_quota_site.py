"""Cases under the policy `quota`: the quotas that the scheduler is given, and what jobs do within and beyond them."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from scheduler_service.core.invariants import check
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, Quota
from scheduler_service.sim.experiments.cases import Case, preview, simulate, site_of
from scheduler_service.sim.virtual_clusters import at_submit
from scheduler_service.sim.workloads import Skipped, arrivals_of
from scheduler_service.sim.world import World

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


# ---- Gandiva by quota ------------------------------------------------------------------------------------------------------


def by_gandiva(folder: Path, jobs: list[tuple[float, float, str, int]], owned: dict[str, int], **own: float) -> Case:
    """Jobs of (submit, minutes, tenant, GPUs), and tenants that own so many GPUs on three nodes."""
    lines = [f"{at:g},{60 * minutes:g},{vc},{gpus},20" for at, minutes, vc, gpus in jobs]
    (folder / "jobs.csv").write_text("\n".join(["submit_s,work_s,vc,gpus,grace_s", *lines]) + "\n")
    node = {"nodes": 3, "cpus": 48, "memory_gib": 448, "gpus": 8, "tree": {"socket": 2, "switch": 2}}
    tenants = [
        {"name": name, "owns": {GPUS: {"device": count}}, "policy": "gandiva", "settings": own} for name, count in owned.items()
    ]
    more = {"cluster": [node], "virtual_clusters": tenants, "sharing": {}, "folder": folder}
    return case({}, workload={"kind": "csv", "file": "jobs.csv"}, **more)


def moves(made: Case) -> list[tuple[int, list[int]]]:
    """Of each run that was moved: its job, and where it was."""
    return [(run["job"], run["nodes"]) for run in simulate(made).runs.to_pylist() if run["why"] == "migrated"]


def starts(made: Case) -> list[float]:
    """In minutes."""
    return [at / 60e6 for at in simulate(made).jobs["start_us"].to_pylist()]


def test_a_job_without_idle_devices_takes_turns_with_its_own_tenant(tmp_path: Path) -> None:
    """The others' runs go on as before."""
    jobs = [(0, 60, "a", 8), (0, 60, "a", 8), (0, 60, "b", 8), (60, 30, "a", 8)]
    owned = {"a": 16, "b": 8}
    made = by_gandiva(tmp_path, jobs, owned)
    assert starts(made) == [0, 0, 0, 1]
    outcome = simulate(made)
    ends = [round(at / 60e6) for at in outcome.jobs["end_us"].to_pylist()]
    assert ends[2] == 60
    assert sorted(ends[:2])[0] == 60, "one takes turns with the new one, and the other does not"
    assert 85 <= sorted(ends[:2])[1] <= 95
    assert outcome.summary["sharing.groups"] == 1
    assert starts(by_gandiva(tmp_path, jobs, owned, oversubscription=1)) == [0, 0, 0, 60]


def test_turns_are_taken_on_devices_that_count_already(tmp_path: Path) -> None:
    """In every step: no tenant's regular runs hold more devices than it owns, and no group is of two tenants."""
    rng = Random(4)
    jobs = [(300.0 * i, rng.uniform(10, 90), rng.choice("ab"), rng.choice((1, 1, 2, 4, 8))) for i in range(30)]
    owned = {"a": 8, "b": 16}
    made = by_gandiva(tmp_path, jobs, owned)
    nodes = made.inventories()
    change = at_submit(Guarantee.OVERFLOW, "quota")
    world = World(site_of(made, nodes), arrivals_of(made.workload, 1, tmp_path, None, nodes, Skipped(), change))
    groups = 0
    while (at := world.next_us()) is not None:
        world.advance(at)
        state = world.state
        check(state)
        for name, count in owned.items():
            runs = [state.runs.rows[key] for key in state.guaranteed_runs.get(name, ())]
            assert len({(run.node, device) for run in runs for device in run.devices}) <= count
        for group in state.share_groups.rows.values():
            groups += 1
            assert {state.runs.rows[key].vc for key in group.members()} == {group.vc}
    assert not list(world.unfinished_lives())
    assert groups


def test_a_server_that_is_mostly_free_is_emptied(tmp_path: Path) -> None:
    """The second job is left alone on the first node, and goes to where the third one is."""
    jobs = [(0, 20, "a", 7), (1, 300, "a", 1), (2, 300, "a", 4)]
    assert moves(by_gandiva(tmp_path, jobs, {"a": 16})) == [(2, [1])]
    assert moves(by_gandiva(tmp_path, jobs, {"a": 16}, migration=0)) == []


def test_nobody_moves_beyond_the_quota(tmp_path: Path) -> None:
    """While a job moves it holds devices at both places."""
    jobs = [(0, 20, "a", 7), (1, 300, "a", 1), (2, 300, "a", 4)]
    assert moves(by_gandiva(tmp_path, jobs, {"a": 5})) == []
