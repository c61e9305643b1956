"""A training program under the hook, and what an agent does to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebb_inject.ebb_hook import control

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
HOOK = str(HERE.parents[1] / "ebb_inject")
LIMIT = 600.0
"""Seconds until anything is given up."""


class Program:
    """`train.py`, its last line, and its control file."""

    def __init__(self, python: str, folder: Path, device: str, arguments: list[str], hooked: bool) -> None:
        environment = {**os.environ, "EBB_PARK_DEVICES": device}
        if hooked:
            environment |= {"PYTHONPATH": HOOK, "EBB_STEPS_FILE": str(folder / "steps"), "EBB_PARK_DIR": str(folder / "park")}
        self._park = str(folder / "park")
        self.process = subprocess.Popen(
            [python, str(HERE / "train.py"), *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> dict[str, Any]:
        """The next line. Raises RuntimeError if the program has ended."""
        assert self.process.stdout is not None
        if not (text := self.process.stdout.readline()):
            raise RuntimeError(f"the program ended with {self.process.wait()}; its errors are above")
        found: dict[str, Any] = json.loads(text)
        return found

    def ask(self, command: int) -> tuple[dict[str, Any], float]:
        """The answer to a request, and how many seconds it took. Raises RuntimeError for a refusal."""
        (path,) = control.live(self._park)
        began = time.monotonic()
        number = control.send(path, command)
        while time.monotonic() < began + LIMIT and self.process.poll() is None:
            answer = control.answer(path)
            if answer is not None and answer["request"] == number:
                if "reason" in answer:
                    raise RuntimeError(f"refused: {answer['reason']}")
                return answer, time.monotonic() - began
            time.sleep(0.0005)
        raise RuntimeError(f"no answer to the command {command} within {LIMIT:g} s")


@contextmanager
def started(device: str, *arguments: str, hooked: bool = True, python: str = sys.executable) -> Iterator[Program]:
    """The program, once it has written its first line."""
    with tempfile.TemporaryDirectory() as folder:
        program = Program(python, Path(folder), device, list(arguments), hooked)
        try:
            program.line()
            yield program
        finally:
            program.process.kill()
            program.process.communicate()
