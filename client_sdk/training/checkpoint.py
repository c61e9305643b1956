"""The checkpoint hook: what a training loop says to the scheduler, and the scheduler to it."""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from client_sdk.training import _files, _sigterm
from client_sdk.training._files import CheckpointError

T = TypeVar("T")

OBEYED = 143
"""Exit status of a program that saved and left because it was asked to: what a shell reports for SIGTERM (128 + 15).

It is not 0, so that `train.py && evaluate.py` does not go on as if the training were complete.
"""

_log = logging.getLogger("client_sdk.training")


class Checkpointer:
    """Saves a program's state when the scheduler wants its place, and gives it back in the next run.

    Enter it in the main thread. SIGTERM then only sets a flag, at which the next `at_boundary` saves the state, tells
    the scheduler that the job is to go on later, and leaves with SystemExit(OBEYED). A program that finishes instead,
    inside its grace period, just finishes: once the `with` block is left in good order, a job does not act on SIGTERM, unless
    another Checkpointer follows, which then leaves at its first boundary.

    Processes that the program starts inside the block, such as workers that load data, are its own to end: Ebb sends them no
    SIGTERM, and to forks it means what it did before.

    `directory` is where the checkpoints are; left out, it is EBB_CHECKPOINT_DIR (one directory for all runs of a job),
    and outside of Ebb ./checkpoints. Several that share a directory, as the processes of one job do, need different
    `name`s. `every_seconds` and `every_steps` (calls of `at_boundary`) also save in between, so that a run that is
    killed unasked loses no more than that. The last `keep` checkpoints are kept.

    Checkpoints are pickles, and reading a pickle can run any code: the directory must be writable to the job's own
    user alone, as the one that Ebb gives is.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        name: str = "checkpoint",
        every_seconds: float | None = None,
        every_steps: int | None = None,
        keep: int = 2,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one checkpoint has to be kept")
        if not name or "/" in name:
            raise ValueError(f"name={name!r} is not the beginning of a file name")
        environment = os.environ if environment is None else environment  # not as a default, which help() would print
        self.directory = Path(directory or environment.get("EBB_CHECKPOINT_DIR") or "checkpoints")
        yield_file = environment.get("EBB_YIELD_FILE")
        self._yield_file = Path(yield_file) if yield_file else None
        done_file = environment.get("EBB_DONE_FILE")
        self._done_file = Path(done_file) if done_file else None
        savers_file = environment.get("EBB_SAVERS_FILE")
        self._savers_file = Path(savers_file) if savers_file else None
        self._run = int(environment.get("EBB_RUN") or 0)
        self._name = name
        self._keep = keep
        self._every_seconds = inf if every_seconds is None else every_seconds
        self._every_steps = inf if every_steps is None else every_steps
        self._good: list[_files.Key] = []
        self._number = 0
        self._stop = False
        self._boundaries = 0
        self._next_boundary: float = inf
        self._next_time: float = inf
        self._saving = threading.RLock()

    def __enter__(self) -> Self:
        """Takes SIGTERM over. Raises RuntimeError outside of the main thread, where Python knows no signals."""
        self._good = _files.present(self.directory, self._name)
        if self._good:
            # Started by hand in a job's directory, without a run of its own, it still has to go on after that job's runs.
            self._run = max(self._run, self._good[-1].run)
            self._number = max(key.number for key in self._good)
        _files.clear_unfinished(self.directory, self._name)
        for file in (self._yield_file, self._done_file):
            if file is not None:
                file.unlink(missing_ok=True)  # what another process said does not speak for this one
        self._next_boundary = self._every_steps
        self._next_time = time.monotonic() + self._every_seconds
        try:
            _sigterm.listen(self.request_stop)
        except ValueError as error:
            raise RuntimeError("enter Checkpointer in the main thread: Python gives signals to no other") from error
        if self._savers_file is not None:
            with suppress(OSError), self._savers_file.open("a") as savers:  # without it, its children get the signal too
                savers.write(f"{os.getpid()}\n")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        obeyed = isinstance(error, SystemExit) and error.code == OBEYED
        done_file = self._done_file if kind is None else None
        if _sigterm.leave(self.request_stop, deaf=obeyed or done_file is not None) and done_file is not None:
            # The work is done. A request to save it and leave, that comes before the program has ended, has no meaning now.
            with suppress(OSError):  # a full disk does not undo the work
                done_file.write_text(f"{os.getpid()}\n")

    @property
    def stop_requested(self) -> bool:
        """Whether the program was asked to save and leave."""
        return self._stop

    def request_stop(self) -> None:
        """Does what SIGTERM does; for programs that learn of the end of their time in another way."""
        self._stop = True

    @overload
    def load(self) -> Any | None: ...
    @overload
    def load(self, fresh: Callable[[], T]) -> T: ...
    def load(self, fresh: Callable[[], Any] | None = None) -> Any | None:
        """What was saved last. On a first run `fresh()`, or None without one.

        A newest checkpoint that is damaged is reported on the log `client_sdk.training` (standard error, unless set up
        otherwise), and the one before it is used.

        Raises CheckpointError when checkpoints are there and none of them can be used: starting from nothing would
        throw the work away in silence.
        """
        keys = _files.present(self.directory, self._name)
        problems: list[str] = []
        for key in reversed(keys):
            path = _files.path_of(self.directory, self._name, key)
            try:
                state = _files.read(path)
            except (CheckpointError, OSError) as error:
                problems.append(str(error))
                continue
            for problem in problems:
                _log.warning("%s; going on from the one before it, %s", problem, path)
            self._good = keys[: keys.index(key) + 1]
            return state
        if problems:
            raise CheckpointError(
                f"no checkpoint in {self.directory} can be used: {'; '.join(problems)}. "
                "Repair one, or remove them all to begin from the start"
            )
        return fresh() if fresh is not None else None

    def at_boundary(self, state: Callable[[], object]) -> None:
        """Call it between steps, with what gives the state that the next step starts from.

        Costs well under a microsecond when there is nothing to do. Saves when a save is due. When a stop was asked for:
        saves, tells the scheduler, and raises SystemExit(OBEYED).

        Where saving fails the error is raised and the scheduler is not told, so that the job is seen to fail rather
        than to have left in good order; the checkpoint before stays.
        """
        self._boundaries += 1
        if self._stop or self._boundaries >= self._next_boundary or time.monotonic() >= self._next_time:
            self.save(state())
            if self._stop:
                self._leave()

    def save(self, state: object) -> Path:
        """Saves now, whole or not at all; it is on the disk when this returns. Returns the file. From any thread.

        Raises OSError, or what pickling the state raises; the checkpoints before are untouched.
        """
        with self._saving:
            return self._save(state)

    def _save(self, state: object) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        key = _files.Key(self._run, self._number + 1)
        path = _files.write(self.directory, self._name, key, state)
        self._number += 1
        self._good = [*self._good, key][-self._keep :]
        for old in _files.present(self.directory, self._name):
            if old < key and old not in self._good:
                _files.path_of(self.directory, self._name, old).unlink(missing_ok=True)
        self._next_boundary = self._boundaries + self._every_steps
        self._next_time = time.monotonic() + self._every_seconds
        return path

    def _leave(self) -> None:
        if self._yield_file is not None:
            with self._yield_file.open("w") as file:
                file.write(f"{self._run}\n")
                file.flush()
                os.fsync(file.fileno())
        sys.exit(OBEYED)
