"""Reads the output of a training job: its step log, its checkpoint, its result.

examples/train.py writes one line for each step that it has executed, with the number of its run, into one file for all of its
runs.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from client_sdk.training import Checkpointer
from examples.demo.scenario import RESULT, STEP_LOG


@dataclass(frozen=True)
class Line:
    """An executed step."""

    run: int
    step: int


def read_log(folder: Path) -> list[Line]:
    """All executed steps, in order."""
    lines = map(json.loads, (folder / STEP_LOG).read_text().splitlines())
    return [Line(line["run"], line["step"]) for line in lines]


def last_step(folder: Path) -> int:
    """Return the step of the last line; 0 without lines. Cheap enough to be called constantly, even while a line is written,
    since the kernel shows writes page by page."""
    try:
        with (folder / STEP_LOG).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 300))
            *lines, _unfinished = file.read().split(b"\n")
    except FileNotFoundError:
        return 0
    return int(json.loads(lines[-1])["step"]) if lines else 0


def saved_steps(checkpoints: Path) -> list[int]:
    """Return the number of steps in the newest checkpoint of this folder, in a list that is empty without a checkpoint."""
    saved = Checkpointer(checkpoints).load()
    return [] if saved is None else [int(saved["step"])]


def read_loss(folder: Path) -> str:
    """The final loss in hexadecimal, which shows every bit."""
    return str(json.loads((folder / RESULT).read_text())["loss_hex"])
