"""Training programs that are parked and resumed, in real processes and by real signals."""

import os
import random
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ebb_inject.ebb_hook import control
from ebb_inject.ebb_hook.parking import Parking
from ebb_inject.ebb_hook.steps import Steps
from tests.in_job.programs import started, until
from tests.in_job.scripts import LOOP, TRAINING

pytestmark = pytest.mark.usefixtures("training_packages")


@pytest.mark.parametrize("parks", [8, pytest.param(50, marks=pytest.mark.long)])
def test_parks_change_no_bit(parks: int, tmp_path: Path) -> None:
    """Tied weights, views, an average of the weights, and optimizer state that is created late."""
    chosen = random.Random(11)
    with started(tmp_path / "parked", TRAINING, "-1") as program:
        steps = []
        for _ in range(parks):
            time.sleep(chosen.uniform(0, 0.02))  # the moment is random, and no result depends on it
            parked = program.parked()
            steps.append(parked["step"])
            assert parked["left"] == {}
            assert parked["residue"] == 0
            if chosen.random() < 0.5:
                program.stop()
                program.go_on()
            program.resumed()
        until(lambda: program.counted() > 150, "the last layer trains, too")
        program.tell()
        (found,) = program.results()
    assert steps == sorted(steps)
    with started(tmp_path / "alone", TRAINING, str(len(found[0]))) as alone:
        (expected,) = alone.results()
    assert found == expected


def test_memory_is_gone_as_the_system_sees_it(tmp_path: Path) -> None:
    """256 MiB of tensors. The kernel counts the arena, a shared mapping, apart from them."""
    with started(tmp_path, LOOP, "big") as program:
        until(lambda: program.counted() > 3, "steps")
        before = program.memory()
        parked = program.parked()
        program.stop()
        assert parked["bytes"] > 256 << 20
        assert parked["residue"] == 0
        assert program.memory() < before - 0.99 * parked["bytes"]
        assert program.memory("RssShmem") > 0.99 * parked["bytes"]
        program.go_on()
        program.resumed()
        assert program.memory() > before - 0.05 * parked["bytes"]
        again = program.parked()
        assert program.memory("RssShmem") < 1.05 * again["bytes"], "the arena is used again"


def test_a_stopped_process_uses_no_processor_and_counts_no_step(tmp_path: Path) -> None:
    with started(tmp_path, LOOP) as program:
        parked = program.parked()
        at = program.published()
        assert (at.first + at.counted) == parked["step"]
        program.stop()
        ticks = Path(f"/proc/{program.pid}/schedstat").read_text().split()[0]
        number = control.send(program.control, control.RESUME)
        assert Path(f"/proc/{program.pid}/schedstat").read_text().split()[0] == ticks
        program.go_on()
        assert program.answer(program.control, number)["state"] == control.RUNNING
        until(lambda: program.published().counted > at.counted + 5, "it goes on")
        after = program.published()
        assert after.untimed == at.untimed
        assert after.busy_ns - at.busy_ns <= after.last_ns - at.last_ns


def test_a_process_that_dies_while_it_is_parked(tmp_path: Path) -> None:
    with started(tmp_path, LOOP) as program:
        path = program.control
        program.parked()
        program.stop()
        program.process.kill()
        program.ended()
        assert Path(path).exists()
        assert control.live(str(program.park)) == []
        assert list(program.park.iterdir()) == []
        assert control.live(str(program.park)) == []


def test_sigterm_of_a_parked_program_that_has_no_handler(tmp_path: Path) -> None:
    with started(tmp_path, LOOP) as program:
        program.parked()
        program.process.terminate()
        assert program.ended() == -signal.SIGTERM
        assert control.live(str(program.park)) == []


def test_sigterm_of_a_stopped_program_is_handled_when_its_tensors_are_back(tmp_path: Path) -> None:
    with started(tmp_path, LOOP, "catch") as program:
        program.parked()
        program.stop()
        program.process.terminate()
        program.go_on()
        assert program.ask(control.PARK)["state"] == control.PARKED
        assert "caught" not in program.output
        program.resumed()
        program.said("caught 4000000")
        program.parked()
        os.kill(program.pid, signal.SIGUSR1)
        control.send(program.control, control.RESUME)  # it may end, and remove its files, before its answer is read
        assert program.ended() == 7
        assert program.output.count("caught 4000000") == 2
        assert list(program.park.iterdir()) == [], "a program that exits removes its files"


def test_a_program_that_ignores_sigterm(tmp_path: Path) -> None:
    with started(tmp_path, LOOP, "ignore") as program:
        program.parked()
        program.process.terminate()
        program.resumed()
        program.process.terminate()
        program.parked()
        program.resumed()


def test_what_else_is_requested(tmp_path: Path) -> None:
    with started(tmp_path, LOOP) as program:
        assert program.resumed()["request"] == 1, "a running program is running"
        assert program.ask(control.PARK, most_bytes=1 << 20) | {"step": 0, "pid": 0} == {
            "request": 2,
            "state": control.REFUSED,
            "reason": "11 MiB would be moved to host memory, and the limit is 1 MiB",
            "step": 0,
            "pid": 0,
        }
        assert "the command 9 is unknown" in program.ask(9)["reason"]
        prepared = program.ask(control.PREPARE)
        assert (prepared["state"], prepared["pid"]) == (control.PREPARED, program.pid)
        arena = program.memory("RssShmem")
        later = program.published().counted + 300
        parked = program.parked(at_step=later)
        assert later <= parked["step"] <= later + 1
        assert program.ask(control.PREPARE)["state"] == control.PARKED
        assert program.parked()["step"] == parked["step"]
        assert program.memory("RssShmem") - arena <= prepared["bytes"] + (1 << 20)
        program.resumed()


def test_a_request_that_wakes_nobody_is_found(tmp_path: Path) -> None:
    """The FIFO is gone; the process looks once a second."""
    with started(tmp_path, LOOP) as program:
        program.parked()
        path = program.control
        Path(path + control.WAKE).unlink()
        with pytest.raises(FileNotFoundError):
            control.send(path, control.RESUME)
        found = control.answer(path)
        assert found is not None
        assert program.answer(path, found["request"] + 1)["state"] == control.RUNNING


def test_a_program_without_modules_parks_after_the_next_step(tmp_path: Path) -> None:
    with started(tmp_path, LOOP, "functional") as program:
        program.parked()
        program.resumed()
        for later in (50, 51):  # also if the request waits for an even or an odd number of steps
            step = program.published().counted + later
            assert program.parked(at_step=step)["step"] == step + 1
            program.resumed()


def test_a_request_that_has_woken_another_thread_is_obeyed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the process itself, without PyTorch: nothing is in the FIFO any more when the process begins to wait."""
    parked = Parking(str(tmp_path))
    mover: Any = SimpleNamespace(move_back=lambda _moved: {})
    moved: Any = SimpleNamespace(size=5)
    try:
        number = control.send(parked._control.path, control.RESUME)
        parked._control.drain()
        monkeypatch.setattr(parked._control, "wait", lambda _seconds: pytest.fail("it waits first"))
        assert parked._has_resumed(mover, moved, {})
        assert parked.seen == number
    finally:
        parked.remove()
        parked.close()


def test_a_request_that_arrives_while_another_one_fails_is_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parked = Parking(str(tmp_path))
    counter = Steps(None)

    def fails(*_: object) -> bool:
        control.send(parked._control.path, control.RESUME)
        raise RuntimeError("a defect")

    try:
        number = control.send(parked._control.path, control.PARK)
        with monkeypatch.context() as patch:
            patch.setattr(parked, "_must_obey", fails)
            parked.at_boundary(counter)
            assert parked.seen == number
            assert parked.is_due(counter) is None
            assert parked.seen == number + 1
        assert parked.word[0] == number + 2
        parked.at_boundary(counter)
        found = control.answer(parked._control.path)
        assert found is not None
        assert (found["request"], found["state"]) == (number + 2, control.RUNNING)
    finally:
        parked.remove()
        parked.close()
