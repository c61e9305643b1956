"""`job.checkpointable` without PyTorch: what can be saved, and the loop."""

import json
import logging
import os
import random
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.training import Checkpointer, CheckpointError, Job, read_folder
from client_sdk.training._storing import files, formats
from client_sdk.training._storing.checksummed import ChecksummedFile, checksums, threads
from client_sdk.training._storing.folders import Reference
from tests.sdk.job_tools import New, folders, run_to

ROOT = Path(__file__).parents[2]
LIMIT = 60


class Meter:
    def __init__(self) -> None:
        self.sum = 0.0


class Stateful:
    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


class World:
    """One of each kind of object, and a second reference to what changes in place."""

    def __init__(self) -> None:
        self.stateful, self.meter, self.array = Stateful(), Meter(), np.zeros((2, 2), order="F")
        self.params: dict[str, Any] = {"layers": [(np.zeros(2), np.zeros(1, np.float32))], "file": np.zeros(1), "steps": 0}
        self.inner = self.params["layers"]
        self.history: list[int] = []
        self.seen: set[int] = set()
        self.generator, self.plain = np.random.default_rng(1), random.Random(1)
        self.number = 0

    def register(self, job: Job) -> None:
        def put(number: int) -> None:
            self.number = number

        job.checkpointable(stateful=self.stateful, meter=self.meter, array=self.array, params=self.params)
        job.checkpointable(history=self.history, seen=self.seen, generator=self.generator, plain=self.plain)
        job.checkpointable(number=(lambda: self.number, put))

    def work(self, item: int) -> None:
        self.stateful.value += 1
        self.meter.sum += random.random()
        self.array += self.generator.standard_normal((2, 2))
        self.params["layers"][0][0][:] += np.random.rand(2)
        self.params["steps"] += 1
        self.history.append(item)
        self.seen.add(item)
        self.number += int(self.plain.random() * 1000)

    def facts(self) -> list[Any]:
        arrays = [self.array.tobytes(), self.params["layers"][0][0].tobytes(), self.params["steps"], self.inner[0][0].tobytes()]
        return [self.stateful.value, self.meter.sum, *arrays, list(self.history), set(self.seen), self.number]


def seed() -> None:
    random.seed(5)
    np.random.seed(5)


def test_every_kind_of_object_goes_on(new_job: New, tmp_path: Path) -> None:
    seed()
    unbroken = World()
    for item in range(10):
        unbroken.work(item)

    seed()
    first = World()
    job = new_job()
    first.register(job)
    run_to(job, 4, work=first.work)
    stopped_at = first.facts()
    formats = {path.suffix for path in folders(tmp_path)[0].iterdir()}
    assert formats - {".pt"} == {".npy", ".npz", ".pickle", ".json"}  # .pt if another test has imported torch

    random.seed(99)
    np.random.seed(99)
    second = World()
    job = new_job()
    second.register(job)
    assert (job.step, job.epoch, job.batch) == (4, 0, 4)
    assert second.facts() == stopped_at
    for _ in job.epochs(1):
        for item in job.steps(range(10)):
            second.work(item)
    assert second.facts() == unbroken.facts()
    assert read_folder(folders(tmp_path)[0])["history"] == [0, 1, 2, 3]


def test_nothing_of_a_framework_is_imported(tmp_path: Path) -> None:
    program = """
import sys
import client_sdk.training
assert not any(name.startswith("client_sdk.training._job") for name in sys.modules)
from client_sdk.training import *
job.checkpointable(best=[1])
for _ in job.epochs(1):
    assert list(job.steps("ab")) == ["a", "b"]
print(sorted({"numpy", "torch", "grpc", "google", "safetensors"} & set(sys.modules)))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "EBB_CHECKPOINT_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_run_names_the_folders_that_it_has_loaded_and_saved(new_job: New, tmp_path: Path) -> None:
    """Which have the step in their names."""
    seen: list[int] = []
    for _ in range(2):
        job = new_job()
        job.checkpointable(seen=seen)
        run_to(job, job.step + 3)
    one, two = (path.name for path in folders(tmp_path))
    assert json.loads(tmp_path.with_suffix(".names").read_text()) == {"began_from": one, "saved": two, "step": 6}
    assert (one.split("-run-")[0], two.split("-run-")[0]) == ("checkpoint-step-00000003", "checkpoint-step-00000006")


def test_a_number_cannot_be_restored_in_place(new_job: New) -> None:
    with pytest.raises(TypeError, match=r"best=3\.5 cannot be restored in place.*best=\(get, put\)"):
        new_job().checkpointable(best=3.5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"every_steps": 0}, "every_steps=0"),
        ({"keep": 0}, "keep=0"),
        ({"job": []}, "choose another name"),
        ({"keep_every": -1}, "keep_every=-1"),
    ],
)
def test_options_that_cannot_be(new_job: New, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        new_job().checkpointable(**options)


def test_the_loop_needs_the_line_before(new_job: New) -> None:
    with pytest.raises(RuntimeError, match=r"job.checkpointable"):
        next(new_job().steps([1]))


def test_options_belong_to_the_first_call(new_job: New) -> None:
    job = new_job()
    job.checkpointable()
    with pytest.raises(ValueError, match="first call"):
        job.checkpointable(keep=5)


def test_an_epoch_has_one_loop(new_job: New) -> None:
    job = new_job()
    job.checkpointable()
    for _ in job.epochs(1):
        assert list(job.steps("ab")) == ["a", "b"]
        with pytest.raises(RuntimeError, match=r"one loop over job.steps"):
            list(job.steps("c"))


def test_epochs_by_a_plain_range(new_job: New) -> None:
    done = []

    def train(stop: int) -> None:
        job = new_job()
        job.checkpointable(every_steps=1000)
        for epoch in range(job.epoch, 3):
            for item in job.steps("abc"):
                done.append((epoch, item))
                if job.step + 1 == stop:
                    signal.raise_signal(signal.SIGTERM)
        job.finish()

    for stop in (2, 3, 7):
        with pytest.raises(SystemExit):
            train(stop)
    train(0)
    assert done == [(epoch, item) for epoch in range(3) for item in "abc"]


def test_gradients_that_accumulate_are_not_torn_apart(new_job: New, tmp_path: Path) -> None:
    done = []

    def train(stop: int) -> None:
        job = new_job()
        job.checkpointable(every_steps=5, background=False, keep=10)
        for _ in job.epochs(2):
            for item in job.steps(range(9), accumulate=4):
                done.append(item)
                if job.step + 1 == stop:
                    signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit):
        train(2)
    train(0)
    assert done == [*range(9), *range(9)]
    # At the stop, and at the first boundary after each fifth step; each epoch counts from 0.
    assert [int(path.name.split("-")[2]) for path in folders(tmp_path)] == [4, 8, 13, 17]


def test_a_complete_job_has_no_epoch_left(new_job: New) -> None:
    job = new_job()
    job.checkpointable(background=False, every_steps=4)
    assert [list(job.steps("ab")) for _ in job.epochs(2)] == [["a", "b"], ["a", "b"]]
    again = new_job()
    again.checkpointable()
    assert [list(again.steps("ab")) for _ in again.epochs(2)] == [[]]  # the end of the last epoch was not saved
    assert again.step == 4


def test_parts_that_come_and_go_are_reported(new_job: New, caplog: pytest.LogCaptureFixture) -> None:
    job = new_job()
    job.checkpointable(old=[1])
    run_to(job, 2)
    job, ema = new_job(), [7]
    job.checkpointable(ema=ema)
    assert len(list(job.steps(range(3)))) == 1
    assert ema == [7]
    said = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert [("'ema'" in text, "'old'" in text) for text in said] == [(True, False), (False, True)]


def test_a_state_of_a_checkpointer_is_not_thrown_away(new_job: New, tmp_path: Path) -> None:
    Checkpointer(tmp_path, environment={}).save({"step": 5})
    with pytest.raises(CheckpointError, match=r"of a Checkpointer and not of job.checkpointable"):
        new_job().checkpointable()


@pytest.mark.parametrize(
    ("state", "format_name"),
    [
        (np.arange(4, dtype="<f2"), "npy"),
        ({"w": np.ones(2), "b": [np.zeros(1), (3, "x", None, float("nan"))], "a/b": np.zeros((0, 2))}, "npz"),
        ([np.float64(3.0), np.ones(1)], "pickle"),
        ({"a/b": np.ones(1), "a": {"b": np.zeros(1)}}, "pickle"),
        ({1: np.ones(1)}, "pickle"),
        (np.array([{}], dtype=object), "pickle"),
        ({"plain": 1}, "pickle"),
    ],
)
def test_formats_return_what_they_were_given(tmp_path: Path, state: Any, format_name: str) -> None:
    if "torch" in sys.modules and format_name == "pickle" and state == {"plain": 1}:
        format_name = "torch"
    found = formats.choose(state)
    assert found == format_name
    path = tmp_path / "part"
    with ChecksummedFile(path) as file, threads() as pool:
        extra = formats.FORMATS[found].write(file, state)
        file.flush()
        assert file.checksums == checksums(path, pool)
    back = formats.FORMATS[found].read(path, extra)
    np.testing.assert_equal(back, state)
    assert type(back) is type(state)


def test_a_checkpoint_that_names_a_module_by_its_older_name_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = types.ModuleType("client_sdk.training._folders")

    def _resolve(folder: str, digest: str) -> None:
        raise AssertionError("the older module is not there any more")

    _resolve.__module__, _resolve.__qualname__ = older.__name__, "_resolve"
    older._resolve = _resolve  # type: ignore[attr-defined]

    class Older:
        def __reduce__(self) -> tuple[Any, ...]:
            return _resolve, ("checkpoint-step-00000120-run-000002", "digest")

    monkeypatch.setitem(sys.modules, older.__name__, older)
    path = files.write(tmp_path, "checkpoint", files.Key(2, 31), Older())
    monkeypatch.delitem(sys.modules, older.__name__)
    found = files.read(path)
    assert isinstance(found, Reference)
    assert (found.folder, found.digest) == ("checkpoint-step-00000120-run-000002", "digest")


@pytest.mark.parametrize(("reason", "keep", "syncs"), [("migrated", 2, 1), ("migrated", 1, 6), ("preempted", 2, 6)])
def test_a_migration_does_not_wait_for_the_disk_of_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, keep: int, syncs: int
) -> None:
    """But for the small file that names the checkpoint; unless the one before is removed."""
    real, synced = os.fsync, list[str]()

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    (tmp_path / "stop.json").write_text(f'{{"reason": "{reason}", "cause_job": 0, "grace_s": 60.0}}')
    saved = tmp_path / "saved"
    job = Job({"EBB_CHECKPOINT_DIR": str(saved), "EBB_RUN_DIR": str(tmp_path), "EBB_RUN": "1"})
    job.checkpointable(keep=keep, w=np.ones(3))
    run_to(job, 2)
    of_folder = [path for path in synced if "-step-" in path or path == str(saved)]
    assert len(of_folder) == syncs
    assert any(".ckpt" in path for path in synced)
    again = Job({"EBB_CHECKPOINT_DIR": str(saved), "EBB_RUN": "2"})
    again.checkpointable(keep=keep, w=(weights := np.zeros(3)))
    assert (again.step, weights.tolist()) == (2, [1.0, 1.0, 1.0])
