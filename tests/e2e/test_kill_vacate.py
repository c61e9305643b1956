"""kill -9 of the scheduler and of the agent in every phase of a vacate and of a resize, with real processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb

from client_sdk import Job, JobEventKind, JobReason, JobState, OperationKind, OperationPhase, TaskGroup
from tests.e2e.test_kill_agent import restart_agent
from tests.e2e.test_kill_park import begun, cluster, killed
from tests.harness import LIMIT, ROOT, Site, job_processes
from tests.store.waiting import wait_for

VACATE, RESIZE = OperationKind.VACATE, OperationKind.RESIZE
SAVING, WAITING, STARTING = OperationPhase.SAVING, OperationPhase.WAITING, OperationPhase.STARTING
RUNS = """
trap 'until [ -e "$1" ]; do sleep 0.05; done; exit 143' TERM
touch "$1.begun"
while :; do sleep 0.05; done
"""
"""Runs until it is stopped, and takes until there is a file for it."""


@pytest.fixture
def site(folder: Path) -> Iterator[Site]:
    with Site(folder, nodes=("n1",)) as site:
        yield site


def stands(site: Site, job: Job) -> tuple[OperationKind, OperationPhase] | None:
    operation = site.client.get(job.id).operation
    return None if operation is None else (operation.kind, operation.phase)


def kill(site: Site, who: str) -> None:
    """Kills the scheduler or the agent, and starts the next one."""
    if who == "agent":
        restart_agent(site, "n1")
        return
    site.cluster.kill("scheduler")
    site.database.check()
    site.restart_scheduler()
    site.wait_connected()


def phases(site: Site, job: Job, number: int) -> list[tuple[str, str, str]]:
    found = [run for run in site.client.runs(job) if run.run == number]
    return [(one.kind.name, one.phase.name, one.detail) for run in found for one in run.operations]


@pytest.mark.parametrize("who", ["scheduler", "agent"])
def test_in_a_vacate(site: Site, who: str) -> None:
    release = site.file("release")
    environment = {"EVIDENCE": str(site.evidence.path), "PYTHONPATH": str(ROOT)}
    job = site.trainer("--steps", "5", "--hold", "asked", "--until", release, grace=60, env=environment)
    site.until(job, JobState.RUNNING)
    site.evidence.wait(job, "start")
    site.client.suspend(job)
    asked = site.evidence.wait(job, "asked")
    kill(site, who)
    assert stands(site, job) == (VACATE, SAVING)
    release.touch()
    site.until(job, JobState.SUSPENDED)
    assert stands(site, job) is None
    assert phases(site, job, 1) == [("VACATE", "SAVING", "")]
    (line,) = [event for event in site.client.story(job.id) if event.kind is JobEventKind.SUSPENDED]
    assert line.text.startswith("saved its work and left; it took ")
    assert line.text.endswith(" s to stop")
    (first,) = site.client.runs(job)
    assert (first.saved, first.began_from) == (True, None)
    assert [path.name for path in site.checkpoints(job)][-1] == first.checkpoint
    site.client.resume(job)
    site.succeeded(job)
    second = next(site.client.runs(job))
    assert (second.run, second.began_from) == (2, first.checkpoint)
    assert [(line["run"], line["step"]) for line in site.evidence.lines(job, "start")] == [(1, 0), (2, asked["step"])]
    assert len(site.evidence.lines(job, "asked")) == 1, "it was told once"
    site.check_all_ended()


@contextmanager
def no_room(site: Site) -> Iterator[None]:
    site.client.drain("n1")
    yield
    site.client.undrain("n1")


@pytest.mark.parametrize("who", ["scheduler", "agent"])
def test_in_every_phase_of_a_resize(site: Site, who: str) -> None:
    release = site.file("release")
    tasks = [TaskGroup(count=1, devices=1)]
    job = site.client.submit(["sh", "-c", RUNS, "sh", release], tasks=tasks, min_tasks=1, max_tasks=4, grace=60)
    running = site.until(job, JobState.RUNNING)
    wait_for(site.file("release.begun").exists, LIMIT)  # it has its trap
    pid = job_processes(site.folder)[running.id]
    asked = site.client.resize(job, 3)
    assert (asked.state, asked.reason, asked.resize_to) == (JobState.STOPPING, JobReason.RESIZED, 3)
    kill(site, who)
    assert (stands(site, job), job_processes(site.folder)[job.id]) == ((RESIZE, SAVING), pid)
    with no_room(site):
        release.touch()
        wait_for(lambda: stands(site, job) == (RESIZE, WAITING), LIMIT)
        kill(site, who)
        assert (stands(site, job), site.client.get(job.id).state) == ((RESIZE, WAITING), JobState.QUEUED)
        stopped = site.launchers_stopped()
        stopped.__enter__()
    try:
        wait_for(lambda: stands(site, job) == (RESIZE, STARTING), LIMIT)
        if who == "agent":
            before = [site.node("n1")]
            site.cluster.kill("n1")
        else:
            kill(site, who)
            assert stands(site, job) == (RESIZE, STARTING)
    finally:
        stopped.__exit__(None, None, None)
    if who == "agent":
        site.cluster.restart_agent("n1")
        site.wait_connected(since=before)
    now = site.until(job, JobState.RUNNING)
    assert (now.run, len(now.tasks), now.retries) == (2, 3, 0)
    wait_for(lambda: stands(site, job) is None, LIMIT)
    assert phases(site, job, 1) == [("RESIZE", "SAVING", "")]
    assert phases(site, job, 2) == [("RESIZE", "WAITING", ""), ("RESIZE", "STARTING", "")] * 3
    (line,) = [event for event in site.client.story(job.id) if event.kind is JobEventKind.RESIZED]
    assert line.text.startswith("it has 3 tasks now: stopped in ")
    site.client.cancel(job)
    assert site.client.wait(job, LIMIT).state is JobState.CANCELLED
    site.check_now()


@pytest.mark.parametrize("durable", [True, False])
def test_before_and_after_the_commit_of_the_end_of_a_vacate(folder: Path, durable: bool) -> None:
    """The agent says again what was not acknowledged, and the row ends once."""
    with cluster(folder) as (site, node):
        job = begun(site, node)
        site.client.suspend(job)
        (order,) = node.orders()
        assert order.WhichOneof("state") == "stopped"
        (order,) = killed(site, node)
        assert (order.WhichOneof("state"), stands(site, job)) == ("stopped", (VACATE, SAVING))
        held = site.database.answers_withheld if durable else site.database.commits_kept_out
        waited = site.database.wait_until_withheld if durable else site.database.wait_until_kept_out
        with held():
            saved = link_pb.RunExited(yielded=True, told=True)
            node.report(job, link_pb.RUN_PHASE_STOPPING, exited=saved)  # which the agent knows until it is acknowledged
            waited()
            site.cluster.kill("scheduler")
        assert len(site.database.ask("SELECT kind FROM operation")) == (not durable)
        site.restart_scheduler()
        node.connect()
        site.until(job, JobState.SUSPENDED)
        assert (stands(site, job), phases(site, job, 1)) == (None, [("VACATE", "SAVING", "")])
        assert len([event for event in site.client.story(job.id) if event.kind is JobEventKind.SUSPENDED]) == 1
        site.client.cancel(job)
        site.check_all_ended()
