"""Parts of devices, as docs/using.md has them: a real scheduler, real agents and the commands of users."""

import json
import re
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

from click.testing import CliRunner

from client_sdk import JobReason, JobState, ShareMode
from client_sdk.cli import ebb as main
from client_sdk.cli.output import common as output
from tests.harness import LIMIT, Site
from tests.store.waiting import wait_for

CONFIGURATION = """
virtual_clusters: true
reclaim_grace: 5
pools:
  - name: a100
    nodes: [n1]
"""
SHORT_TURNS = """
policy: gandiva
policy_settings: {period: 2, switching_cost: 0, packing: 0, migration: 0}
"""
LIMITED = timedelta(seconds=6)
SLACK = timedelta(seconds=4)
"""Until a job that is out of time has ended."""
SLEEP = ("--", "sleep", "1000")


class Desk:
    """A user's commands."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def ebb(self, *arguments: str, status: int = 0, **environment: str) -> str:
        done = CliRunner().invoke(main, arguments, env={"EBB_ADDRESS": self.site.cluster.address, **environment})
        assert done.exit_code == status, done.output
        return done.output

    def submit(self, *arguments: str, **environment: str) -> int:
        return int(self.ebb("submit", "-q", "--cwd", "/", *arguments, *SLEEP, **environment))

    def runs(self, *jobs: int) -> None:
        for job in jobs:
            wait_for(lambda job=job: self.site.client.get(job).state is JobState.RUNNING, LIMIT)  # type: ignore[misc]

    def marks(self, jobs: Collection[int], *command: str) -> set[str]:
        """What a command says about the turns of these jobs."""
        lines = [line for line in self.ebb(*command).splitlines() if line.split()[:1] in [[str(job)] for job in jobs]]
        return {found[0] if (found := re.findall(r"waits for its turn|its turn", line)) else "" for line in lines}

    def shown(self, job: int) -> str:
        return next(line for line in self.ebb("show", str(job)).splitlines() if line.startswith("reason")).split(None, 1)[1]

    def place(self, job: int) -> tuple[str, tuple[int, ...]]:
        found = self.site.client.get(job)
        return found.node or "", found.devices


def test_two_halves_of_a_device_run_and_a_third_waits(folder: Path) -> None:
    """Of eight devices, seven are taken. Not all memory beside them is: the halves are parked there."""
    with Site(folder / "site", nodes=["n1"]) as site:
        desk = Desk(site)
        others = desk.submit("--devices", "7", "--memory", "700GiB")
        first, second = desk.submit("--gpus", "0.5"), desk.submit("--gpus", "0.5")
        desk.runs(others, first, second)
        assert desk.place(first) == desk.place(second)
        assert site.client.get(first).spec.share is ShareMode.SLICED
        assert site.node("n1").free.devices == 0
        tried = json.loads(desk.ebb("submit", "--dry-run", "--gpus", "0.25", "--cwd", "/", "-o", "json", *SLEEP))
        assert not tried["starts"], "both halves are taken"
        third = desk.submit("--gpus", "0.5")
        said = desk.ebb("explain", str(third))
        assert "1 device is shared by sliced jobs that it may join; the most that is left of one is 0" in said
        listed = {line.split()[0]: line.split() for line in desk.ebb("list", "--no-header").splitlines()}
        assert [listed[str(job)][-2] for job in (others, first, third)] == ["7", "0.5", "0.5"]
        assert "0.5 of a device (sliced)" in desk.ebb("show", str(third))
        assert f"sliced, with job {first}" in desk.ebb("story", str(second))

        # A scheduler that starts again knows who shares what.
        before = desk.place(second)
        site.cluster.kill("scheduler")
        site.restart_scheduler()
        site.wait_connected()
        desk.ebb("cancel", str(first))
        desk.runs(third)
        assert desk.place(third) == before

        # A packed job shares with nobody who takes turns.
        packed = desk.submit("--gpu-memory", "10GiB")
        assert site.client.get(packed).reason is JobReason.NO_ROOM
        desk.ebb("cancel", str(others))
        desk.runs(packed)
        assert desk.place(packed) != before
        refused = desk.ebb("submit", "--gpu-memory", "79GiB", *SLEEP, status=1)
        assert "no node that has 80896 MiB of a device for jobs that share it" in refused


def test_a_virtual_cluster_reclaims_a_device_from_two_who_share_it(folder: Path) -> None:
    file = folder / "scheduler.yaml"
    file.write_text(CONFIGURATION)
    with Site(folder / "site", ["--config", str(file)], nodes=["n1"]) as site:
        desk = Desk(site)
        desk.ebb("vc", "create", "vision", "--quota", "a100/node=1")
        desk.ebb("vc", "create", "speech")
        halves = [desk.submit("--opportunistic", "--gpus", "0.5", "--gpu-memory", "20GiB", EBB_VC="speech") for _ in range(2)]
        desk.runs(*halves)
        assert len({desk.place(job) for job in halves}) == 1
        assert site.client.virtual_cluster("speech").opportunistic_devices == 1, "they hold one device together"
        mine = desk.submit("--devices", "8", EBB_VC="vision")
        desk.runs(mine)
        assert site.client.get(mine).guaranteed
        told = [json.loads(desk.ebb("show", str(job), "-o", "json")) for job in halves]
        assert [(job["state"], job["reason"]) for job in told] == [("QUEUED", "RECLAIMED")] * 2
        parts = [desk.submit("--gpus", "0.25", "--share", "packed", EBB_VC="vision") for _ in range(2)]
        assert "the cells of virtual cluster vision are in use" in desk.ebb("explain", str(parts[0]))
        desk.ebb("cancel", str(mine))
        desk.runs(*parts)
        assert len({desk.place(job) for job in parts}) == 1
        assert all(site.client.get(job).guaranteed for job in parts)


def test_the_turns_of_others_count_for_no_limit(folder: Path) -> None:
    """Two halves of a device are out of time after they have computed for so long, each of them."""
    file = folder / "scheduler.yaml"
    file.write_text(SHORT_TURNS)
    with Site(folder / "site", ["--config", str(file)], nodes=["n1"], devices=["pcie-2"]) as site:
        desk = Desk(site)
        before = desk.submit("--devices", "2")
        desk.runs(before)
        halves = [desk.submit("--gpus", "0.5", "-t", f"{LIMITED.seconds}s") for _ in range(2)]
        desk.ebb("cancel", str(before))  # both begin together
        ended = [site.client.wait(job, 3 * LIMIT) for job in halves]
        assert [job.state for job in ended] == [JobState.TIMED_OUT] * 2, [site.client.story(job) for job in halves]
        runs = [next(site.client.runs(job)) for job in halves]
        times = [(run.start_time, run.end_time) for run in runs]
        together = min(end for _, end in times) - max(start for start, _ in times)  # type: ignore[type-var]
        for job, run in zip(ended, runs, strict=True):
            assert run.start_time is not None
            assert run.end_time is not None
            lasted = run.end_time - run.start_time
            assert together > LIMITED / 2, "they had turns"
            assert run.waited_time > 0.45 * together, "half of the time in which both ran"
            assert abs(job.executed_time - (lasted - run.waited_time)) < timedelta(seconds=0.01)
            assert LIMITED <= job.executed_time < LIMITED + SLACK
            assert desk.ebb("runs", str(job.id)).splitlines()[1].split()[6] == output.duration(lasted - run.waited_time)

        # Every user sees whose turn it is.
        halves = [desk.submit("--gpus", "0.5") for _ in range(2)]
        desk.runs(*halves)
        marks = {"its turn", "waits for its turn"}
        wait_for(lambda: desk.marks(halves, "list") == marks, LIMIT)
        wait_for(lambda: desk.marks(halves, "top", "-n", "1") == marks, LIMIT)
        wait_for(lambda: {desk.shown(job) for job in halves} == marks, LIMIT)
