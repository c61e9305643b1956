"""What the simulator's promise rests on: a live service did what its recording says, and the engine does it again."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import fidelity
from benchmarks.measured_delays import times
from client_sdk import JobState
from scheduler_service.core.messages import Submitted
from scheduler_service.core.model import StopReason
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.stages import Stages
from scheduler_service.run.recording.record import Stepped
from scheduler_service.run.recording.replay import Summary, read_lines, replay
from tests.e2e import paced
from tests.harness import Site, run_module

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

ORDER = re.compile(r"order (Running|Stopped) (\d+)\.(\d+) to \d+")


def lrtp(_name: str, _parameters: Mapping[str, Any]) -> Stages:
    return stages("lrtp", PreemptionSettings())


def orders(steps: list[Stepped], kind: str) -> Iterator[tuple[int, int]]:
    for taken in steps:
        for said in taken.did:
            if (order := ORDER.match(said)) is not None and order[1] == kind:
                yield int(order[2]), int(order[3])


def test_two_hundred_jobs_of_a_live_service_are_replayed_byte_for_byte(folder: Path) -> None:
    jobs, file = paced.workload(seed=1), folder / "recording.jsonl"
    with Site(folder / "site", ["--record", str(file)], nodes=paced.NODES) as site:
        paced.play(site, jobs)
        lived = paced.lives(site.database, jobs)
        runs = site.database.ask("SELECT job_id, run, node, stop_reason, yielded FROM run")
        ends = {row["state"] for row in site.database.ask("SELECT state FROM job")}

    # It was a recording worth replaying, and no job met another fate than the one that this is about.
    assert ends == {JobState.SUCCEEDED}
    assert {row["node"] for row in runs} == {1, 2, 3, 4}
    assert {row["stop_reason"] for row in runs} == {None, StopReason.PREEMPTED}
    assert sum(row["yielded"] for row in runs) >= 10
    assert any(life.launches[0].placed_us > life.submit_us + 1_000_000 for life in lived), "nobody had to wait"

    # The recording is of this: its orders are the runs that took place, and it holds every submit.
    summary = Summary()
    steps = [line for _, line in read_lines(file, summary) if isinstance(line, Stepped)]
    assert sorted(orders(steps, "Running")) == sorted((row["job_id"], row["run"]) for row in runs)
    stopped = sorted((row["job_id"], row["run"]) for row in runs if row["stop_reason"] is not None)
    assert sorted(orders(steps, "Stopped")) == stopped
    assert summary.events[Submitted.__name__] == len(jobs) == 200
    assert (summary.unended, summary.torn) == (0, False)
    assert set(summary.outcomes) <= {"adopted", "unchanged"}

    # The same comes out again; not so where another policy decides.
    replayed = run_module("scheduler_service", "record", "replay", str(file))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert replayed.stdout.startswith("the same: ")
    assert replay(file, lrtp, Summary()) is not None

    # The simulator takes the same jobs to their ends, as they took place and with their own delays.
    simulated = fidelity.simulated(lived, times(lived).delays(), seed=1)
    assert [life.job for life in simulated if life.end_us is not None] == [life.job for life in lived]
    assert fidelity.compared(lived, lived) == fidelity.Compared(1.0, 0.0, fidelity.Preempted(*[len(stopped)] * 3))
    assert fidelity.compared(lived, simulated).preempted.other >= 10
