"""Parks with real agents and processes: a program leaves its devices between two steps, and goes on as it was."""

import sys
from pathlib import Path

from client_sdk import Job, JobReason, JobState, OperationPhase, RunPhase
from tests.agent.parkable import PROGRAM
from tests.harness import LIMIT, WHOLE_NODE, Site
from tests.store.waiting import wait_for


def program(site: Site, mood: str = "", **options: object) -> Job:
    """Takes a whole node, counts its steps, and parks as its mood is."""
    command = [sys.executable, "-S", "-c", PROGRAM, mood, "0.01"]
    job = site.submit(command, devices=WHOLE_NODE, grace=5, **options)
    return site.until(job, JobState.RUNNING)


def folder_of(job: Job) -> Path:
    assert job.log_path is not None
    return Path(job.log_path).parent


def steps(job: Job) -> int:
    found = next(iter(folder_of(job).rglob("steps.txt")), None)
    return int(found.read_text() or 0) if found is not None else 0


def goes_on(job: Job) -> int:
    """Waits for a step more; returns the number of steps."""
    before = steps(job)
    wait_for(lambda: steps(job) > before, LIMIT)
    return steps(job)


def test_a_program_is_parked_while_others_use_its_devices_and_goes_on_over_a_kill(site: Site) -> None:
    with site.room_for_one():
        job = program(site)
        goes_on(job)
        site.client.suspend(job, park=True)
        aside = site.until(job, JobState.SUSPENDED)
        assert (aside.reason, aside.parked, aside.devices) == (JobReason.PARKED, True, tuple(range(WHOLE_NODE)))
        stopped_at = steps(job)
        site.succeeded(site.short(devices=WHOLE_NODE))
        assert steps(job) == stopped_at, "it does no step while it is parked"
        site.cluster.kill("scheduler")
        site.database.check()
        site.restart_scheduler()
        site.wait_connected()
        release = site.file("release-devices")
        other = site.until(site.held(release, devices=WHOLE_NODE), JobState.RUNNING)
        waiting = site.client.resume(job)
        assert waiting.operation is not None
        assert waiting.operation.phase is OperationPhase.WAITING
        assert {blocker.cause_job_id for blocker in site.client.explain(job).blockers} == {other.id}
        release.touch()
        back = site.until(job, JobState.RUNNING)
        assert (back.run, back.parked, back.operation) == (1, False, None)
        assert goes_on(job) > stopped_at
        (run,) = site.client.runs(job)
        assert [each.phase.name for each in run.operations] == ["PARKING", "PARKED", "WAITING", "RESUMING"]
        assert run.operations[0].detail.startswith("cooperative, 64 MiB, residue 1 MiB")
        assert run.parks == 1
        site.client.cancel(job)
        site.client.wait(job, LIMIT)


def test_a_program_that_refuses_is_stopped_if_it_has_nothing_on_a_device(site: Site) -> None:
    job = program(site, "refuses")
    goes_on(job)
    site.client.suspend(job, park_only=True)
    site.until(job, JobState.SUSPENDED)
    (run,) = site.client.runs(job)
    assert (run.phase, run.rung, run.parked_mib) == (RunPhase.PARKED, "stopped", 0)
    stopped_at = steps(job)
    site.client.resume(job)
    site.until(job, JobState.RUNNING)
    assert goes_on(job) > stopped_at
    site.client.cancel(job)
    site.client.wait(job, LIMIT)


def test_a_parked_program_is_killed_if_its_job_is_requeued(site: Site) -> None:
    job = program(site)
    goes_on(job)
    site.client.suspend(job, park_only=True)
    site.until(job, JobState.SUSPENDED)
    site.client.requeue(job)
    wait_for(lambda: site.client.get(job.id).run == 2, LIMIT)
    site.until(job, JobState.RUNNING)
    assert [run.stop_reason for run in site.client.runs(job)] == [JobReason.UNSPECIFIED, JobReason.REQUEUED]
    site.client.cancel(job)
    site.client.wait(job, LIMIT)
