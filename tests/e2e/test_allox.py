"""AlloX with real processes: the plans of a long queue come from a process of their own, also after both were killed; and a
virtual cluster that goes by AlloX gives each job the right one of its own cells."""

import os
import signal
import subprocess
from pathlib import Path

from client_sdk import CellQuota, Job, JobState, VirtualClusterPolicy
from tests.harness import Site, run_module
from tests.store.waiting import wait_for

LIMIT = 60.0


def planners(scheduler: int) -> list[int]:
    """Processes that make plans: the children of the scheduler that are interpreters started by multiprocessing."""
    found = subprocess.run(["pgrep", "-P", str(scheduler), "-f", "spawn_main"], capture_output=True, text=True, check=False)
    return list(map(int, found.stdout.split()))


def test_plans_are_made_elsewhere_survive_kills_and_are_replayed(folder: Path) -> None:
    file = folder / "recording.jsonl"
    config = folder / "scheduler.yaml"
    config.write_text("policy: allox\npolicy_settings: {long: 0, period: 0.2, alpha: 1}\n")
    with Site(folder / "site", ["--config", str(config), "--record", str(file)], nodes=["n1"]) as site:
        other = {"cpus": 8, "estimate": "1s", "command": ["sh", "-c", "test $EBB_CONFIGURATION = 1"]}
        job = site.client.submit(["false"], cpus=16, estimate="1h", alternatives=[other])
        done = site.client.wait(job, LIMIT)
        assert (done.state, done.configuration) == (JobState.SUCCEEDED, 1)
        scheduler = site.cluster.processes["scheduler"].pid
        wait_for(lambda: planners(scheduler), LIMIT)
        for planner in planners(scheduler):
            os.kill(planner, signal.SIGKILL)
        assert site.client.wait(site.client.submit(["true"], estimate="1s"), LIMIT).state is JobState.SUCCEEDED
        release = site.file("release")
        running = site.held(release)
        site.until(running, JobState.RUNNING)
        queued = [site.client.submit(["true"], cpus=20, estimate="1s") for _ in range(3)]
        site.cluster.kill("scheduler")
        assert planners(scheduler) == []
        site.restart_scheduler()
        release.touch()
        site.succeeded(running, *queued)
        site.check_all_ended()
    replayed = run_module("scheduler_service", "record", "replay", str(file))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "PlanReady" in file.read_text()


TENANTS = """
virtual_clusters: true
pools:
  - {name: a100, nodes: [fast]}
  - {name: v100, nodes: [slow]}
"""


def test_a_virtual_cluster_gives_each_job_the_right_one_of_its_cells(folder: Path) -> None:
    """By plans of the other process, over a restart of the scheduler, and at once. What is explained comes from the story."""
    file, config = folder / "recording.jsonl", folder / "scheduler.yaml"
    config.write_text(TENANTS)
    with Site(folder / "site", ["--config", str(config), "--record", str(file)], nodes=()) as site:
        for node, devices in (("fast", "dgx-a100"), ("slow", "pcie-8")):
            site.cluster.start_agent(node, devices)
            site.nodes.append(node)
        site.wait_connected()
        owned = [CellQuota(pool=pool, level="device", cells=1) for pool in ("a100", "v100")]
        planned = VirtualClusterPolicy(name="allox", settings={"long": 0, "period": 0.2, "alpha": 1})
        at_once, in_order = VirtualClusterPolicy(name="allox", settings={"alpha": 1}), VirtualClusterPolicy(name="fifo")
        policies = {"planned": planned, "at-once": at_once, "other": in_order}
        for vc, policy in policies.items():
            site.client.create_virtual_cluster(vc, quotas=owned, policy=policy)
        releases = {vc: site.file(f"release-{vc}") for vc in policies}

        def held(vc: str, pool: str) -> Job:
            job = site.held(releases[vc], vc=vc, pool=pool, devices=1, estimate="1s")
            return site.until(job, JobState.RUNNING)

        def submitted(vc: str, on_a100: str, on_v100: str) -> Job:
            other = {"devices": 1, "pool": "v100", "estimate": on_v100}
            return site.held(done, vc=vc, pool="a100", devices=1, estimate=on_a100, alternatives=[other])

        done = site.file("done")
        others = [held("other", pool) for pool in ("a100", "v100")]
        for vc in ("planned", "at-once"):
            before = [held(vc, pool) for pool in ("a100", "v100")]
            either, fast = submitted(vc, "10s", "12s"), submitted(vc, "10s", "100s")
            if vc == "planned":
                site.cluster.kill("scheduler")
                site.restart_scheduler()
            releases[vc].touch()
            site.succeeded(*before)
            either, fast = (site.until(job, JobState.RUNNING) for job in (either, fast))
            assert [(job.configuration, job.node, job.guaranteed) for job in (either, fast)] == [
                (1, "slow", True),
                (0, "fast", True),
            ]
            compared = site.client.explain(fast).configuration_reason
            assert compared.startswith("estimated: configuration 0 10 s")
            assert "configuration 1 100 s" in compared
        assert all(site.client.get(job).state is JobState.RUNNING for job in others), "they are in cells of their own"
        done.touch()
        releases["other"].touch()
        site.check_all_ended()
        assert site.client.explain(fast).configuration_reason == compared
    replayed = run_module("scheduler_service", "record", "replay", str(file))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "PlanReady" in file.read_text()
