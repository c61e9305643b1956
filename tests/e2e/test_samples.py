"""Samples with real processes: a job whose times nobody knows is measured in each configuration and runs in the faster one."""

import sys
from pathlib import Path

from client_sdk import EstimateSource, Job, JobEventKind, JobState
from tests.harness import Site, run, run_module
from tests.store.waiting import wait_for

LIMIT = 60.0
SCRIPT = Path(__file__).with_name("matrices.py")
STEPS, SLOW, FAST = 600, 0.03, 0.005
"""Seconds of a step in each configuration: 18 s and 3 s in all."""


def story(site: Site, job: Job) -> list[str]:
    return [event.text for event in site.client.story(job) if event.kind is JobEventKind.SAMPLED]


def test_a_job_is_sampled_across_a_kill_matched_and_remembered(folder: Path) -> None:
    file, config = folder / "recording.jsonl", folder / "scheduler.yaml"
    config.write_text("policy: allox\npolicy_settings: {alpha: 1, sample_most: 50}\nheartbeat: 0.2\nsilent_after: 5\n")
    with Site(folder / "site", ["--config", str(config), "--record", str(file)], nodes=["n1"]) as site:
        go = site.file("go")

        def submit() -> Job:
            command = [sys.executable, str(SCRIPT), str(STEPS), "5", str(go)]
            fast = {"cpus": 1, "env": {"STEP_SECONDS": str(FAST)}}
            environment = {"STEP_SECONDS": str(SLOW), "OMP_NUM_THREADS": "1"}
            return site.client.submit(command, cpus=2, env=environment, alternatives=[fast])

        job = submit()
        assert wait_for(lambda: (seen := site.client.get(job)).sampling and seen.state is JobState.RUNNING, LIMIT)
        read = "SELECT more->'sampling' AS of FROM job"
        wait_for(lambda: (rows := site.database.ask(read)) and rows[0]["of"] and rows[0]["of"][3], LIMIT)
        site.cluster.kill("scheduler")
        site.restart_scheduler()
        go.touch()
        done = site.client.wait(job, 2 * LIMIT)
        assert (done.state, done.configuration, done.run, done.sampling) == (JobState.SUCCEEDED, 1, 3, False)
        slow, fast = done.estimates
        for estimate, seconds in ((slow, STEPS * SLOW), (fast, STEPS * FAST)):
            assert estimate.sources == (EstimateSource.SAMPLE,)
            assert estimate.time is not None
            assert estimate.error is not None
            assert estimate.time.total_seconds() >= seconds
            assert estimate.error < estimate.time
            assert estimate.memory_mib > 10
        assert slow.time > fast.time  # type: ignore[operator]  # both are known
        assert [text.partition(" would")[0] for text in story(site, done)] == ["configuration 0", "configuration 1"]
        shown = run([Path(sys.executable).with_name("ebb"), "show", str(job.id)], EBB_ADDRESS=site.cluster.address).stdout
        assert "by sample, memory" in shown
        again = site.client.wait(submit(), 2 * LIMIT)  # what is known of the script need not be sampled
        assert (again.state, again.configuration, again.run) == (JobState.SUCCEEDED, 1, 1)
        assert [one.sources for one in again.estimates] == [(EstimateSource.HISTORY,)] * 2
        site.check_all_ended()
    replayed = run_module("scheduler_service", "record", "replay", str(file))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "RunMeasured" in file.read_text()
