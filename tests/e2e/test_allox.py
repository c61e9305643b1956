"""AlloX with real processes: the plans of a long queue come from a process of their own, also after both were killed."""

import os
import signal
import subprocess
from pathlib import Path

from client_sdk import JobState
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
