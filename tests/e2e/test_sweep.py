"""A sweep on a real cluster: members take turns in one slot, and compute what they would have computed alone."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from client_sdk import JobState
from client_sdk.sweep import Member, Report, Sweep
from client_sdk.training.sweep import VARIABLE, read
from tests.harness import LIMIT, ROOT, Site
from tests.store.waiting import wait_for

SCRIPT = ROOT / "examples" / "sweep" / "train.py"
CHOSEN: tuple[dict[str, Any], ...] = tuple({"rate": rate, "momentum": 0.5, "hidden": 8} for rate in (0.001, 0.01, 0.1))
STEPS = 20_000
HOPELESS = 1


class Three:
    """Three configurations, of which one is stopped when it has reported twice."""

    def __init__(self) -> None:
        self.left = list(enumerate(CHOSEN))
        self.reports: list[Report] = []

    def suggest(self) -> tuple[int, Mapping[str, Any]] | None:
        return self.left.pop(0) if self.left else None

    def reported(self, report: Report) -> bool:
        self.reports.append(report)
        return report.number == HOPELESS and report.step >= 2000

    def ended(self, member: Member) -> None:
        assert member.told


def alone(folder: Path, parameters: Mapping[str, Any]) -> list[tuple[int, float]]:
    """What a member reports that nobody interrupts."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "STEPS": str(STEPS)}
    environment |= {"EBB_CHECKPOINT_DIR": str(folder), VARIABLE: json.dumps(dict(parameters))}
    done = subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, check=True)
    return [found for line in done.stdout.splitlines() if (found := read(line)) is not None]


def test_members_take_turns_and_compute_what_they_would_have_computed_alone(site: Site, tmp_path: Path) -> None:
    search = Three()
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "STEPS": str(STEPS)}
    command = [sys.executable, str(SCRIPT)]
    with Sweep(site.client, command, name="turns", slots=1, live=3, turn=1, devices=1, env=environment) as sweep:
        members = sweep.run(search)
    states = {member.number: (member.job.state, member.killed) for member in members}
    assert states[HOPELESS] == (JobState.CANCELLED, True)
    assert {states[number] for number in range(3) if number != HOPELESS} == {(JobState.SUCCEEDED, False)}
    firsts = [report.number for report in search.reports if report.step == 1000]
    assert firsts == [0, 1, 2], "each new configuration reports before an older one goes on to its end"
    last = {number: max(at for at, one in enumerate(search.reports) if one.number == number) for number in (0, 2)}
    assert last[0] > search.reports.index(next(one for one in search.reports if one.number == 2))
    assert sum(member.job.run for member in members) > 3, "at least one member had more than one turn"
    for number in (0, 2):
        expected = alone(tmp_path / str(number), CHOSEN[number])
        reports = sweep.members[number].reports
        assert [report.step for report in reports] == [step for step, _ in expected]
        # Sums may differ in their last bits, because arrays that were loaded are aligned in another way.
        assert [report.value for report in reports] == pytest.approx([value for _, value in expected], rel=1e-9)
    wait_for(lambda: all(site.client.get(member.job).ended for member in members), LIMIT)
