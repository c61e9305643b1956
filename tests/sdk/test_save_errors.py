"""A save between two stops that fails: the training goes on, tries again, and tells. A stop tells that it did not save."""

import json
import logging
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.training import Checkpointer, CheckpointError
from client_sdk.training._storing.periodic_saves import Schedule
from tests.sdk.job_tools import New, full_disk, run_to


def names(tmp_path: Path) -> dict[str, Any]:
    """What the run has told its agent."""
    found: dict[str, Any] = json.loads(tmp_path.with_suffix(".names").read_text())
    return found


def new_checkpointer(tmp_path: Path, **options: Any) -> Checkpointer:
    environment = {"EBB_CHECKPOINT_DIR": str(tmp_path), "EBB_CHECKPOINT_FILE": str(tmp_path.with_suffix(".names"))}
    return Checkpointer(environment=environment | {"EBB_RUN": "1"}, **options)


@pytest.mark.parametrize("background", [True, False])
def test_a_job_goes_on_and_saves_at_the_next_step_that_can(
    new_job: New, tmp_path: Path, background: bool, caplog: pytest.LogCaptureFixture
) -> None:
    job, weight = new_job(), np.zeros(100_000)
    job.checkpointable(weight=weight, every_steps=4, background=background)
    batches = job.steps(range(20))
    for _ in zip(range(5), batches, strict=False):
        weight += 1
    job._require_saving().wait()  # the save after step 4
    assert names(tmp_path)["step"] == 4
    with full_disk(100_000), caplog.at_level(logging.WARNING):
        for _ in zip(range(4), batches, strict=False):  # it was to save after step 8
            weight += 1
            job._require_saving().wait()
    assert "could not be written" in caplog.text
    assert "The one before it is whole" in caplog.text
    told = names(tmp_path)
    assert (told["step"], told["failures"], len(told["failed"])) == (4, 1, 1), "the checkpoint before is whole"
    for _ in zip(range(2), batches, strict=False):
        weight += 1
        job._require_saving().wait()
    told = names(tmp_path)
    assert told["step"] > 8, "before the next one was due"
    assert told["step"] < 12
    assert "failed" not in told, "the next save takes it back"
    again, weight = new_job(), np.zeros(100_000)
    again.checkpointable(weight=weight)
    assert again.step == weight[0] == told["step"]


@pytest.mark.parametrize("background", [True, False])
def test_a_job_that_wants_to_fail_does(new_job: New, tmp_path: Path, background: bool) -> None:
    job = new_job()
    job.checkpointable(weight=np.zeros(100_000), every_steps=2, background=background, on_save_error="raise")
    with full_disk(100_000), pytest.raises((CheckpointError, OSError)):
        list(job.steps(range(10)))
    assert names(tmp_path)["failed"]


def test_a_job_whose_last_save_failed_is_complete(new_job: New, tmp_path: Path) -> None:
    job = new_job()
    job.checkpointable(weight=np.zeros(100_000), every_steps=10)
    with full_disk(100_000):
        list(job.steps(range(10)))
        job.finish()
    assert names(tmp_path)["failures"] == 1


@pytest.mark.parametrize("asked", ["every_steps", "every_seconds"])
def test_a_checkpointer_goes_on_and_tries_again(tmp_path: Path, asked: str, caplog: pytest.LogCaptureFixture) -> None:
    every: dict[str, Any] = {"every_steps": 8} if asked == "every_steps" else {"every_seconds": 1e-9}
    with new_checkpointer(tmp_path, **every) as checkpoint:
        for _ in range(8):
            checkpoint.at_boundary(lambda: bytes(10))
        before = names(tmp_path)["saved"]
        with full_disk(1000), caplog.at_level(logging.WARNING):
            for _ in range(8):
                checkpoint.at_boundary(lambda: bytes(2000))
        assert names(tmp_path)["saved"] == before
        assert "The training goes on" in caplog.text
        checkpoint.at_boundary(lambda: b"later")
        assert checkpoint.load() == b"later", "one step later"
    assert "failed" not in names(tmp_path)


def test_a_checkpointer_that_wants_to_fail_does(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match="too large"),
        new_checkpointer(tmp_path, every_steps=1, on_save_error="raise") as checkpoint,
        full_disk(1000),
    ):
        checkpoint.at_boundary(lambda: bytes(2000))


def test_a_state_that_never_can_be_saved_ends_the_training(tmp_path: Path) -> None:
    with pytest.raises((AttributeError, TypeError)), new_checkpointer(tmp_path, every_steps=1) as checkpoint:
        checkpoint.at_boundary(lambda: lambda: None)


def test_a_stop_that_cannot_save_says_so(new_job: New, tmp_path: Path) -> None:
    """And names the checkpoint from which the job goes on."""
    job = new_job()
    job.checkpointable(weight=np.zeros(100_000), every_steps=2)
    batches = job.steps(range(10))
    for _ in zip(range(4), batches, strict=False):
        job._require_saving().wait()
    signal.raise_signal(signal.SIGTERM)
    with full_disk(100_000), pytest.raises(OSError, match="too large"):
        next(batches)
    told = names(tmp_path)
    assert told["step"] == 2
    (why,) = told["failed"].values()
    assert "too large" in why


def test_a_stop_that_comes_while_a_save_fails_saves_then_or_fails(tmp_path: Path) -> None:
    """It must not leave as if it had saved."""
    checkpoint = new_checkpointer(tmp_path, every_steps=1)
    tries = 0

    def state() -> bytes:
        nonlocal tries
        tries += 1
        if tries == 1:
            checkpoint.request_stop()
            raise OSError(28, "No space left on device")
        return b"saved"

    with pytest.raises(SystemExit), checkpoint:
        checkpoint.at_boundary(state)
    assert (tries, new_checkpointer(tmp_path).load()) == (2, b"saved")


def test_a_stop_is_saved_at_its_step(new_job: New, tmp_path: Path) -> None:
    job = new_job()
    job.checkpointable(weight=np.zeros(3), every_steps=2)
    run_to(job, 5)
    assert names(tmp_path)["step"] == 5


def test_what_is_told_on_a_full_disk_is_told_all_the_same(tmp_path: Path) -> None:
    """The file of the run is on the same disk: what is there is written over."""
    with new_checkpointer(tmp_path) as checkpoint:
        checkpoint.save(b"one")
        with full_disk(0), pytest.raises(OSError, match="too large"):
            checkpoint.save(b"two")
    assert set(names(tmp_path)) >= {"saved"}


@pytest.mark.parametrize("wrong", ["ignore", ""])
def test_another_answer_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ValueError, match='it is "warn" or "raise"'):
        new_checkpointer(tmp_path, on_save_error=wrong)


@given(st.integers(1, 50), st.lists(st.booleans(), min_size=1, max_size=200), st.booleans())
def test_when_a_save_is_tried_again(every: int, works: list[bool], alone: bool) -> None:
    """Never later than without a failure; ranks that save together stay together, whatever of them fails; and the tries of one
    save become rarer."""
    schedule = Schedule(None, every, in_gang=True)
    schedule.begin(0)
    tried, failed = [], 0
    for boundary, work in enumerate(works, 1):
        if boundary % every == 0:
            assert schedule.is_due(boundary)
        if schedule.is_due(boundary):
            tried.append(boundary)
            if work:
                schedule.begin(boundary)
                failed = 0
            else:
                schedule.put_off(boundary, alone)
                failed += 1
                assert alone is False or schedule.is_due(min((boundary // every + 1) * every, boundary + 2 ** (failed - 1)))
    if not alone:
        assert tried == list(range(every, len(works) + 1, every))
