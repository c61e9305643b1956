"""Checkpointers among others: several in a program, several threads, and the processes that a program starts."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk.training import OBEYED, Checkpointer

LIMIT = 60
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def new(tmp_path: Path) -> Iterator[Any]:
    """Makes a Checkpointer of a job."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    files = {
        name: str(tmp_path / name) for name in ("EBB_CHECKPOINT_DIR", "EBB_YIELD_FILE", "EBB_DONE_FILE", "EBB_SAVERS_FILE")
    }
    yield lambda name="checkpoint": Checkpointer(name=name, environment={**files, "EBB_RUN": "1"})
    signal.signal(signal.SIGTERM, before)


def leaves_at(checkpoint: Checkpointer, state: object) -> bool:
    """Whether it saves and leaves at its next boundary."""
    with pytest.raises(SystemExit) as left:
        checkpoint.at_boundary(lambda: state)
    return bool(left.value.code == OBEYED)


# ---- several in a program ------------------------------------------------------------------------------------------------


def test_the_outer_one_hears_after_the_inner_one_is_done(new: Any, tmp_path: Path) -> None:
    def train() -> None:
        with new() as outer:
            with new("inner") as inner:
                inner.save(1)
            assert not (tmp_path / "EBB_DONE_FILE").exists(), "the job is not done"
            signal.raise_signal(signal.SIGTERM)
            assert (outer.stop_requested, inner.stop_requested) == (True, False)
            outer.at_boundary(lambda: 2)

    with pytest.raises(SystemExit):
        train()
    assert (new().load(), (tmp_path / "EBB_YIELD_FILE").exists()) == (2, True)
    signal.raise_signal(signal.SIGTERM)  # while the program ends: harmless


def test_both_are_told(new: Any) -> None:
    with new() as outer, new("inner") as inner:
        signal.raise_signal(signal.SIGTERM)
        assert leaves_at(inner, 1)
        assert leaves_at(outer, 2)
        assert (inner.load(), outer.load()) == (1, 2)


def test_a_request_between_two_is_for_the_next(new: Any, tmp_path: Path) -> None:
    with new("fold-1") as first:
        first.save(1)
    assert (tmp_path / "EBB_DONE_FILE").exists()
    signal.raise_signal(signal.SIGTERM)
    with new("fold-2") as second:
        assert not (tmp_path / "EBB_DONE_FILE").exists()
        assert leaves_at(second, 2)
    assert new("fold-2").load() == 2


def test_a_request_before_a_failure_is_over_with_it(new: Any) -> None:
    """As a notebook's cell that is run again."""

    def train() -> None:
        with new():
            signal.raise_signal(signal.SIGTERM)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    with new() as again:
        again.at_boundary(lambda: pytest.fail("nothing was asked"))


# ---- threads -------------------------------------------------------------------------------------------------------------


def test_two_threads_that_save_at_once_make_two_whole_checkpoints(new: Any, tmp_path: Path) -> None:
    """As an asynchronous save that is under way when the stop comes."""
    inside, go = threading.Event(), threading.Event()

    class Slow:
        def __reduce__(self) -> Any:
            inside.set()
            assert go.wait(LIMIT)
            return (int, ("1",))

    with new() as checkpoint:
        thread = threading.Thread(target=checkpoint.save, args=(Slow(),))
        thread.start()
        assert inside.wait(LIMIT)
        waits = threading.Timer(0.1, go.set)
        waits.start()
        checkpoint.save(2)
        thread.join(LIMIT)
    names = sorted(path.name for path in (tmp_path / "EBB_CHECKPOINT_DIR").iterdir())
    assert names == [f"checkpoint-000001-0000000{number}.ckpt" for number in (1, 2)]
    assert new().load() == 2
    (tmp_path / "EBB_CHECKPOINT_DIR" / names[1]).unlink()
    assert new().load() == 1


# ---- processes -----------------------------------------------------------------------------------------------------------


def test_a_worker_can_be_ended_by_its_program(new: Any, tmp_path: Path) -> None:
    with new() as checkpoint:
        for _ in range(20):  # each at the moment of its birth
            worker = FORK.Process(target=threading.Event().wait, daemon=True)
            worker.start()
            worker.terminate()
            worker.join(LIMIT)
            assert worker.exitcode == -signal.SIGTERM
        assert not checkpoint.stop_requested
        signal.raise_signal(signal.SIGTERM)
        assert checkpoint.stop_requested
    assert (tmp_path / "EBB_SAVERS_FILE").read_text() == f"{os.getpid()}\n"


def test_a_fork_that_saves_for_itself_hears(new: Any) -> None:
    def save() -> None:
        with new("worker") as own:
            signal.raise_signal(signal.SIGTERM)
            own.at_boundary(lambda: 3)

    with new() as checkpoint:
        signal.raise_signal(signal.SIGTERM)
        worker = FORK.Process(target=save)
        worker.start()
        worker.join(LIMIT)
        assert worker.exitcode == OBEYED
        assert Checkpointer(checkpoint.directory, name="worker", environment={}).load() == 3


AFTERWARDS = """
import signal, subprocess, sys
from client_sdk.training import Checkpointer

with Checkpointer() as checkpoint:
    checkpoint.save(1)
ask = "import signal; print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"
subprocess.run([sys.executable, "-c", ask], check=True)
"""


def test_a_program_that_is_started_when_the_work_is_done_can_be_told_to_end(tmp_path: Path) -> None:
    paths = {"EBB_CHECKPOINT_DIR": str(tmp_path), "EBB_DONE_FILE": str(tmp_path / "done")}
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **paths}
    command = [sys.executable, "-c", AFTERWARDS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=True)
    assert done.stdout == "True\n"
