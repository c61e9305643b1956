"""The database is restored from a backup, and the agents know more than it does."""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from client_sdk import JobEventKind, JobReason, JobState
from scheduler_service.store import SKIPPED
from tests.harness import LIMIT, Site, alive, run_module
from tests.store.waiting import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


def stop_scheduler(site: Site) -> None:
    site.cluster.kill("scheduler", signal.SIGTERM)
    assert site.cluster.processes["scheduler"].wait(LIMIT) == 0


def copy(source: Path, target: Path) -> None:
    """With its owner, who may be another than we are."""
    subprocess.run(["cp", "-a", source, target], check=True)


@pytest.mark.parametrize(
    ("restarts", "seen"),
    [(3, "has obeyed epoch"), (0, "its reports up to"), (3, None)],
    ids=["in their epoch", "in their reports alone", "and the operator has said so"],
)
def test_agents_that_are_ahead_are_accepted_and_begin_afresh(folder: Path, restarts: int, seen: str | None) -> None:
    with Site(folder / "site", nodes=["n1"]) as site:
        data, backup = site.folder / "db" / "postgres" / "data", folder / "backup"
        release = site.file("release")
        kept = site.until(site.held(release), JobState.RUNNING)
        first = site.evidence.wait(kept, "start")["pid"]
        stop_scheduler(site)
        copy(data, backup)
        for _ in range(restarts):  # the epoch goes up, and so does what the agent has obeyed
            site.restart_scheduler()
            site.wait_connected()
            stop_scheduler(site)
        site.restart_scheduler()
        site.wait_connected()
        site.succeeded(site.short(request_id="ended-since"))
        forgotten = site.until(site.held(site.file("never"), request_id="runs-since"), JobState.RUNNING)
        second = site.evidence.wait(forgotten, "start")["pid"]
        (known,) = site.database.ask("SELECT epoch FROM leader")
        stop_scheduler(site)
        shutil.rmtree(data)
        copy(backup, data)
        if seen is None:
            said = run_module("scheduler_service", "restored", "--embedded", str(site.folder / "db"))
            assert said.returncode == 0, said.stderr
        before = site.log("scheduler")
        site.restart_scheduler()

        again = wait_for(lambda: site.evidence.lines(kept, "start")[1:], LIMIT)
        assert [line["run"] for line in again] == [2], "its job went back to its queue and was started anew"
        (now,) = site.database.ask("SELECT epoch FROM leader")
        assert now["epoch"] > known["epoch"] or not restarts
        since = site.log("scheduler").removeprefix(before)
        if seen is None:
            assert "stepping down" not in since, "there is nothing left to be skipped"
        else:
            assert ("stepping down: node n1 (" in since) == bool(restarts)
            assert seen in since
            assert "was the database restored from a backup?" in since
        assert not alive(first), "nobody could say any more what it was"
        assert not alive(second)
        site.wait_connected()
        job = site.short(request_id="after")
        assert 2 * SKIPPED > job.id > SKIPPED > forgotten.id, "numbers that were given are not given again"
        site.succeeded(job)
        release.touch()
        site.succeeded(kept)
        story = [(event.kind, event.reason) for event in site.client.story(kept.id)]
        assert (JobEventKind.REQUEUED, JobReason.NODE_LOST) in story
        site.database.check()
