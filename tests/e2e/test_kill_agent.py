"""kill -9 of an agent, at moments that are named and at moments that are drawn. Its jobs go on without it."""

import os
import signal
import threading
from pathlib import Path
from random import Random

import pytest

from client_sdk import JobEventKind, JobReason, JobState
from tests.harness import LIMIT, WHOLE_NODE, Load, Site, alive, job_processes
from tests.store.waiting import wait_for


@pytest.mark.parametrize("seed", [11, pytest.param(12, marks=pytest.mark.long)])
def test_at_any_moment_under_load(site: Site, seed: int) -> None:
    random = Random(seed)
    with Load(site, seed) as load:
        for _ in range(2):
            load.wait_for_progress()
            threading.Event().wait(random.uniform(0, 0.3))  # the moment that was drawn
            before = site.client.nodes()
            victims = random.choice([["n1"], ["n2"], ["n1", "n2"]])
            for node in victims:
                site.cluster.kill(node)
            site.check_now()
            for node in victims:
                site.cluster.restart_agent(node)
            site.wait_connected(since=[node for node in before if node.name in victims])
            site.check_now()
        load.wait_for_progress()
    site.check_all_ended()
    load.check()


def test_running_jobs_go_on(site: Site) -> None:
    release = site.file("release-running")
    job = site.until(site.held(release, devices=2), JobState.RUNNING)
    pid = site.evidence.wait(job, "start")["pid"]
    restart_agent(site, job.node or "")
    still = site.client.get(job.id)
    assert (still.state, still.run, still.node, still.devices) == (JobState.RUNNING, 1, job.node, job.devices)
    assert job_processes(site.folder) == {job.id: [pid]}
    release.touch()
    site.succeeded(job)
    assert [(line["event"], line["pid"]) for line in site.evidence.lines(job)] == [("start", pid), ("end", pid)]


def test_a_job_that_ends_while_no_agent_is_there(site: Site) -> None:
    release = site.file("release-alone")
    job = site.until(
        site.submit(["sh", "-c", 'until [ -e "$1" ]; do sleep 0.02; done; exit 7', "sh", release]), JobState.RUNNING
    )
    pid = job_processes(site.folder)[job.id][0]
    before = [site.node(job.node or "")]
    site.cluster.kill(job.node or "")
    release.touch()
    wait_for(lambda: not alive(pid), LIMIT)
    site.cluster.restart_agent(job.node or "")
    site.wait_connected(since=before)
    ended = site.client.wait(job, LIMIT)
    assert (ended.state, ended.exit_code, ended.reason) == (JobState.FAILED, 7, JobReason.EXITED)


def test_after_an_order_is_sent_and_before_the_agent_has_it(site: Site) -> None:
    for node in site.nodes:
        site.cluster.kill(node, signal.SIGSTOP)
    job = site.until(site.short(), JobState.STARTING)
    before = site.client.nodes()
    for node in site.nodes:
        site.cluster.kill(node)
        site.cluster.restart_agent(node)
    site.wait_connected(since=before)
    site.succeeded(job)
    assert site.client.get(job.id).run == 1


def test_after_an_order_is_taken_and_before_its_process_is_there(site: Site) -> None:
    with site.launchers_stopped():
        job = site.until(site.short(), JobState.STARTING)
        site.wait_taken(job)
        before = [site.node(job.node or "")]
        site.cluster.kill(job.node or "")
    site.cluster.restart_agent(job.node or "")
    site.wait_connected(since=before)
    site.succeeded(job)
    assert site.client.get(job.id).run == 1


def test_after_a_process_started_and_before_its_report_is_acknowledged(site: Site) -> None:
    release = site.file("release-unreported")
    with site.launchers_stopped():
        job = site.until(site.held(release), JobState.STARTING)
        site.wait_taken(job)
        holding = site.database.commits_kept_out()
        holding.__enter__()
    pid = site.evidence.wait(job, "start")["pid"]
    site.database.wait_until_kept_out()
    site.cluster.kill(job.node or "")
    holding.__exit__(None, None, None)
    before = [site.node(job.node or "")]
    site.cluster.restart_agent(job.node or "")
    site.wait_connected(since=before)
    assert job_processes(site.folder) == {job.id: [pid]}
    release.touch()
    site.succeeded(job)
    assert site.client.get(job.id).run == 1


def test_inside_a_grace_period(site: Site) -> None:
    release = site.file("release-agent-grace")
    with site.room_for_one():
        victim = site.trainer("--steps", "5", "--hold", "asked", "--until", release, devices=WHOLE_NODE, grace=60)
        victim = site.until(victim, JobState.RUNNING)
        site.evidence.wait(victim, "start")
        trial = site.short(job_class="trial", devices=WHOLE_NODE)
        asked = site.evidence.wait(victim, "asked")
        restart_agent(site, victim.node or "")
        assert site.client.get(victim.id).state is JobState.STOPPING
        assert alive(asked["pid"])
        release.touch()
        site.succeeded(trial, victim)
    assert len(site.evidence.lines(victim, "asked")) == 1
    assert [(line["run"], line["step"]) for line in site.evidence.lines(victim, "start")] == [(1, 0), (2, asked["step"])]


def test_a_grace_period_that_runs_out_while_no_agent_is_there(site: Site) -> None:
    with site.room_for_one():
        never = site.file("release-never")
        victim = site.trainer("--steps", "5", "--hold", "asked", "--until", never, devices=WHOLE_NODE, grace=1)
        victim = site.until(victim, JobState.RUNNING)
        wait_for(lambda: site.checkpoints(victim), LIMIT)
        trial = site.short(job_class="trial", devices=WHOLE_NODE)
        asked = site.evidence.wait(victim, "asked")
        restart_agent(site, victim.node or "")
        site.succeeded(trial, victim)  # as the next agent ended it
    first, second = site.evidence.lines(victim, "start")
    assert (first["run"], first["step"], second["run"]) == (1, 0, 2)
    assert second["step"] == (asked["step"] - 1) // 10 * 10, "the checkpoint before"


@pytest.mark.parametrize("what", ["the job", "the job, its agent and the launcher"])
def test_inside_a_checkpoint_write(site: Site, what: str) -> None:
    """The file that was being written is not there; the one before it is, and the job goes on from it."""
    release = site.file("release-never")
    with site.room_for_one():
        victim = site.trainer("--steps", "5", "--hold", "saving", "--until", release, devices=WHOLE_NODE, grace=60)
        victim = site.until(victim, JobState.RUNNING)
        wait_for(lambda: site.checkpoints(victim), LIMIT)
        trial = site.short(job_class="trial", devices=WHOLE_NODE)
        asked = site.evidence.wait(victim, "asked")
        pid = site.evidence.wait(victim, "saving")["pid"]
        (unfinished,) = site.being_saved(victim)
        assert unfinished.stat().st_size > 1 << 20, "half of it is written"
        kept = site.checkpoints(victim)
        node = victim.node or ""
        if what != "the job":
            before = [site.node(node)]
            launcher = site.launcher(node)
            site.cluster.kill(node)
            os.kill(launcher, signal.SIGKILL)
        os.killpg(pid, signal.SIGKILL)
        if what != "the job":
            site.cluster.restart_agent(node)
            site.wait_connected(since=before)
        site.succeeded(trial, victim)
    assert not site.being_saved(victim)
    assert kept[-1].exists()
    assert [(line["run"], line["step"]) for line in site.evidence.lines(victim, "start")] == [
        (1, 0),
        (2, (asked["step"] - 1) // 10 * 10),
    ]
    story = [(event.kind, event.reason) for event in site.client.story(victim.id)]
    assert (JobEventKind.REQUEUED, JobReason.PREEMPTED) in story


def test_a_spool_that_is_lost(folder: Path) -> None:
    """Its successor is taken for a twin at first, and accepted once the node counts as silent."""
    settings = folder / "scheduler.yaml"
    settings.write_text("heartbeat: 0.5\nsilent_after: 2\n")
    with Site(folder / "site", ("--config", str(settings)), nodes=("n1",)) as site:
        release = site.file("release")
        job = site.until(site.held(release), JobState.RUNNING)
        pid = site.evidence.wait(job, "start")["pid"]
        site.cluster.kill("n1")
        for file in (site.folder / "n1").glob("spool.db*"):
            file.unlink()
        site.cluster.restart_agent("n1")
        site.evidence.wait(job, "start", run=2)
        assert not alive(pid)
        assert "another state directory of the same machine" in site.log("n1")
        release.touch()
        site.succeeded(job)


def test_another_state_directory_does_not_take_the_node_over_as_the_leader_changes(folder: Path) -> None:
    """It comes first, and its jobs save elsewhere, so that it does not see what runs. By another name of the scheduler's
    address it passes the lock of the node, as in a container with a network of its own."""
    settings = folder / "scheduler.yaml"
    settings.write_text(f"silent_after: {LIMIT}\n")
    with Site(folder / "site", ("--config", str(settings)), nodes=("n1",)) as site:
        release = site.file("release")
        job = site.until(site.held(release), JobState.RUNNING)
        before = site.client.nodes()
        site.cluster.kill("n1", signal.SIGSTOP)
        site.cluster.kill("scheduler")
        site.restart_scheduler()
        there = "--scheduler", site.cluster.address.replace("127.0.0.1", "localhost")
        site.cluster.start_agent("twin", "dgx-a100", "--node", "n1", "--checkpoints", str(folder / "elsewhere"), *there)
        wait_for(lambda: "another state directory of the same machine" in site.cluster.tail("twin"), LIMIT)
        site.cluster.kill("n1", signal.SIGCONT)
        site.wait_connected(since=before)
        assert (site.client.get(job.id).state, site.client.get(job.id).run) == (JobState.RUNNING, 1)
        site.check_now()
        release.touch()
        site.succeeded(job)


def restart_agent(site: Site, node: str) -> None:
    """Kills a node's agent and starts the next one, which is connected on return."""
    before = [site.node(node)]
    site.cluster.kill(node)
    site.cluster.restart_agent(node)
    site.wait_connected(since=before)
