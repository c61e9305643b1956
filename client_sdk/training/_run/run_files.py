"""The files by which a run and its agent tell each other what they do (`docs/using.md`, "Being preempted")."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

_MOST_REASONS = 4
_LONGEST_REASON = 300
"""Characters: the agent reads 4096 bytes of the file."""


class RunFiles(NamedTuple):
    """Outside of Ebb there are none."""

    yielded: Path | None
    done: Path | None
    savers: Path | None
    stop: Path | None
    """Written by the agent, before SIGTERM."""
    checkpoint: Path | None = None
    """Names the checkpoints that the run has loaded and saved, and says why a save failed."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "RunFiles":
        def path_of(name: str, *rest: str) -> Path | None:
            return Path(value, *rest) if (value := environment.get(name)) else None

        told = (
            path_of("EBB_YIELD_FILE"),
            path_of("EBB_DONE_FILE"),
            path_of("EBB_SAVERS_FILE"),
            path_of("EBB_RUN_DIR", "stop.json"),
        )
        return cls(*told, path_of("EBB_CHECKPOINT_FILE"))

    def enter(self) -> None:
        """This process saves. What another process said before does not speak for this one."""
        for file in (self.yielded, self.done):
            if file is not None:
                file.unlink(missing_ok=True)
        self._note(lambda known: {**known, "failed": {}})

    def add_saver(self) -> None:
        """Ask the agent not to signal the children of this process. If the file cannot be written, they are signaled, too."""
        if self.savers is not None:
            with suppress(OSError), self.savers.open("a") as file:
                file.write(f"{os.getpid()}\n")

    def say_loaded(self, checkpoint: str, step: int | None = None) -> None:
        """Report that the run resumes from the checkpoint of this name. A full disk does not stop it."""
        self._note(lambda known: known | {"began_from": checkpoint, "step": step})

    def say_saved(self, checkpoint: str | None, step: int | None) -> None:
        """Report that the checkpoint of this name is complete; None: another rank names it. A full disk does not undo it."""
        named = {} if checkpoint is None else {"saved": checkpoint}

        def note_saved(known: dict[str, Any]) -> dict[str, Any]:
            others = {pid: why for pid, why in known.get("failed", {}).items() if pid != str(os.getpid())}
            return known | named | {"step": step, "failed": others}

        self._note(note_saved)

    def say_not_saved(self, error: BaseException) -> None:
        """A save of this process has failed. The next one that does not takes it back."""
        text = reason_of(error)[:_LONGEST_REASON]

        def note_failed(known: dict[str, Any]) -> dict[str, Any]:
            others = dict(list(known.get("failed", {}).items())[-_MOST_REASONS + 1 :])
            return known | {"failed": {str(os.getpid()): text} | others, "failures": known.get("failures", 0) + 1}

        self._note(note_failed)

    def _note(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Changes what the file says. Ranks that torchrun starts share it."""
        if self.checkpoint is None:
            return
        with suppress(OSError), _lock(self.checkpoint):
            known: dict[str, Any] = {}
            with suppress(FileNotFoundError, ValueError):
                known = json.loads(self.checkpoint.read_text("utf-8"))
            changed = {name: value for name, value in change(known).items() if value not in (None, {})}
            if changed != known:
                _replace(self.checkpoint, json.dumps(changed).encode())

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


def reason_of(error: BaseException) -> str:
    """Why a save failed, for people."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _replace(path: Path, content: bytes) -> None:
    """On a full disk it writes over what is there: the block of the file is its own already."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_bytes(content)
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        with path.open("r+b") as file:
            file.write(content)
            file.truncate()
