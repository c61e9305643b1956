"""What a training job leaves behind: its step log, its checkpoint, its result.

examples/train.py writes one line for each step that it has executed, with the number of its run, and keeps it in one file
over all of its runs.
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
    """The step of the last line; 0 if there is none. Cheap enough to be asked all the time, also while a line is written: the
    kernel shows what is written page by page."""
    try:
        with (folder / STEP_LOG).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 300))
            *lines, _unfinished = file.read().split(b"\n")
    except FileNotFoundError:
        return 0
    return int(json.loads(lines[-1])["step"]) if lines else 0


def saved_steps(checkpoints: Path) -> list[int]:
    """How many steps the newest checkpoint in this folder holds; nothing if there is none."""
    saved = Checkpointer(checkpoints).load()
    return [] if saved is None else [int(saved["step"])]


def read_loss(folder: Path) -> str:
    """The final loss in hexadecimal, which shows every bit."""
    return str(json.loads((folder / RESULT).read_text())["loss_hex"])
