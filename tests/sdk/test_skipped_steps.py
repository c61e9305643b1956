"""EBB_SKIP_STEPS: a job that is replayed counts its first steps without taking them, over all of its runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONG = """
import json, os, sys
from client_sdk import training
from client_sdk.training import Checkpointer

taken = []
with Checkpointer(every_steps=1000) as checkpoint:
    state = checkpoint.load(lambda: {"step": 0})
    steps = training.steps(done=state["step"])
    left = range(state["step"], int(sys.argv[1]))
    for step in training.count(left, done=state["step"]):
        taken.append(step)
        state["step"] = step + 1
        if step == int(sys.argv[2]):
            checkpoint.request_stop()
        if checkpoint.stop_requested:
            print(json.dumps(taken), flush=True)
        checkpoint.at_boundary(lambda: state)
print(json.dumps([taken, steps.done]))
"""
IN_EPOCHS = """
import json, sys
import numpy as np
from client_sdk.training import job, steps

weight, taken = np.zeros(1), []
job.checkpointable(weight=weight, every_steps=2)
for epoch in job.epochs(3):
    for batch in job.steps(range(4)):
        taken.append([epoch, batch])
        weight += 1
print(json.dumps([taken, steps().done, float(weight[0])]))
"""


def run(folder: Path, script: str, *arguments: object, skip: str, run: int = 1) -> "subprocess.CompletedProcess[str]":
    for name in ("run", "saved"):
        (folder / name).mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EBB_")}
    environment |= {"PYTHONPATH": str(ROOT), "EBB_CHECKPOINT_DIR": str(folder / "saved"), "EBB_RUN_DIR": str(folder / "run")}
    environment |= {"EBB_RUN": str(run), "EBB_JOB_ID": "1", "EBB_SKIP_STEPS": skip, "EBB_YIELD_FILE": str(folder / "yielded")}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_a_long_story_is_told_from_where_it_becomes_interesting(tmp_path: Path) -> None:
    """A million steps, of which the last five are taken, over two runs."""
    first = run(tmp_path, LONG, 1_000_000, 999_996, skip="999995")
    assert first.returncode == 143, first.stderr
    assert json.loads(first.stdout) == [999_995, 999_996]
    second = run(tmp_path, LONG, 1_000_000, -1, skip="999995", run=2)
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout) == [[999_997, 999_998, 999_999], 1_000_000]


def test_epochs_go_on_in_the_middle(tmp_path: Path) -> None:
    done = run(tmp_path, IN_EPOCHS, skip="6")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[[1, 2], [1, 3], [2, 0], [2, 1], [2, 2], [2, 3]], 12, 6.0]


def test_without_it_every_step_is_taken(tmp_path: Path) -> None:
    done = run(tmp_path, IN_EPOCHS, skip="")
    taken, count, weight = json.loads(done.stdout)
    assert (len(taken), count, weight) == (12, 12, 12.0)


@pytest.mark.parametrize("wrong", ["many", "-1", "1.5"])
def test_what_is_no_number_of_steps_is_refused(tmp_path: Path, wrong: str) -> None:
    refused = run(tmp_path, IN_EPOCHS, skip=wrong)
    assert refused.returncode == 1
    assert f"EBB_SKIP_STEPS='{wrong}' is no number of steps" in refused.stderr
