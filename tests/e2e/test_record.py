"""A real scheduler records what it does, is killed, records on, and everything is replayed by the command."""

import json
import sys
from pathlib import Path

import pytest

from client_sdk import JobState
from tests.harness import WHOLE_NODE, Site, run, run_module


@pytest.mark.parametrize("name", ["recording.jsonl", pytest.param("recording.jsonl.gz", marks=pytest.mark.long)])
def test_a_recording_of_a_real_scheduler_is_replayed(folder: Path, name: str) -> None:
    file = folder / name
    with Site(folder / "site", ["--record", str(file)], nodes=["n1"]) as site:
        release = site.file("release")
        victim = site.trainer("--steps", "3", devices=WHOLE_NODE, grace=30)
        site.until(victim, JobState.RUNNING)
        trial = site.short(job_class="trial", devices=1)
        site.succeeded(trial)
        ebb = Path(sys.executable).with_name("ebb")
        done = run([ebb, "submit", "--cpus", "1", "--", "true"], EBB_ADDRESS=site.cluster.address)
        assert done.returncode == 0, done.stderr
        held = site.held(release)
        site.until(held, JobState.RUNNING)
        if name.endswith(".jsonl"):  # a packed one lacks the last lines of a scheduler that was killed
            site.cluster.kill("scheduler")
            site.restart_scheduler()
        release.touch()
        site.succeeded(victim, held)
        site.check_all_ended()
    assert file.stat().st_mode & 0o777 == 0o600
    replayed = run_module("scheduler_service", "record", "replay", str(file))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert replayed.stdout.startswith("the same: ")
    shown = run_module("scheduler_service", "record", "show", str(file))
    assert shown.returncode == 0, shown.stderr
    assert "Submitted" in shown.stdout
    if name.endswith(".jsonl"):
        text = file.read_text()
        assert "leaderships: 2 (policy fitgpp)" in shown.stdout
        assert str(site.evidence.path) not in text, "a value of a job's environment"
        assert text.count('["Section",') == 2
        spoil(file)
        differs = run_module("scheduler_service", "record", "replay", str(file))
        assert differs.returncode == 1, differs.stdout + differs.stderr
        assert "another outcome" in differs.stdout


def spoil(file: Path) -> None:
    """Lets the trial have been a best-effort job."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    events = [event for line in lines if line[0] == "Stepped" for event in line[1]["events"] if event[0] == "Submitted"]
    next(event for event in events if event[1]["spec"][1]["job_class"] == 1)[1]["spec"][1]["job_class"] = 2
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
