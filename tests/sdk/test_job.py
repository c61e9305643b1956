"""`job.checkpointable` without PyTorch: what can be saved, failures, and several ranks."""

import logging
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.training import OBEYED, CheckpointError, Job, _formats, read_folder
from tests.sdk.fake import until

ROOT = Path(__file__).parents[2]
LIMIT = 60


@pytest.fixture
def new(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Returns the job of the next run, in the same directory."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    jobs: list[Job] = []

    def end() -> None:
        """What the end of a process does: the signal means nothing to this job any more."""
        if jobs and (saving := jobs[-1]._saving) is not None:
            saving._checkpointer.__exit__(RuntimeError, RuntimeError(), None)

    def job() -> Job:
        end()
        jobs.append(Job({"EBB_CHECKPOINT_DIR": str(tmp_path), "EBB_RUN": str(len(jobs) + 1), "EBB_GRACE_SECONDS": "30"}))
        return jobs[-1]

    yield job
    end()
    signal.signal(signal.SIGTERM, before)


def run_to(job: Job, step: int, of: int = 10, work: Callable[[int], None] = lambda _item: None) -> None:
    """Trains, and stops after that step, by a real signal."""

    def train() -> None:
        for _ in job.epochs(1):
            for item in job.steps(range(of)):
                work(item)
                if job.step + 1 == step:
                    signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit) as left:
        train()
    assert left.value.code == OBEYED


def folders(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_dir())


# ---- what can be saved ---------------------------------------------------------------------------------------------------


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


def test_every_kind_of_object_goes_on(new: Callable[..., Job], tmp_path: Path) -> None:
    seed()
    unbroken = World()
    for item in range(10):
        unbroken.work(item)

    seed()
    first = World()
    job = new()
    first.register(job)
    run_to(job, 4, work=first.work)
    stopped_at = first.facts()
    formats = {path.suffix for path in folders(tmp_path)[0].iterdir()}
    assert formats - {".pt"} == {".npy", ".npz", ".pickle", ".json"}  # .pt if another test has imported torch

    random.seed(99)
    np.random.seed(99)
    second = World()
    job = new()
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


def test_a_number_cannot_be_restored_in_place(new: Callable[..., Job]) -> None:
    with pytest.raises(TypeError, match=r"best=3\.5 cannot be restored in place.*best=\(get, put\)"):
        new().checkpointable(best=3.5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"every_steps": 0}, "every_steps=0"),
        ({"keep": 0}, "keep=0"),
        ({"job": []}, "choose another name"),
        ({"keep_every": -1}, "keep_every=-1"),
    ],
)
def test_options_that_cannot_be(new: Callable[..., Job], options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        new().checkpointable(**options)


def test_the_loop_needs_the_line_before(new: Callable[..., Job]) -> None:
    with pytest.raises(RuntimeError, match=r"job.checkpointable"):
        next(new().steps([1]))


def test_options_belong_to_the_first_call(new: Callable[..., Job]) -> None:
    job = new()
    job.checkpointable()
    with pytest.raises(ValueError, match="first call"):
        job.checkpointable(keep=5)


def test_an_epoch_has_one_loop(new: Callable[..., Job]) -> None:
    job = new()
    job.checkpointable()
    for _ in job.epochs(1):
        assert list(job.steps("ab")) == ["a", "b"]
        with pytest.raises(RuntimeError, match=r"one loop over job.steps"):
            list(job.steps("c"))


def test_epochs_by_a_plain_range(new: Callable[..., Job]) -> None:
    done = []

    def train(stop: int) -> None:
        job = new()
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


def test_gradients_that_accumulate_are_not_torn_apart(new: Callable[..., Job], tmp_path: Path) -> None:
    done = []

    def train(stop: int) -> None:
        job = new()
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


def test_a_complete_job_has_no_epoch_left(new: Callable[..., Job]) -> None:
    job = new()
    job.checkpointable(background=False, every_steps=4)
    assert [list(job.steps("ab")) for _ in job.epochs(2)] == [["a", "b"], ["a", "b"]]
    again = new()
    again.checkpointable()
    assert [list(again.steps("ab")) for _ in again.epochs(2)] == [[]]  # the end of the last epoch was not saved
    assert again.step == 4


def test_parts_that_come_and_go_are_reported(new: Callable[..., Job], caplog: pytest.LogCaptureFixture) -> None:
    job = new()
    job.checkpointable(old=[1])
    run_to(job, 2)
    job, ema = new(), [7]
    job.checkpointable(ema=ema)
    assert len(list(job.steps(range(3)))) == 1
    assert ema == [7]
    said = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert [("'ema'" in text, "'old'" in text) for text in said] == [(True, False), (False, True)]


def test_a_state_of_a_checkpointer_is_not_thrown_away(new: Callable[..., Job], tmp_path: Path) -> None:
    from client_sdk.training import Checkpointer

    Checkpointer(tmp_path, environment={}).save({"step": 5})
    with pytest.raises(CheckpointError, match=r"of a Checkpointer and not of job.checkpointable"):
        new().checkpointable()


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
    found = _formats.choose(state)
    assert found == format_name
    path = tmp_path / "part"
    extra = _formats.FORMATS[found].write(path, state)
    back = _formats.FORMATS[found].read(path, extra)
    np.testing.assert_equal(back, state)
    assert type(back) is type(state)


# ---- failures ------------------------------------------------------------------------------------------------------------


@contextmanager
def full_disk(n: int) -> Iterator[None]:
    """Inside, no file of this process grows beyond `n` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("background", [True, False])
def test_a_full_disk_leaves_the_checkpoint_before(new: Callable[..., Job], tmp_path: Path, background: bool) -> None:
    job, weight = new(), np.zeros(100_000)
    job.checkpointable(weight=weight, every_steps=2, background=background)
    batches = job.steps(range(10))
    for _ in zip(range(3), batches, strict=False):
        weight += 1
    job._opened().wait()
    weight += 1
    with full_disk(100_000), pytest.raises((CheckpointError, OSError)):
        list(batches)
    assert [path.name for path in folders(tmp_path)] == ["checkpoint-step-00000002-run-000001"]
    again, weight = new(), np.zeros(100_000)
    again.checkpointable(weight=weight)
    assert (again.step, weight[0]) == (2, 2)


def test_a_full_disk_at_the_stop_is_no_obedience(new: Callable[..., Job], tmp_path: Path) -> None:
    job = new()
    job.checkpointable(weight=np.zeros(100_000))
    batches = job.steps(range(10))
    next(batches)
    signal.raise_signal(signal.SIGTERM)
    with full_disk(100_000), pytest.raises(OSError, match=r"written|too large"):
        next(batches)
    assert not folders(tmp_path)


@pytest.mark.parametrize("damage", ["part", "manifest", "missing"])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_used(
    new: Callable[..., Job], tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    job, weight = new(), np.zeros(3)
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
    again, weight = new(), np.zeros(3)
    again.checkpointable(weight=weight)
    assert (again.step, weight[0]) == (3, 3)
    assert any(newest.name in record.message and "going on from the one before" in record.message for record in caplog.records)


def test_no_good_checkpoint_is_an_error(new: Callable[..., Job], tmp_path: Path) -> None:
    job = new()
    job.checkpointable(weight=np.zeros(3))
    run_to(job, 2)
    (folders(tmp_path)[0] / "weight.npy").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be used"):
        new().checkpointable(weight=np.zeros(3))


def test_what_a_killed_save_left_is_removed(new: Callable[..., Job], tmp_path: Path) -> None:
    left = tmp_path / "checkpoint-step-00000009-run-000001"
    left.mkdir()
    (tmp_path / "other").mkdir()
    job = new()
    job.checkpointable()
    assert [path.name for path in folders(tmp_path)] == ["other"]


def test_a_grace_period_that_is_too_short_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from client_sdk.training._grace import Grace

    grace = Grace({"EBB_GRACE_SECONDS": "10"}, background=True)
    grace.measured(4.0, 1.0)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    grace.measured(5.0, 1.0)
    grace.measured(6.0, 1.0)
    (said,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert "up to 11.0 s" in said
    assert "`--grace 17s`" in said


# ---- processes -----------------------------------------------------------------------------------------------------------


def start(home: Path, run: int, *, every: int = 5, total: int = 12, **more: str) -> "subprocess.Popen[str]":
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "EBB_RUN": str(run),
        "EBB_CHECKPOINT_DIR": str(home / "checkpoints"),
        "EBB_YIELD_FILE": str(home / "yield"),
        **more,
    }
    command = [sys.executable, "-m", "tests.sdk.job_numpy", str(total), str(every)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)


def finish(process: "subprocess.Popen[str]") -> tuple[int, list[str]]:
    out, _ = process.communicate("\n", timeout=LIMIT)
    return process.returncode, [line for line in out.splitlines() if line.startswith("step")]


def read_until(process: "subprocess.Popen[str]", wanted: str) -> None:
    assert process.stdout is not None
    assert any(line.startswith(wanted) for line in process.stdout)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    status, steps = finish(start(tmp_path_factory.mktemp("unbroken"), 1))
    assert (status, len(steps)) == (0, 12)
    return steps


def test_a_save_in_the_background_that_is_killed_leaves_the_one_before(tmp_path: Path, unbroken: list[str]) -> None:
    status, _ = finish(start(tmp_path, 1, total=7))
    assert status == 0
    process = start(tmp_path, 2, GO=str(tmp_path / "never"), WAIT_AT="12")
    read_until(process, "saving")  # step 10, in the background
    process.kill()
    assert process.wait(LIMIT) == -signal.SIGKILL
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()
    status, steps = finish(start(tmp_path, 3))
    assert (status, steps) == (0, unbroken[5:])


def test_a_stop_waits_for_the_save_in_the_background(tmp_path: Path, unbroken: list[str]) -> None:
    process = start(tmp_path, 1, GO=str(tmp_path / "go"), WAIT_AT="7")
    read_until(process, "saving")
    process.send_signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    assert finish(process)[0] == OBEYED
    assert (tmp_path / "yield").exists()
    assert [path.name.split("-")[2] for path in folders(tmp_path / "checkpoints")] == ["00000005", "00000007"]
    status, steps = finish(start(tmp_path, 2))
    assert (status, steps) == (0, unbroken[7:])


def test_two_ranks_go_on_from_the_newest_step_that_both_have(tmp_path: Path) -> None:
    def rank(number: int, run: int, **more: str) -> "subprocess.Popen[str]":
        return start(tmp_path, run, every=4, RANK=str(number), WORLD_SIZE="2", SEED=str(number), **more)

    unbroken = [finish(start(tmp_path / str(number), 1, every=4, SEED=str(number)))[1] for number in (0, 1)]
    for number, process in enumerate([rank(0, 1, WAIT_AT="6"), rank(1, 1, WAIT_AT="10")]):
        saved = f"checkpoint.{number}of2-000001-0000000{4 + 4 * number}.1.ckpt"  # rank 0 has step 4, rank 1 has steps 4 and 8
        until((tmp_path / "checkpoints" / saved).exists)
        process.kill()
        process.communicate(timeout=LIMIT)
    again = [rank(number, 2) for number in (0, 1)]
    assert [finish(process) for process in again] == [(0, whole[4:]) for whole in unbroken]
