"""`job.checkpointable` in processes that are killed or stopped while they save, and in two ranks."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from client_sdk.training import OBEYED
from tests.sdk.fake import until
from tests.sdk.job_tools import folders

ROOT = Path(__file__).parents[2]
LIMIT = 60


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
