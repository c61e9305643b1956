"""The files by which a run and its agent tell each other what they do (`docs/using.md`, "Being preempted")."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class RunFiles(NamedTuple):
    """Outside of Ebb there are none."""

    yielded: Path | None
    done: Path | None
    savers: Path | None
    stop: Path | None
    """Written by the agent, before SIGTERM."""
    checkpoint: Path | None = None
    """Names the checkpoints that the run has loaded and saved."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "RunFiles":
        def named(name: str, *rest: str) -> Path | None:
            return Path(value, *rest) if (value := environment.get(name)) else None

        told = named("EBB_YIELD_FILE"), named("EBB_DONE_FILE"), named("EBB_SAVERS_FILE"), named("EBB_RUN_DIR", "stop.json")
        return cls(*told, named("EBB_CHECKPOINT_FILE"))

    def enter(self) -> None:
        """This process saves. What another process said before does not speak for this one."""
        for file in (self.yielded, self.done):
            if file is not None:
                file.unlink(missing_ok=True)

    def add_saver(self) -> None:
        """Has the agent leave the children of this process to this process. If it cannot be said, they get the signal too."""
        if self.savers is not None:
            with suppress(OSError), self.savers.open("a") as file:
                file.write(f"{os.getpid()}\n")

    def say_loaded(self, checkpoint: str) -> None:
        """The run goes on from the checkpoint of this name. A full disk does not stop it."""
        self._name("began_from", checkpoint)

    def say_saved(self, checkpoint: str) -> None:
        """The checkpoint of this name is whole. A full disk does not undo it."""
        self._name("saved", checkpoint)

    def _name(self, what: str, checkpoint: str) -> None:
        if self.checkpoint is None:
            return
        with suppress(OSError):
            known = {}
            with suppress(FileNotFoundError, ValueError):
                known = json.loads(self.checkpoint.read_text("utf-8"))
            new = self.checkpoint.with_name(f".{self.checkpoint.name}.{os.getpid()}")  # ranks that torchrun starts share it
            new.write_text(json.dumps(known | {what: checkpoint}), "utf-8")
            new.replace(self.checkpoint)

    def say_yielded(self, run: int) -> None:
        """The work is saved, and the process leaves because it was asked to. Raises OSError."""
        if self.yielded is not None:
            with self.yielded.open("w") as file:
                file.write(f"{run}\n")
                file.flush()
                os.fsync(file.fileno())

    def say_done(self) -> None:
        """The work is done. A full disk does not undo it."""
        if self.done is not None:
            with suppress(OSError):
                self.done.write_text(f"{os.getpid()}\n")
