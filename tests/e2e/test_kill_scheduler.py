"""kill -9 of the scheduler, at moments that are named and at moments that are drawn.

How a moment is hit without a line in the product is in docs/adr/0006-kill-tests.md.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from client_sdk import Job, JobEventKind, JobState
from tests.harness import LIMIT, WHOLE_NODE, Load, Site
from tests.store.waiting import wait_for


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_at_any_moment_under_load(site: Site, seed: int) -> None:
    random = Random(seed)
    with Load(site, seed) as load:
        for _ in range(2):
            load.wait_for_progress()
            threading.Event().wait(random.uniform(0, 0.3))  # the moment that was drawn
            site.cluster.kill("scheduler")
            site.database.check()  # what the dead one left is whole
            site.restart_scheduler()
            site.check_now()
        load.wait_for_progress()
    site.check_all_ended()
    load.check()


def test_after_the_commit_and_before_the_answer(site: Site) -> None:
    with ThreadPoolExecutor(1) as pool:
        with site.database.answers_withheld():
            answer = pool.submit(site.short, request_id="answer-lost")
            site.database.wait_until_withheld()
            site.cluster.kill("scheduler")
        (job_id,) = site.database.requests("answer-lost")
        assert not answer.done()
        site.restart_scheduler()
        job = answer.result(LIMIT)
    assert job.id == job_id
    assert site.short(request_id="answer-lost").id == job_id
    site.succeeded(job)
    assert site.database.requests("answer-lost") == [job_id]
    assert len(site.evidence.lines(job, "start")) == 1


def test_before_the_commit(site: Site) -> None:
    with ThreadPoolExecutor(1) as pool:
        with site.database.commits_kept_out():
            answer = pool.submit(site.short, request_id="not-committed")
            site.database.wait_until_kept_out()
            site.cluster.kill("scheduler")
        assert site.database.requests("not-committed") == []
        site.restart_scheduler()
        job = answer.result(LIMIT)
    site.succeeded(job)
    assert site.database.requests("not-committed") == [job.id]


def test_after_an_order_is_sent_and_before_the_run_is_started(site: Site) -> None:
    with site.launchers_stopped():
        job = site.until(site.short(), JobState.STARTING)
        site.wait_taken(job)  # the agent has the order
        site.cluster.kill("scheduler")
    site.evidence.wait(job, "end")
    site.restart_scheduler()
    site.succeeded(job)
    assert site.client.get(job.id).run == 1


def test_before_the_report_of_a_start_is_committed(site: Site) -> None:
    with site.launchers_stopped():
        job = site.until(site.short(0.3), JobState.STARTING)
        site.wait_taken(job)
        holding = site.database.commits_kept_out()
        holding.__enter__()
    site.database.wait_until_kept_out()  # by the report, as there is nothing else to commit
    site.cluster.kill("scheduler")
    holding.__exit__(None, None, None)
    assert site.database.ask("SELECT started_us FROM run WHERE job_id = %s", job.id) == [{"started_us": None}]
    site.restart_scheduler()
    site.succeeded(job)
    assert [line["run"] for line in site.evidence.lines(job, "start")] == [1]


def test_after_the_report_is_committed_and_before_its_acknowledgement(site: Site) -> None:
    release = site.file("release-unacknowledged")
    job = site.until(site.held(release), JobState.RUNNING)
    with site.database.answers_withheld():
        release.touch()
        site.database.wait_until_withheld()  # by the report of its end
        site.cluster.kill("scheduler")
    (row,) = site.database.ask("SELECT state FROM job WHERE id = %s", job.id)
    assert row["state"] == JobState.SUCCEEDED
    site.restart_scheduler()
    site.succeeded(job)
    site.succeeded(site.short())  # the agent's reports go on without a gap


def test_inside_a_grace_period(site: Site) -> None:
    release = site.file("release-grace")
    with site.room_for_one() as blocker:
        victim = site.trainer("--steps", "5", "--hold", "asked", "--until", release, devices=WHOLE_NODE, grace=60)
        site.until(victim, JobState.RUNNING)
        before = site.evidence.wait(victim, "start")
        trial = site.short(job_class="trial", devices=WHOLE_NODE)
        site.evidence.wait(victim, "asked")
        assert blocker.node != site.client.get(victim.id).node
        site.cluster.kill("scheduler")
        site.restart_scheduler()
        site.wait_connected()
        stopping = site.client.get(victim.id)
        assert (stopping.state, stopping.cause_job_id, stopping.preempted_for_trial) == (JobState.STOPPING, trial.id, 1)
        release.touch()
        site.succeeded(trial, victim)
    asked = site.evidence.lines(victim, "asked")
    assert [(line["run"], line["pid"]) for line in asked] == [(1, before["pid"])], "it was told once, and once only"
    check_went_on(site, victim, trial, from_step=asked[0]["step"])


def test_inside_a_checkpoint_write(site: Site) -> None:
    release = site.file("release-save")
    with site.room_for_one():
        victim = site.trainer("--steps", "5", "--hold", "saving", "--until", release, devices=WHOLE_NODE, grace=60)
        wait_for(lambda: site.checkpoints(victim), LIMIT)
        trial = site.short(job_class="trial", devices=WHOLE_NODE)
        site.evidence.wait(victim, "saving")
        site.cluster.kill("scheduler")
        site.restart_scheduler()
        assert site.being_saved(victim)
        release.touch()
        site.succeeded(trial, victim)
    assert not site.being_saved(victim)
    check_went_on(site, victim, trial, from_step=site.evidence.lines(victim, "asked")[0]["step"])


def check_went_on(site: Site, victim: Job, trial: Job, from_step: int) -> None:
    """The victim acknowledged, and its second run began where the first had stopped."""
    starts = [(line["run"], line["step"]) for line in site.evidence.lines(victim, "start")]
    assert starts == [(1, 0), (2, from_step)]
    story = site.client.story(victim.id)
    vacated = next(event for event in story if event.kind is JobEventKind.VACATED)
    assert vacated.cause_job_id == trial.id
    assert "saved its work" in vacated.text
