"""Training programs in processes of their own, as an agent starts them, and what an agent does to them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import ebb_inject
from ebb_inject.ebb_hook import control, step_file

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
LIMIT = 60.0


def until(look: Callable[[], T | None], what: str, limit: float = LIMIT) -> T:
    """The first answer that is true."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.001)
    raise AssertionError(f"within {limit:g} s: {what}")


class Program:
    """A process, its output, and its files."""

    def __init__(self, folder: Path, code: str, arguments: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self.park = folder / "park"
        self.steps = folder / "steps"
        script = folder / "train.py"
        script.write_text(code)
        self._output = (folder / "output").open("w+")
        variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("EBB_") and name not in ("RANK", "WORLD_SIZE")
        } | {
            "PYTHONPATH": ebb_inject.FOLDER,
            "EBB_STEPS_FILE": str(self.steps),
            "EBB_PARK_DIR": str(self.park),
            "EBB_PARK_DEVICES": "cpu",
            "OMP_NUM_THREADS": "1",
            **environment,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-u", str(script), *arguments],
            cwd=folder,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.pid = self.process.pid

    @property
    def output(self) -> str:
        """Everything that the program has written."""
        return Path(self._output.name).read_text()

    def said(self, line: str) -> None:
        """Waits until the program has written this line."""
        until(lambda: line in self.output.splitlines() or self._is_over(), f"{line!r} in {self.output!r}")
        assert line in self.output.splitlines(), self.output

    def tell(self, line: str = "") -> None:
        """Writes a line to the program."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    @property
    def control(self) -> str:
        """The one control file."""
        (found,) = until(lambda: control.live(str(self.park)) or self._is_over(), "a control file")
        return found

    def _is_over(self) -> None:
        assert self.process.poll() is None, self.output

    def ask(self, command: int, **more: int) -> dict[str, Any]:
        """Requests something and waits for the answer."""
        path = self.control
        return self.answer(path, control.send(path, command, **more))

    def answer(self, path: str, number: int) -> dict[str, Any]:
        """Waits for the answer to a request."""

        def look() -> dict[str, Any] | None:
            found = control.answer(path)
            if found is None or found["request"] != number:
                self._is_over()
                return None
            return found

        return until(look, f"an answer to request {number}; the last one is {control.answer(path)}")

    def parked(self, **more: int) -> dict[str, Any]:
        answer = self.ask(control.PARK, **more)
        assert answer["state"] == control.PARKED, answer
        return answer

    def resumed(self) -> dict[str, Any]:
        answer = self.ask(control.RESUME)
        assert answer["state"] == control.RUNNING, answer
        return answer

    def stop(self) -> None:
        """SIGSTOP, and waits until the kernel says that the process has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        until(lambda: self.state() == "T", "the process stops")

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def state(self) -> str:
        """Of the process, as in /proc/PID/stat."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def memory(self, kind: str = "RssAnon") -> int:
        """Bytes of the process's memory, of a kind of /proc/PID/status."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        (found,) = (line for line in lines if line.startswith(f"{kind}:"))
        return int(found.split()[1]) << 10

    def counted(self) -> int:
        """The steps that are published; 0 as long as nothing is."""
        record = step_file.read(self.steps.read_bytes()) if self.steps.exists() else None
        return 0 if record is None else record.counted

    def published(self) -> step_file.Record:
        record = step_file.read(self.steps.read_bytes())
        assert record is not None
        return record

    def ended(self) -> int:
        """The exit status."""
        return self.process.wait(LIMIT)

    def results(self) -> list[Any]:
        """What the program has written as lines of JSON. Waits for its end, which must be good."""
        status = self.ended()
        assert status == 0, self.output
        return [json.loads(line) for line in self.output.splitlines() if line.startswith(("{", "["))]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._output.close()


@contextmanager
def started(folder: Path, code: str, *arguments: str, **environment: str) -> Iterator[Program]:
    """A program whose folder may not exist yet."""
    folder.mkdir(exist_ok=True)
    program = Program(folder, code, arguments, environment)
    try:
        yield program
    finally:
        program.close()
