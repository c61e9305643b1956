"""Jobs whose parks take much of their turns: scheduler, agent and processes are real, and the devices are simulated."""

import sys
from itertools import pairwise
from pathlib import Path

from client_sdk import Job, JobState
from client_sdk.models import JobEventKind
from tests.agent.parkable import PROGRAM
from tests.harness import LIMIT, Site, leftovers
from tests.store.waiting import wait_for

ALL = 2
COMMAND = (sys.executable, "-S", "-c", PROGRAM, "", "0.01", "0.4")
"""It takes 0.4 s to move its memory."""


def segments(site: Site, job: Job) -> list[tuple[float, float]]:
    """When its program has executed, from its point of view; without the segment that it is in."""
    file = next((site.folder / "n1").glob(f"runs/*/{job.id}.1/segments.txt"), None)
    lines = [] if file is None else file.read_text().splitlines()
    return [(float(begin), float(end)) for begin, end in (line.split() for line in lines)]


def retimed(site: Site, job: Job) -> list[float]:
    """The seconds of a cycle of its turns, as its story tells."""
    texts = [event.text for event in site.client.story(job.id) if event.kind is JobEventKind.RETIMED]
    assert all(text.startswith("a cycle of turns takes ") for text in texts)
    return [float(text.split()[5]) for text in texts]


def test_turns_get_as_long_as_their_parks_need(folder: Path) -> None:
    """Parks of 0.4 s are 40 % of a cycle of 2 s, and 10 % are allowed. The story says that the cycle is longer now, and a new
    leader, which does not know why, leaves it so."""
    config = folder / "scheduler.yaml"
    settings = "{period: 2, switching_cost: 10, longest_period: 20, packing: 0, migration: 0}"
    config.write_text(f"policy: gandiva\npolicy_settings: {settings}\n")
    with Site(folder / "site", ["--config", str(config)], nodes=["n1"], devices=["pcie-2"]) as site:
        first = site.until(site.submit(COMMAND, devices=ALL), JobState.RUNNING)
        second = site.submit(COMMAND, devices=ALL)
        wait_for(lambda: max(retimed(site, first), default=0) >= 8, 2 * LIMIT)
        assert retimed(site, second) == retimed(site, first)
        site.cluster.kill("scheduler")
        site.restart_scheduler()
        site.wait_connected()
        seen = len(segments(site, first)) + len(segments(site, second))
        wait_for(lambda: len(segments(site, first)) + len(segments(site, second)) >= seen + 2, 2 * LIMIT)
        assert retimed(site, first)[-1] >= 8
        for job in (first, second):
            site.client.cancel(job.id)
        for job in (first, second):
            assert site.client.wait(job, 2 * LIMIT).state is JobState.CANCELLED
        found = sorted(segments(site, first) + segments(site, second))
        assert len(found) >= 4
        assert all(begin >= end for (_, end), (begin, _) in pairwise(found))
        site.check_all_ended()
    assert not leftovers(folder)
