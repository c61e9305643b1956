"""examples/training: each is preempted by a real SIGTERM at a random step, and resumes with the losses of a run that is not."""

import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from client_sdk.training import OBEYED

pytestmark = pytest.mark.timeout(600)  # up to nine processes import PyTorch, on cores that are not always their own
ROOT = Path(__file__).parents[2]
LIMIT = 100
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--rdzv-backend", "c10d")
STEP = re.compile(r"(?:rank \d )?step \d+ loss -?0x[0-9a-f.]+p[+-]\d+")


def start(home: Path, run: int, *command: str, **more: str) -> "subprocess.Popen[str]":
    home.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "EBB_RUN": str(run),
        "EBB_CHECKPOINT_DIR": str(home / "checkpoints"),
        "EBB_YIELD_FILE": str(home / f"yield-{run}"),
        "HF_HUB_OFFLINE": "1",
        **more,
    }
    with (home / f"errors-{run}").open("w") as errors:
        return subprocess.Popen(
            [sys.executable, *command], env=environment, cwd=home, stdout=subprocess.PIPE, stderr=errors, text=True
        )


def finish(process: "subprocess.Popen[str]", stop_at: str | None = None) -> tuple[int, list[str]]:
    """The exit status, and the steps that were done. Sends SIGTERM when the step `stop_at` is shown."""
    assert process.stdout is not None
    steps = []
    with process:
        for line in process.stdout:
            steps += STEP.findall(line)  # two ranks may write to one line
            if stop_at is not None and steps and steps[-1].startswith(stop_at):
                process.send_signal(signal.SIGTERM)
                stop_at = None
        return process.wait(LIMIT), steps


@pytest.mark.usefixtures("training_packages")
@pytest.mark.parametrize(
    ("example", "epochs", "steps", "stops"),
    [
        ("numpy_pytrees", 1, 20_000, 3),
        ("plain_pytorch", 20, 640, 2),
        ("lightning_trainer", 5, 160, 1),
        ("hf_trainer", 5, 160, 1),
    ],
)
def test_an_example_goes_on_bit_for_bit(tmp_path: Path, example: str, epochs: int, steps: int, stops: int) -> None:
    """The runs are so long that each is still at work when the signal reaches it."""
    script, lengths = str(ROOT / "examples" / "training" / f"{example}.py"), {"EPOCHS": str(epochs), "STEPS": str(steps)}
    status, unbroken = finish(start(tmp_path / "unbroken", 1, script, **lengths))
    assert (status, len(unbroken)) == (0, steps)
    rng, home, done = random.Random(example), tmp_path / "preempted", list[str]()
    for run in range(1, stops + 1):
        goal = len(done) + rng.randrange(1, 30)
        status, lines = finish(start(home, run, script, **lengths), f"step {goal} ")
        done += lines
        assert (status, done) == (OBEYED, unbroken[: len(done)])
        assert (home / f"yield-{run}").exists()
    assert len(done) < len(unbroken)
    status, lines = finish(start(home, stops + 1, script, **lengths))
    assert (status, done + lines) == (0, unbroken)


@pytest.mark.usefixtures("training_packages")
def test_ranks_of_torchrun_go_on_from_one_step(tmp_path: Path) -> None:
    script = str(ROOT / "examples" / "training" / "torchrun_ddp.py")
    _, stopped = finish(start(tmp_path / "stopped", 1, *TORCHRUN, script, EPOCHS="1000000"), "rank 1 step 15 ")
    epochs = max(int(line.split()[3]) for line in stopped) // 16 + 3
    status, again = finish(start(tmp_path / "stopped", 2, *TORCHRUN, script, EPOCHS=str(epochs)))
    assert status == 0
    status, unbroken = finish(start(tmp_path / "unbroken", 1, *TORCHRUN, script, EPOCHS=str(epochs)))
    assert (status, len(unbroken)) == (0, 2 * epochs * 16)
    assert 0 < len(again) < len(unbroken)
    assert set(again) <= set(unbroken)
    assert len(set(again)) == len(again)


@pytest.mark.usefixtures("training_packages")
@pytest.mark.long
@pytest.mark.parametrize("example", ["lightning_trainer", "hf_trainer"])
def test_ranks_of_a_framework_stop_after_the_same_step(tmp_path: Path, example: str) -> None:
    command = (*TORCHRUN, str(ROOT / "examples" / "training" / f"{example}.py"))
    status, unbroken = finish(start(tmp_path / "unbroken", 1, *command, EPOCHS="20"))
    assert (status, len(unbroken)) == (0, 2 * 20 * 16)
    _, first = finish(start(tmp_path / "stopped", 1, *command, EPOCHS="20"), "step 10 ")
    assert (tmp_path / "stopped" / "yield-1").exists()
    status, second = finish(start(tmp_path / "stopped", 2, *command, EPOCHS="20"))
    assert status == 0
    assert sorted(first + second) == sorted(unbroken)


@pytest.mark.usefixtures("training_packages")
def test_the_trainer_goes_on_after_a_save_of_its_own_that_fails_and_saves_after_the_next_step(tmp_path: Path) -> None:
    """Nothing can be written into the folder of its checkpoint, as a file is in its place."""
    script = str(ROOT / "examples" / "training" / "hf_trainer.py")
    checkpoints = tmp_path / "once" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "checkpoint-100").touch()
    status, lines = finish(start(tmp_path / "once", 1, script, EPOCHS="5"))
    assert (status, len(lines)) == (0, 160)
    assert "the checkpoint could not be written" in (tmp_path / "once" / "errors-1").read_text()
    assert "checkpoint-101" in {manifest.parent.name for manifest in checkpoints.glob("*/manifest.json")}


FULL_ONCE = """
import errno, os, runpy, sys
from transformers import Trainer

write, left = Trainer._save_optimizer_and_scheduler, [1]


def full_once(trainer, folder):
    if left:
        left.pop()
        assert os.path.getsize(os.path.join(folder, "model.safetensors")) > 0
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)
    write(trainer, folder)


Trainer._save_optimizer_and_scheduler = full_once
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.usefixtures("training_packages")
def test_what_the_trainer_has_written_of_a_checkpoint_is_removed_when_the_disk_is_full(tmp_path: Path) -> None:
    """The model is written, and nothing else of the checkpoint: it would take the room of the next try."""
    (tmp_path / "script.py").write_text(FULL_ONCE)
    example = ROOT / "examples" / "training" / "hf_trainer.py"
    status, lines = finish(start(tmp_path / "full", 1, str(tmp_path / "script.py"), str(example), EPOCHS="5"))
    found = {folder.name for folder in (tmp_path / "full" / "checkpoints").glob("checkpoint-*")}
    assert (status, len(lines)) == (0, 160)
    assert ("checkpoint-100" in found, "checkpoint-101" in found) == (False, True)
