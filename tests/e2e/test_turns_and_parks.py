"""Parks and turns, as users ask for them: scheduler, agent and processes are real, and the devices are simulated."""

import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from client_sdk import Job, JobState
from tests.agent.parkable import PROGRAM
from tests.harness import LIMIT, Site, leftovers
from tests.store.waiting import wait_for

COMMAND = (sys.executable, "-S", "-c", PROGRAM)
ALL = 8


@pytest.fixture
def site(folder: Path) -> Iterator[Site]:
    with Site(folder / "site", nodes=("n1",)) as made:
        yield made
        made.check_all_ended()
    assert not leftovers(folder)


def directory(site: Site, job: Job) -> Path:
    return wait_for(lambda: next((site.folder / "n1").glob(f"runs/*/{job.id}.1"), None), LIMIT)


def steps(site: Site, job: Job) -> int:
    file = directory(site, job) / "steps.txt"
    return int(file.read_text() or 0) if file.exists() else 0


def goes_on(site: Site, job: Job) -> None:
    before = steps(site, job)
    wait_for(lambda: steps(site, job) > before, 2 * LIMIT)


def pid_of(site: Site, job: Job) -> int:
    return int(json.loads((directory(site, job) / "process.json").read_text())["pid"])


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def cancelled(site: Site, *jobs: Job) -> None:
    for job in jobs:
        site.client.cancel(job.id)
    for job in jobs:
        assert site.client.wait(job, 2 * LIMIT).state is JobState.CANCELLED


def test_a_parked_job_leaves_its_devices_to_others_and_goes_on_where_it_is(site: Site) -> None:
    job = site.until(site.submit(COMMAND, devices=ALL), JobState.RUNNING)
    goes_on(site, job)
    pid = pid_of(site, job)
    site.client.suspend(job.id, park=True, park_only=True)
    parked = site.until(job, JobState.SUSPENDED, limit=2 * LIMIT)
    assert parked.parked
    assert state_of(pid) == "T"
    site.cluster.kill("n1")
    other = site.submit(["true"], devices=ALL)
    nodes = site.client.nodes()
    site.cluster.restart_agent("n1")
    site.wait_connected(since=nodes)
    site.succeeded(other)
    assert state_of(pid) == "T"
    at = steps(site, job)
    site.client.resume(job.id)
    site.until(job, JobState.RUNNING)
    wait_for(lambda: steps(site, job) > at, 2 * LIMIT)
    assert pid_of(site, job) == pid
    cancelled(site, job)


def test_a_parked_job_is_cancelled(site: Site) -> None:
    job = site.until(site.submit(COMMAND, devices=1), JobState.RUNNING)
    goes_on(site, job)
    site.client.suspend(job.id, park=True, park_only=True)
    site.until(job, JobState.SUSPENDED, limit=2 * LIMIT)
    cancelled(site, job)


def test_two_jobs_take_turns_on_a_device(site: Site) -> None:
    """All other devices are taken. Each job asks for half of the one that is left, and has all of it in its turn."""
    rest = site.until(site.submit(["sleep", "1000"], devices=ALL - 1), JobState.RUNNING)
    first = site.until(site.submit(COMMAND, devices=0.5), JobState.RUNNING)
    goes_on(site, first)
    second = site.submit(COMMAND, devices=0.5)
    wait_for(lambda: steps(site, second) > 0, 3 * LIMIT)
    at = steps(site, first)
    segment = (directory(site, first) / "segments.txt").read_text().split()
    assert segment, "the first job was parked for the second one"
    wait_for(lambda: steps(site, first) > at, 3 * LIMIT)
    cancelled(site, first, second, rest)
    found = sorted(
        (float(begin), float(end))
        for job in (first, second)
        for begin, end in (line.split() for line in (directory(site, job) / "segments.txt").read_text().splitlines())
    )
    assert len(found) >= 3
    assert all(begin >= end for (_, end), (begin, _) in pairwise(found))
