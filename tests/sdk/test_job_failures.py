"""`job.checkpointable` when something fails: a full disk, a damaged checkpoint, a grace period that is too short."""

import logging
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.training import CheckpointError
from client_sdk.training._run.grace import Grace
from tests.sdk.job_tools import New, folders, full_disk, run_to

ROOT = Path(__file__).parents[2]
LIMIT = 60


@pytest.mark.parametrize("background", [True, False])
def test_a_full_disk_leaves_the_checkpoint_before(new_job: New, tmp_path: Path, background: bool) -> None:
    job, weight = new_job(), np.zeros(100_000)
    job.checkpointable(weight=weight, every_steps=2, background=background, on_save_error="raise")
    batches = job.steps(range(10))
    for _ in zip(range(3), batches, strict=False):
        weight += 1
    job._require_saving().wait()
    weight += 1
    with full_disk(100_000), pytest.raises((CheckpointError, OSError)):
        list(batches)
    assert [path.name for path in folders(tmp_path)] == ["checkpoint-step-00000002-run-000001"]
    again, weight = new_job(), np.zeros(100_000)
    again.checkpointable(weight=weight)
    assert (again.step, weight[0]) == (2, 2)


def test_a_full_disk_at_the_stop_is_no_obedience(new_job: New, tmp_path: Path) -> None:
    job = new_job()
    job.checkpointable(weight=np.zeros(100_000))
    batches = job.steps(range(10))
    next(batches)
    signal.raise_signal(signal.SIGTERM)
    with full_disk(100_000), pytest.raises(OSError, match=r"written|too large"):
        next(batches)
    assert not folders(tmp_path)


@pytest.mark.parametrize("damage", ["part", "manifest", "missing"])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_used(
    new_job: New, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    job, weight = new_job(), np.zeros(3)
    job.checkpointable(weight=weight, every_steps=3, background=False)

    def work(_item: int) -> None:
        weight[:] += 1

    run_to(job, 5, work=work)
    newest = folders(tmp_path)[-1]
    if damage == "missing":
        (newest / "weight.npy").unlink()
    else:
        path = newest / ("weight.npy" if damage == "part" else "manifest.json")
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(content)
    again, weight = new_job(), np.zeros(3)
    again.checkpointable(weight=weight)
    assert (again.step, weight[0]) == (3, 3)
    assert any(newest.name in record.message and "going on from the one before" in record.message for record in caplog.records)


def test_no_good_checkpoint_is_an_error(new_job: New, tmp_path: Path) -> None:
    job = new_job()
    job.checkpointable(weight=np.zeros(3))
    run_to(job, 2)
    (folders(tmp_path)[0] / "weight.npy").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be used"):
        new_job().checkpointable(weight=np.zeros(3))


def test_what_a_killed_save_left_is_removed(new_job: New, tmp_path: Path) -> None:
    left = tmp_path / "checkpoint-step-00000009-run-000001"
    left.mkdir()
    (tmp_path / "other").mkdir()
    job = new_job()
    job.checkpointable()
    assert [path.name for path in folders(tmp_path)] == ["other"]


def test_a_grace_period_that_is_too_short_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grace = Grace({"EBB_GRACE_SECONDS": "10"}, background=True)
    grace.note_durations(4.0, 1.0)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    grace.note_durations(5.0, 1.0)
    grace.note_durations(6.0, 1.0)
    (said,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert "up to 11.0 s" in said
    assert "`ebb update --grace 17s`" in said


def test_a_run_asks_for_a_grace_period_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "grace"
    grace = Grace({"EBB_GRACE_SECONDS": "10", "EBB_GRACE_FILE": str(file)}, background=True)
    grace.note_durations(4.0, 1.0)
    assert not file.exists(), "what it has is enough"
    grace.note_durations(5.0, 1.0)
    assert file.read_text() == "17\n"
    grace.note_durations(7.0, 1.0)
    assert file.read_text() == "17\n", "what it has asked for is enough"
    grace.note_durations(8.5, 1.0)
    assert file.read_text() == "27\n"
    assert [path.name for path in tmp_path.iterdir()] == ["grace"]


def test_a_run_that_cannot_ask_goes_on(tmp_path: Path) -> None:
    grace = Grace({"EBB_GRACE_SECONDS": "10", "EBB_GRACE_FILE": str(tmp_path / "missing" / "grace")}, background=False)
    grace.note_durations(20.0, 0.0)
    assert grace.needed == 20


class Locked:
    def __init__(self) -> None:
        self.lock = threading.Lock()


@pytest.mark.parametrize("part", [Locked(), (n for n in "ab"), lambda: 0, len, iter([1])])
def test_what_cannot_be_saved_is_refused_before_the_training(new_job: New, part: Any) -> None:
    with pytest.raises(TypeError, match=r"part: .*part=\(get, put\)"):
        new_job().checkpointable(part=part)


class Bare:
    pass


def test_an_object_without_attributes_is_restored(new_job: New) -> None:
    job = new_job()
    job.checkpointable(part=Bare())
    run_to(job, 2)
    job = new_job()
    job.checkpointable(part=Bare())
    assert job.step == 2


def test_a_part_that_has_changed_is_named_with_the_remedy(new_job: New) -> None:
    job = new_job()
    job.checkpointable(weight=np.zeros(3))
    run_to(job, 2)
    with pytest.raises(ValueError, match="shape") as raised:
        new_job().checkpointable(weight=np.zeros(4))
    assert "weight= could not be restored from the checkpoint of step 2" in raised.value.__notes__[0]


def test_a_name_is_registered_once(new_job: New) -> None:
    job = new_job()
    job.checkpointable(weight=np.zeros(3))
    with pytest.raises(ValueError, match="weight= is registered already"):
        job.checkpointable(weight=np.zeros(3))


def test_a_directory_that_takes_no_file_is_reported_before_the_training(new_job: New, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"no checkpoint can be written to .*file"):
        new_job().checkpointable(directory=tmp_path / "file")


def test_a_complete_job_does_not_train_again(new_job: New) -> None:
    job = new_job()
    job.checkpointable()
    assert [list(job.steps("ab")) for _ in job.epochs(1)] == [["a", "b"]]
    job.finish()  # says nothing new
    for again in (lambda: job.checkpointable(other=[1]), lambda: next(job.epochs(1)), lambda: next(job.steps("ab"))):
        with pytest.raises(RuntimeError, match="the job is complete"):
            again()


class Stateful:
    """A loader that keeps its own place."""

    def __init__(self) -> None:
        self.place = 0

    def __iter__(self) -> Iterator[int]:
        while self.place < 5:
            self.place += 1
            yield self.place - 1

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


@pytest.mark.parametrize(("first", "second"), [(range(5), Stateful()), (Stateful(), range(5))])
def test_no_batch_is_repeated_when_a_stateful_loader_comes_or_goes(new_job: New, first: Any, second: Any) -> None:
    job, seen = new_job(), []
    job.checkpointable(every_steps=1, background=False)
    for batch, _ in zip(job.steps(first), range(2), strict=False):
        seen.append(batch)
    again = new_job()
    again.checkpointable()
    assert seen[: again.step] + list(again.steps(second)) == list(range(5))
