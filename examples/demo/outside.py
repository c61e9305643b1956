"""Training outside of Ebb: the runs that the demo compares with, and the one that must not pass.

`Outside` starts processes and forgets none. `control` stops a small job half-way and resumes it twice: with its checkpoint,
which the check must accept, and without it, which the check must reject although the loss is the same.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from examples.demo.scenario import CONTROL, ENVIRONMENT, Role
from examples.demo.steps import last_step, read_log, read_loss, saved_steps
from examples.demo.stopping import Stopping
from examples.demo.verify import Evidence, problems


class OutsideError(Exception):
    """A run outside of Ebb did not do what it should."""


class Outside:
    """Runs of examples/train.py as plain processes."""

    def __init__(self, train: Sequence[str], stopping: Stopping) -> None:
        self._train = list(train)
        self._stopping = stopping
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, role: Role, folder: Path, run: int = 1, until: Path | None = None) -> "subprocess.Popen[bytes]":
        """Trains in this folder, as the job does in its own: by the same command, but that it waits on its way only if it is
        told `until` when. Checkpoints are in the folder, too."""
        folder.mkdir(parents=True, exist_ok=True)
        environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        with (folder / "output.log").open("ab") as log:
            process = subprocess.Popen(
                [*self._train, *role.arguments(until)],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment, **ENVIRONMENT, "EBB_RUN": str(run)},
                start_new_session=True,  # Ctrl-C is for the demo, which then ends it
            )
        self._processes.append(process)
        return process

    def wait(self, process: "subprocess.Popen[bytes]", status: int = 0) -> None:
        while process.poll() is None:
            self._stopping.pause(0.02)
        if process.returncode != status:
            raise OutsideError(f"{' '.join(map(str, process.args))} ended with {process.returncode}, not {status}")  # type: ignore[arg-type]

    def running(self) -> bool:
        return any(process.poll() is None for process in self._processes)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()


class Control(NamedTuple):
    """Results of the check of the control job."""

    with_checkpoint: list[str]
    without: list[str]
    same_loss: bool
    """Whether the loss without the checkpoint is that of an uninterrupted run."""


def control(outside: Outside, folder: Path, stopping: Stopping) -> Control:
    """Stops the control job, and resumes it with its checkpoint and, a copy of it, without."""
    alone, kept, lost = folder / "uninterrupted", folder / "with-checkpoint", folder / "without-checkpoint"
    first = outside.start(CONTROL, kept, until=folder / "never")  # else it might be over before anybody looks
    while last_step(kept) < CONTROL.steps * 0.4:
        if first.poll() is not None:
            raise OutsideError("the control run ended before it could be stopped")
        stopping.pause(0.005)
    first.send_signal(signal.SIGTERM)
    outside.wait(first, 143)
    saved = saved_steps(kept / "checkpoints")
    shutil.copytree(kept, lost)
    shutil.rmtree(lost / "checkpoints")
    for process in [outside.start(CONTROL, alone), *(outside.start(CONTROL, place, run=2) for place in (kept, lost))]:
        outside.wait(process)
    with_it, without = (
        problems(Evidence(read_log(place), CONTROL.steps, saved, read_loss(place), read_loss(alone))) for place in (kept, lost)
    )
    return Control(with_it, without, read_loss(lost) == read_loss(alone))
