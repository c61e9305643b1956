"""The checkpoint hook: what a training loop says to the scheduler, and the scheduler to it."""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from client_sdk.training import _files, _sigterm, step_counter
from client_sdk.training._files import CheckpointError
from client_sdk.training._ranks import ranks_of
from client_sdk.training._together import Together, refuse_strangers

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
    and outside of Ebb ./checkpoints. Several that share a directory and are not ranks of one gang need different
    `name`s. `every_seconds` and `every_steps` (calls of `at_boundary`) also save in between, so that a run that is
    killed unasked loses no more than that. The last `keep` checkpoints are kept.

    In a gang (WORLD_SIZE is more than 1) each rank has files of its own, and `load` goes on from the newest step that all
    ranks have whole. The ranks need one directory, on a file system that their nodes share, the same `name`, and calls of
    `at_boundary` at the same steps. Save in between by `every_steps`: clocks differ, so `every_seconds` is refused.
    `ranks` are those that save together, by default all; `ranks=[0]` says that rank 0 saves alone. `rank_timeout` is how many
    seconds `load` waits for the other ranks to load.

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
        ranks: Iterable[int] | None = None,
        rank_timeout: float = 300.0,
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
        self._direct = 0, 0
        self._restarted = environment.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        self._together: Together | None = None
        if (mine := ranks_of(environment, ranks)) is not None:
            if every_seconds is not None and len(mine.together) > 1:
                raise ValueError(
                    f"every_seconds={every_seconds:g}: the ranks of a gang would save at different steps, since their clocks "
                    "differ; say every_steps instead"
                )
            self._together = Together(self.directory, name, mine, self._run, keep, rank_timeout)
            self._name = self._together.tag
        self._stop = False
        self._boundaries = 0
        self._next_boundary: float = inf
        self._next_time: float = inf
        self._saving = threading.RLock()
        self._writing = threading.Lock()

    def __enter__(self) -> Self:
        """Takes SIGTERM over. Raises RuntimeError outside of the main thread, where Python knows no signals."""
        if self._together is None and (good := _files.present(self.directory, self._name)):
            self._good = good
            # Started by hand in a job's directory, without a run of its own, it still has to go on after that job's runs.
            self._run = max(self._run, self._good[-1].run)
            self._number = max(key.number for key in self._good)
        _files.clear_unfinished(self.directory, self._name)
        for file in (self._yield_file, self._done_file):
            if file is not None:
                file.unlink(missing_ok=True)  # what another process said does not speak for this one
        self._next_boundary = self._after(self._boundaries)
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

        In a gang this is the newest step that all ranks have whole, and all of them return it; a rank waits here until all
        load, and leaves as at a boundary if it is asked to. If no step was ever whole on all ranks, as after an interruption
        before the first save, they begin from the start together and a warning says so.

        Raises CheckpointError when checkpoints are there and none of them can be used: starting from nothing would
        throw the work away in silence. In a gang it names each rank and what it has.
        """
        if self._together is not None:
            if (found := self._together.load(self._leave_if_asked, self._restarted)) is None:
                return fresh() if fresh is not None else None
            key, state = found
            self._boundaries, self._direct = key.number, (key.number, key.more)
            self._next_boundary = self._after(key.number)
            return state
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
        if not keys and (tags := {tag for tag, _ in _files.everything(self.directory, self._name)}):
            refuse_strangers(self.directory, self._name, tags, "this process, which is no rank of a gang,")
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
            with self._saving, step_counter.saving():
                self._save(state(), direct=False)
            self._leave_if_asked()

    def save(self, state: object) -> Path:
        """Saves now, whole or not at all; it is on the disk when this returns. Returns the file. From any thread.

        In a gang, only what all ranks save after the same step, and as often, is something to go on from.

        Raises OSError, or what pickling the state raises; the checkpoints before are untouched.
        """
        with self._saving, step_counter.saving():
            return self._save(state, direct=True)

    def save_later(self) -> Callable[[object], Path]:
        """Returns a `save` that belongs to this moment, whenever a thread calls it: call it once, before the next save begins.

        In a gang, the checkpoint has the step at which `save_later` was called, however many steps the program has done since.
        The step counter does not show the program as saving meanwhile, because the training goes on.
        """
        with self._saving:
            key = self._next_key(direct=True)
            self._number = key.number
        return lambda state: self._write(key, state)

    def _save(self, state: object, direct: bool) -> Path:
        return self._write(self._next_key(direct), state)

    def _write(self, key: _files.Key, state: object) -> Path:
        # A lock of its own: at a stop, `state()` of `at_boundary` may wait for a thread that is here.
        with self._writing:
            self.directory.mkdir(parents=True, exist_ok=True)
            path = _files.write(self.directory, self._name, key, state)
            if self._together is not None:
                self._together.saved()
            else:
                self._number = max(self._number, key.number)
                self._good = [*self._good, key][-self._keep :]
                for old in _files.present(self.directory, self._name):
                    if old < key and old not in self._good:
                        _files.path_of(self.directory, self._name, old).unlink(missing_ok=True)
        self._next_boundary = self._after(self._boundaries)
        self._next_time = time.monotonic() + self._every_seconds
        return path

    def _next_key(self, direct: bool) -> _files.Key:
        if self._together is None:
            return _files.Key(self._run, self._number + 1)
        step, more = self._boundaries, 0
        if direct:
            more = self._direct[1] + 1 if self._direct[0] == step else 1
            self._direct = step, more
        return self._together.key(step, more)

    def _after(self, boundary: int) -> float:
        """The next boundary to save at: in a gang a multiple of `every_steps`, and so the same on all ranks."""
        if self._together is None or self._every_steps == inf:
            return boundary + self._every_steps
        return (boundary // self._every_steps + 1) * self._every_steps

    def _leave_if_asked(self) -> None:
        if self._stop:
            self._leave()

    def _leave(self) -> None:
        if self._yield_file is not None:
            with self._yield_file.open("w") as file:
                file.write(f"{self._run}\n")
                file.flush()
                os.fsync(file.fileno())
        sys.exit(OBEYED)
