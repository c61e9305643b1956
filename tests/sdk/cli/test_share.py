"""`ebb share`, and the project of a job."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from client_sdk import Share, Shares
from client_sdk.testing import FakeCluster
from tests.sdk.cli.conftest import Run, refused, submitted

ANN = Share(
    project="vision",
    user="ann",
    shares=2,
    part_of_shares=2 / 3,
    device_hours=12.345,
    part_of_usage=0.9,
    factor=0.392,
    devices=1.5,
    queued=3,
)
VISION = Share(
    project="vision",
    user="",
    shares=1,
    part_of_shares=1,
    device_hours=13.7166,
    part_of_usage=1,
    factor=0.5,
    devices=1.5,
    queued=14,
)
SHARES = Shares(
    time=datetime(2026, 1, 2, tzinfo=UTC),
    half_life=timedelta(days=7),
    shares=(VISION, ANN),
    more_shares=0,
    queued=14,
    next_job_ids=(4, 7, *range(11, 23)),
)


def test_the_table(run: Run, fake: FakeCluster) -> None:
    fake.share(SHARES)
    assert run("share").output.splitlines() == [
        "PROJECT  USER   SHARES  OF SHARES  USAGE  OF USAGE  FACTOR  DEVICES  QUEUED",
        "vision   (all)  1       100.0%     13.72  100.0%    0.500   1.5      14",
        "vision   ann    2       66.7%      12.35  90.0%     0.392   1.5      3",
        "next: 4, 7, 11, 12, 13, 14, 15, 16, 17, 18 and 4 more",
        "usage decays to a half in 7-00:00:00",
    ]
    bare = run("share", "--no-header").output.splitlines()
    assert [line.split()[0] for line in bare] == ["vision", "vision"]


def test_a_part_of_the_shares_and_an_empty_queue(run: Run, fake: FakeCluster) -> None:
    fake.share(Shares(time=None, half_life=timedelta(1), shares=(), more_shares=7, queued=0, next_job_ids=()))
    assert run("share").output.splitlines()[1:] == ["and 7 more", "no job is queued", "usage decays to a half in 1-00:00:00"]


def test_for_programs(run: Run, fake: FakeCluster) -> None:
    fake.share(SHARES)
    told = json.loads(run("share", "-o", "json").output)
    assert told["shares"][1] == {
        "project": "vision",
        "user": "ann",
        "shares": 2.0,
        "part_of_shares": 2 / 3,
        "device_hours": 12.345,
        "part_of_usage": 0.9,
        "factor": 0.392,
        "devices": 1.5,
        "queued": 3,
    }
    assert (told["time"], told["half_life"], told["next_job_ids"][:2]) == ("2026-01-02T00:00:00Z", 604800.0, [4, 7])
    assert yaml.safe_load(run("share", "-o", "yaml").output) == told


def test_there_may_be_no_shares(run: Run, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(run, "share").startswith("ebb: the policy does not go by usage, so that there are no shares")
    fake.share(SHARES)
    assert "without virtual clusters" in refused(run, "share", "--vc", "vision")
    monkeypatch.setenv("EBB_VC", "vision")
    assert "without virtual clusters" in refused(run, "share")


def test_the_project_of_a_job(run: Run, tmp_path: Path) -> None:
    assert submitted(run, "true").project == ""
    assert submitted(run, "--project", "vision", "true").project == "vision"
    assert "project" not in run("show", "1").output
    assert "project      vision" in run("show", "2").output
    file = tmp_path / "job.yaml"
    file.write_text("command: [true.sh]\nproject: speech\n")
    assert submitted(run, "-f", str(file)).project == "speech"
    assert submitted(run, "-f", str(file), "--project", "vision").project == "vision"
    assert "project" in refused(run, "submit", "--project", "a/b", "true")
    file.write_text("command: [true.sh]\nproject: 5\n")
    assert refused(run, "submit", "-f", str(file)).startswith(f"ebb: {file}: project: 5 is not text")
