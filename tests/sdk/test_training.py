"""Checkpoints in real processes that are really stopped and killed."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk.training import OBEYED, Checkpointer, CheckpointError, step_counter
from tests.sdk.fake import until

ROOT = Path(__file__).parents[2]
STEPS = 400


class Job:
    """A job as its node would run it: one directory of checkpoints, and a yield file of its own for each run."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(exist_ok=True)
        self.run = 0

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        self.run += 1
        self.yield_file = self.home / f"yield-{self.run}"
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "EBB_JOB_ID": "7",
            "EBB_RUN": str(self.run),
            "EBB_CHECKPOINT_DIR": str(self.home / "checkpoints"),
            "EBB_YIELD_FILE": str(self.yield_file),
        }
        sizes = ["--hidden", "256", "--batch", "256", "--steps", str(STEPS)]
        files = ["--step-log", str(self.home / "steps"), "--result", str(self.home / "result")]
        # Of lower priority than the test, which would otherwise now and then look too late.
        command = ["nice", "-n", "10", sys.executable, "-u", str(ROOT / "examples" / "train.py"), *sizes, *files, *arguments]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=self.home)

    def steps(self) -> list[dict[str, Any]]:
        path = self.home / "steps"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def checkpoints(self) -> list[Path]:
        return sorted((self.home / "checkpoints").glob("*.ckpt"))

    def result(self) -> str:
        return (self.home / "result").read_text()


def finish(process: "subprocess.Popen[str]") -> tuple[int, str]:
    out, _ = process.communicate(timeout=60)
    return process.returncode, out


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> str:
    job = Job(tmp_path_factory.mktemp("unbroken"))
    status, out = finish(job.start())
    assert status == 0
    assert f"done: {STEPS} steps" in out
    assert not job.yield_file.exists()
    assert [s["step"] for s in job.steps()] == list(range(1, STEPS + 1))
    return job.result()


def test_a_preempted_run_goes_on_bit_for_bit(tmp_path: Path, unbroken: str) -> None:
    job, rng = Job(tmp_path), random.Random(1)
    for _ in range(3):
        process = job.start()
        goal = len(job.steps()) + rng.randrange(1, 12)
        until(lambda n=goal: len(job.steps()) >= n)
        process.send_signal(signal.SIGTERM)
        assert finish(process)[0] == OBEYED
        assert job.yield_file.exists()
    assert finish(job.start())[0] == 0
    assert not job.yield_file.exists()
    assert job.result() == unbroken
    assert [s["step"] for s in job.steps()] == list(range(1, STEPS + 1))  # no step was lost, and none was made twice
    assert {s["run"] for s in job.steps()} == {1, 2, 3, 4}


def test_a_run_that_waits_for_its_data_is_preempted_and_goes_on(tmp_path: Path, unbroken: str) -> None:
    job, data = Job(tmp_path), tmp_path / "data"
    waits = ("--wait-at", "9", "--wait-for", str(data))
    process = job.start(*waits)
    until(lambda: len(job.steps()) == 9)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == OBEYED
    assert job.steps()[-1]["step"] == 9
    job.run = 0  # from its first step, in files of its own
    job.home = tmp_path / "anew"
    job.home.mkdir()
    process = job.start(*waits)
    until(lambda: len(job.steps()) == 9)
    data.touch()
    assert finish(process)[0] == 0
    assert job.result() == unbroken


def test_kills_at_any_moment_lose_only_what_was_not_saved(tmp_path: Path, unbroken: str) -> None:
    job, rng = Job(tmp_path), random.Random(2)
    saved = 0
    for _ in range(3):
        process = job.start("--checkpoint-every", "5")
        goal = len(job.steps()) + rng.randrange(7, 12)
        until(lambda n=goal: len(job.steps()) >= n)
        process.kill()
        assert finish(process)[0] == -signal.SIGKILL
        assert not job.yield_file.exists()
        first = next(s["step"] for s in job.steps() if s["run"] == job.run)
        assert first == saved + 1
        with Checkpointer(tmp_path / "checkpoints") as checkpoint:
            saved = checkpoint.load()["step"]  # the kill may have come between the fifth step and its save
    assert finish(job.start("--checkpoint-every", "5"))[0] == 0
    assert job.result() == unbroken


@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.long)])
def test_a_kill_inside_a_save_leaves_the_old_checkpoint(tmp_path: Path, unbroken: str, seed: int) -> None:
    job, rng = Job(tmp_path), random.Random(seed)
    process = job.start()
    until(lambda: len(job.steps()) >= 5)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == OBEYED
    before = job.checkpoints()
    step = job.steps()[-1]["step"]

    process = job.start("--save-seconds", "30")
    until(lambda: len(job.steps()) >= step + 5)
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert any(line == "saving\n" for line in process.stdout)
    until(lambda: any((tmp_path / "checkpoints").glob(".*.tmp")))
    threading.Event().wait(rng.random() / 10)
    process.send_signal(signal.SIGTERM)  # a second one has no worse effect
    process.kill()
    assert finish(process)[0] == -signal.SIGKILL
    assert not job.yield_file.exists()
    assert job.checkpoints() == before

    assert finish(job.start())[0] == 0
    assert next(s["step"] for s in job.steps() if s["run"] == 3) == step + 1
    assert not list((tmp_path / "checkpoints").glob(".*.tmp"))
    assert job.result() == unbroken


def test_without_its_checkpoint_a_run_starts_from_nothing(tmp_path: Path, unbroken: str) -> None:
    job = Job(tmp_path)
    process = job.start()
    until(lambda: len(job.steps()) >= 5)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == OBEYED
    for path in job.checkpoints():
        path.unlink()
    assert finish(job.start())[0] == 0
    assert next(s["step"] for s in job.steps() if s["run"] == 2) == 1
    assert job.result() == unbroken


@pytest.fixture
def yield_file(tmp_path: Path) -> Path:
    return tmp_path / "yield"


@pytest.fixture
def new(tmp_path: Path, yield_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(step_counter, "_own", None)  # a checkpoint has the step that the process counts
    before = signal.getsignal(signal.SIGTERM)
    environment = {"EBB_CHECKPOINT_DIR": str(tmp_path / "c"), "EBB_YIELD_FILE": str(yield_file), "EBB_RUN": "1"}
    yield lambda **options: Checkpointer(**{"environment": environment, **options})
    signal.signal(signal.SIGTERM, before)


def test_work_that_finishes_in_its_grace_is_finished(new: Any, yield_file: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with new() as checkpoint:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert checkpoint.stop_requested
    assert not yield_file.exists()
    assert signal.getsignal(signal.SIGTERM) == before


FINISHES = """
import pathlib, signal, sys, time
from client_sdk.training import Checkpointer

with Checkpointer() as checkpoint:
    checkpoint.save(1)
if sys.argv[1] == "resets":  # as a library may that meddles with signals
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
print("done", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.02)
"""


@pytest.mark.parametrize(("what", "status"), [("leaves", 0), ("resets", -signal.SIGTERM)])
def test_a_request_that_comes_after_the_last_line_is_not_heard(tmp_path: Path, what: str, status: int) -> None:
    done = tmp_path / "done"
    done.write_text("of another process")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "EBB_CHECKPOINT_DIR": str(tmp_path), "EBB_DONE_FILE": str(done)}
    command = [sys.executable, "-c", FINISHES, what]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        assert done.read_text() == f"{process.pid}\n"
        process.send_signal(signal.SIGTERM)
        (tmp_path / "go").touch()
        assert process.wait(60) == status


def test_work_that_fails_is_not_done(new: Any, tmp_path: Path) -> None:
    done = tmp_path / "done"
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ZeroDivisionError), new(environment={"EBB_DONE_FILE": str(done)}):
        _ = 1 / 0
    with pytest.raises(SystemExit), new(environment={"EBB_DONE_FILE": str(done)}):
        sys.exit(3)
    assert not done.exists()
    signal.signal(signal.SIGTERM, before)


def test_a_run_names_the_checkpoints_that_it_has_loaded_and_saved(new: Any, tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.json"
    environment = {"EBB_CHECKPOINT_DIR": str(tmp_path / "c"), "EBB_CHECKPOINT_FILE": str(file)}
    with new(environment=environment | {"EBB_RUN": "1"}) as checkpoint:
        assert checkpoint.load() is None
        assert not file.exists(), "it has loaded nothing, and saved nothing"
        first = checkpoint.save({"step": 1})
        assert json.loads(file.read_text()) == {"saved": first.name}
        second = checkpoint.save({"step": 2})
    file.unlink()
    with new(environment=environment | {"EBB_RUN": "2"}) as checkpoint:
        assert checkpoint.load() == {"step": 2}
        assert json.loads(file.read_text()) == {"began_from": second.name}
        third = checkpoint.save({"step": 3})
        assert json.loads(file.read_text()) == {"began_from": second.name, "saved": third.name}
        file.unlink()
        file.parent.chmod(0o500)
        try:
            assert checkpoint.save({"step": 4}).exists(), "that it cannot be named undoes no checkpoint"
        finally:
            file.parent.chmod(0o700)


def test_an_obeyed_stop(new: Any, yield_file: Path) -> None:
    yield_file.write_text("of another process")

    def train() -> None:
        with new() as checkpoint:
            assert not yield_file.exists()
            assert checkpoint.load() is None
            assert checkpoint.load(lambda: [1]) == [1]
            checkpoint.at_boundary(lambda: pytest.fail("nothing was asked"))
            signal.raise_signal(signal.SIGTERM)
            checkpoint.at_boundary(lambda: [2])

    with pytest.raises(SystemExit) as left:
        train()
    assert left.value.code == OBEYED == 143
    assert yield_file.exists()
    signal.raise_signal(signal.SIGTERM)  # while the program ends: harmless
    assert new().load() == [2]


def test_a_save_that_fails_is_no_obedience(new: Any, yield_file: Path, tmp_path: Path) -> None:
    class Broken:
        def __reduce__(self) -> Any:
            raise OSError(28, "No space left on device")

    def train() -> None:
        with new() as checkpoint:
            checkpoint.save("good")
            checkpoint.request_stop()
            checkpoint.at_boundary(lambda: [bytes(1 << 20), Broken()])

    with pytest.raises(OSError, match="No space left"):
        train()
    assert not yield_file.exists()
    assert new().load() == "good"
    assert [p.name for p in (tmp_path / "c").iterdir()] == ["checkpoint-000001-00000001.ckpt"]


@pytest.mark.parametrize("damage", ["truncated", "header", "flipped", "foreign", "empty"])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_used(
    new: Any, damage: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with new() as checkpoint:
        checkpoint.save({"step": 1, "data": bytes(100)})
        newest = checkpoint.save({"step": 2, "data": bytes(100)})
    whole = newest.read_bytes()
    middle = bytearray(whole)
    middle[len(whole) - 20] ^= 1
    versions = {"truncated": whole[:-1], "header": whole[:20], "flipped": bytes(middle), "foreign": b"x" * 99, "empty": b""}
    newest.write_bytes(versions[damage])
    with new() as checkpoint:
        assert checkpoint.load()["step"] == 1
        assert "checkpoint-000001-00000002.ckpt" in caplog.text
        assert "going on from the one before it" in caplog.text
        checkpoint.save({"step": 3})
        kept = sorted(p.stem[-1] for p in (tmp_path / "c").glob("*.ckpt"))
        newest = checkpoint.save({"step": 4})
    assert kept == ["1", "3"]
    assert new().load()["step"] == 4


def test_when_no_checkpoint_is_good_nothing_is_thrown_away(new: Any) -> None:
    with new() as checkpoint:
        path = checkpoint.save(1)
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"can be used: .*cut short.*remove them all to begin from the start"):
        new().load(lambda: 0)


def test_the_last_two_are_kept(new: Any, tmp_path: Path) -> None:
    with new(every_steps=2) as checkpoint:
        for step in range(1, 12):
            checkpoint.at_boundary(lambda s=step: s)
        assert checkpoint.load() == 10
    assert len(list((tmp_path / "c").iterdir())) == 2


def test_a_process_of_an_older_run_cannot_pass_its_work_off(new: Any, tmp_path: Path) -> None:
    old = new()
    old.__enter__()
    old.save("old")
    with new(environment={"EBB_RUN": "2"}, directory=tmp_path / "c") as checkpoint:
        checkpoint.save("new")
        for _ in range(3):
            old.save("late")
        assert checkpoint.load() == "new"
    with Checkpointer(tmp_path / "c", environment={}) as by_hand:
        assert by_hand.load() == "new"
        by_hand.save("by hand")
        assert by_hand.load() == "by hand"


def test_outside_of_ebb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("EBB_CHECKPOINT_DIR", "EBB_YIELD_FILE", "EBB_RUN"):
        monkeypatch.delenv(name, raising=False)

    def train() -> None:
        with Checkpointer() as checkpoint:
            checkpoint.request_stop()
            checkpoint.at_boundary(lambda: 5)

    with pytest.raises(SystemExit):
        train()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert Checkpointer().load() == 5
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoints"]


def test_only_the_main_thread_has_signals(new: Any) -> None:
    caught: list[BaseException] = []

    def enter() -> None:
        try:
            new().__enter__()
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(10)
    assert "main thread" in str(caught[0])


def test_a_boundary_that_saves_nothing_asks_the_clock_alone(new: Any) -> None:
    calls: list[str] = []

    def note(_frame: Any, event: str, function: Any) -> None:
        if event == "c_call":
            calls.append(function.__name__)

    with new(every_seconds=3600, every_steps=10**9) as checkpoint:
        sys.setprofile(note)
        try:
            for _ in range(10):
                checkpoint.at_boundary(dict[str, int])
        finally:
            sys.setprofile(None)
    assert [name for name in calls if name != "setprofile"] == ["monotonic"] * 10
