"""The checkpoint hook, by which a training loop and the scheduler communicate."""

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, overload

from client_sdk.training import step_counter
from client_sdk.training._gang.agreement import Agreement, agreement_of
from client_sdk.training._gang.notices import StopFile, read_stop_file
from client_sdk.training._gang.ranks import ranks_of
from client_sdk.training._own_checkpoints import OwnCheckpoints
from client_sdk.training._park_point import park
from client_sdk.training._run import sigterm
from client_sdk.training._run.process_exit import OBEYED, RESIZED, end_after_exit_handlers
from client_sdk.training._run.run_files import RunFiles, reason_of
from client_sdk.training._storing import files
from client_sdk.training._storing.periodic_saves import OnSaveError, Schedule, check_on_save_error, is_survived

if TYPE_CHECKING:
    from ebb_inject.ebb_hook.parking import Parking

T = TypeVar("T")
_log = logging.getLogger("client_sdk.training")


class Checkpointer:
    """Saves a program's state when the scheduler stops its run, and restores it in the next run.

    Enter it in the main thread. SIGTERM then only sets a flag. The next `at_boundary` saves the state, tells the scheduler
    that the job will continue later, and raises SystemExit(OBEYED), or SystemExit(RESIZED) if the job is resized. A program
    may also finish within its grace period: after a normal exit from the `with` block, a job does not react to SIGTERM,
    unless another Checkpointer follows, which then exits at its first boundary.

    Processes that the program starts inside the block, such as data loading workers, are the program's to stop: Ebb does not
    send them SIGTERM, and forks handle SIGTERM as before the block.

    `directory` contains the checkpoints; by default it is EBB_CHECKPOINT_DIR (one directory for all runs of a job), and
    outside of Ebb ./checkpoints. Checkpointers that share a directory and are not ranks of one gang need different `name`s.
    With `every_seconds` and `every_steps` (calls of `at_boundary`), the state is also saved periodically, which limits the
    loss if a run is killed without warning. The last `keep` checkpoints are kept. If a periodic save fails, for example
    because the disk is full, a warning is logged, training continues, and the save is retried; with `on_save_error="raise"`,
    training ends.

    In a gang (WORLD_SIZE is more than 1) each rank has its own files, and `load` resumes from the newest step for which all
    ranks have an intact checkpoint. The ranks need the same directory, on a file system that their nodes share, the same
    `name`, and calls of `at_boundary` at the same steps. Use `every_steps` for periodic saves: `every_seconds` is refused,
    because clocks differ. A stop that reaches any rank stops all of them, at the same boundary. `replicated=True` declares
    that the state is the same on all ranks: only rank 0 writes it, and any number of ranks can load it. `ranks` are those that
    save together, by default all; with `ranks=[0]`, rank 0 saves alone, and the others have no Checkpointer. `rank_timeout`
    is the number of seconds for which `load` waits for the other ranks to load.

    Checkpoints are pickles, and reading a pickle can run any code: the directory must be writable only by the job's own
    user, as EBB_CHECKPOINT_DIR is.
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
        replicated: bool = False,
        rank_timeout: float = 300.0,
        on_save_error: OnSaveError = "warn",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one checkpoint has to be kept")
        if not name or "/" in name:
            raise ValueError(f"name={name!r} is not the beginning of a file name")
        check_on_save_error(on_save_error)
        self._on_save_error: OnSaveError = on_save_error
        environment = os.environ if environment is None else environment  # not as a default, which help() would print
        self.directory = Path(directory or environment.get("EBB_CHECKPOINT_DIR") or "checkpoints")
        self._files = RunFiles.from_environment(environment)
        self._run = int(environment.get("EBB_RUN") or 0)
        self._restarts = int(environment.get("TORCHELASTIC_RESTART_COUNT") or 0)
        self._ranks = ranks_of(environment, ranks, also_alone=replicated)  # of which other ranks may load the files
        self._agreement: Agreement | None = None
        if self._ranks is not None and every_seconds is not None and len(self._ranks.together) > 1:
            raise ValueError(
                f"every_seconds={every_seconds:g}: the ranks of a gang would save at different steps, since their clocks "
                "differ; say every_steps instead"
            )
        self._own = OwnCheckpoints(self.directory, name, self._ranks, self._run, keep, rank_timeout, replicated)
        self._schedule = Schedule(every_seconds, every_steps, self._own.in_gang)
        self._name = name
        self._stop = False
        self._loaded = False
        self._began_at = 0
        self._saves_by_itself = True
        self._boundaries = 0
        self._saving = threading.RLock()
        self._writing = threading.Lock()
        self._parking: Parking | None = None

    def __enter__(self) -> Self:
        """Takes SIGTERM over. Raises RuntimeError outside of the main thread, where Python knows no signals."""
        self._own.begin()
        self._files.enter()
        self._parking = step_counter.parking_of_process()
        step_counter.tell_modules()
        self._schedule.begin(self._boundaries)
        try:
            sigterm.listen(self.request_stop)
        except ValueError as error:
            raise RuntimeError("enter Checkpointer in the main thread: Python gives signals to no other") from error
        self._files.add_saver()
        if self._ranks is not None and len(self._ranks.together) > 1:
            self._agreement = agreement_of(
                self.directory,
                self._name,
                self._ranks,
                self._run,
                self._restarts,
                self._files.stop,
                on_stop=self._note_stop,
                next_boundary=self._boundary_ahead,
                abandon=self._abandon,
            )
            if self._stop:
                self._agreement.ask()
        self._pid, self._failed_before = os.getpid(), getattr(sys, "last_value", None)
        atexit.register(self._end)
        return self

    def _end(self) -> None:
        """Runs where the interpreter ends and nobody has left the block, which `job` leaves open without `finish`.

        A program that ends without an error, before anybody has asked it to stop, has done its work."""
        if os.getpid() != self._pid:
            return
        failed = getattr(sys, "last_value", None) is not self._failed_before
        if self._agreement is not None:
            self._agreement.close(done=not failed)
        if not (failed or self._stop or self._read_stop() is not None):
            self._files.say_done()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        atexit.unregister(self._end)
        if self._agreement is not None:
            self._agreement.close(done=kind is None)
        obeyed = isinstance(error, SystemExit) and error.code in (OBEYED, RESIZED)
        done = kind is None and self._files.done is not None
        if sigterm.leave(self.request_stop, deaf=obeyed or done) and done:
            # The work is done. A request to save it and leave, that comes before the program has ended, has no meaning now.
            self._files.say_done()

    @property
    def stop_requested(self) -> bool:
        """Whether the program was asked to save and leave."""
        self._saves_by_itself = False
        return self._stop

    def request_stop(self) -> None:
        """Does what SIGTERM does; for programs that learn of the end of their time in another way.

        In a gang, a request to one rank is a request to all."""
        self._stop = True
        if self._agreement is not None:
            self._agreement.ask()

    def _note_stop(self) -> None:
        self._stop = True

    def _boundary_ahead(self) -> int:
        """In another thread, after `_note_stop`: a boundary at which this rank is going to see that it was asked to stop."""
        return self._boundaries + 1 if self._loaded or self._boundaries else 0

    @overload
    def load(self) -> Any | None: ...
    @overload
    def load(self, fresh: Callable[[], T]) -> T: ...
    def load(self, fresh: Callable[[], Any] | None = None) -> Any | None:
        """Returns the state that was saved last. On a first run, returns `fresh()`, or None without it.

        If the newest checkpoint is damaged, this is reported on the log `client_sdk.training` (standard error, unless
        configured otherwise), and the one before it is used.

        In a gang, all ranks return the newest step for which every rank has an intact checkpoint; a rank waits here until all
        load, and exits as at a boundary if a stop is requested. If no step was ever complete on all ranks, as after an
        interruption before the first save, they start from the beginning together, and a warning is logged.

        Raises CheckpointError if checkpoints exist but none of them can be used: starting from scratch would silently discard
        the work. In a gang the error lists each rank and its checkpoints.
        """
        found = self._own.load(self._leave_load, restarted=self._restarts > 0)
        if found is not None:
            self._files.say_loaded(self._own.path_of(found.key).name)
        if self._own.in_gang:
            if found is not None:
                self._began_at = self._boundaries = found.key.number
                self._schedule.go_on_from(found.key.number)
            self._loaded = True
            if self._agreement is not None and self._stops_here():
                self._leave()  # nothing is to be saved
        return found.state if found is not None else fresh() if fresh is not None else None

    def at_boundary(self, state: Callable[[], object]) -> None:
        """Call it between steps, with a function that returns the state from which the next step starts.

        Costs well under a microsecond when there is nothing to do. Saves when a save is due. When a stop was requested, it
        saves, tells the scheduler, and raises SystemExit(OBEYED). In a gang this happens at the same boundary on all ranks.
        The program may be parked here, too; see `park_point`.

        If the save for a stop fails, the error is raised and the job is reported as not saved; the checkpoint before remains.
        If another save fails, training continues, unless `on_save_error` says otherwise or no later save could succeed.
        """
        self._boundaries += 1
        if self._stop or self._schedule.is_due(self._boundaries):
            self._attend(state)
        if (parking := self._parking) is not None and parking.word[0] != parking.seen:
            park(parking, self._boundaries)

    def _attend(self, state: Callable[[], object]) -> None:
        stops = self._stops_here()
        if stops or self._schedule.is_due(self._boundaries):
            saved = self._try_to_save(state, stops)
            if stops or self._stops_here():
                if not saved:
                    self._try_to_save(state, stops=True)
                self._leave()

    def _try_to_save(self, state: Callable[[], object], stops: bool) -> bool:
        """Save, and return whether that succeeded. Raises the error, unless training continues without this save."""
        try:
            with self._saving, step_counter.saving():
                taken = state()
                if stops and self._agreement is not None:
                    self._agreement.ready()  # it may write for a while, but the others need not wait for it
                self._save(taken, direct=False)
        except Exception as error:
            self._files.say_not_saved(error)
            if stops or not is_survived(error, self._on_save_error):
                raise
            self._schedule.put_off(self._boundaries, alone=self._own.saves_alone)
            _log.warning(
                "the checkpoint could not be written: %s. The training goes on, and the one before it is whole",
                reason_of(error),
            )
            return False
        return True

    def _stops_here(self) -> bool:
        return self._stop and (self._agreement is None or bool(self._agreement.stops_at(self._boundaries)))

    def save(self, state: object) -> Path:
        """Saves now, atomically, and returns the file once it is on disk. May be called from any thread.

        In a gang, `load` can use only saves that all ranks make after the same step and the same number of times. If the state
        is replicated, the file is that of rank 0, and no other rank writes or waits.

        Raises OSError, or the error of pickling the state; earlier checkpoints remain untouched.
        """
        self._saves_by_itself = False
        with self._saving, step_counter.saving():
            try:
                return self._save(state, direct=True)
            except Exception as error:
                self._files.say_not_saved(error)
                raise

    def save_later(self) -> Callable[[object], Path]:
        """Returns a `save` for the current step, which a thread may call later: call it once, before the next save starts.

        In a gang, the checkpoint has the step at which `save_later` was called, even if the program has executed more steps
        since. The step counter does not show the program as saving meanwhile, because training continues.
        """
        with self._saving:
            key, step = self._own.next_key(self._boundaries, direct=True), step_counter.known_step()
            self._own.reserve(key)
        return lambda state: self._write(key, state, step)

    def _save(self, state: object, direct: bool) -> Path:
        return self._write(self._own.next_key(self._boundaries, direct), state, step_counter.known_step())

    def _write(self, key: files.Key, state: object, step: int | None) -> Path:
        # A lock of its own: at a stop, `state()` of `at_boundary` may wait for a thread that is here.
        with self._writing:
            if self.writes:
                self.directory.mkdir(parents=True, exist_ok=True)
                path = files.write(self.directory, self._own.tag, key, state)
                self._files.say_saved(state.folder if isinstance(state, files.Refers) else path.name, step)
            else:
                self._files.say_saved(None, step)
            self._own.note_save(key)
        self._schedule.begin(self._boundaries)
        return self._own.path_of(key)

    @property
    def writes(self) -> bool:
        """Whether this process writes checkpoints: of ranks with replicated state, the first one does."""
        return self._own.writes

    def _leave_load(self) -> None:
        """Leaves `load`, if this was asked for and no rank has gone on to train."""
        if self._stop and (self._agreement is None or self._agreement.stops_at(0, wait=False)):
            self._leave()

    def _leave(self) -> NoReturn:
        self._files.say_yielded(self._run)
        if self._agreement is not None:
            self._agreement.ready()
            self._agreement.wait_for_all()
        stop = self._read_stop()
        end_after_exit_handlers(RESIZED if stop is not None and stop.reason == "resized" else OBEYED)

    def _read_stop(self) -> StopFile | None:
        """Return the agent's information about the requested stop."""
        return None if self._files.stop is None else read_stop_file(self._files.stop)

    def _abandon(self) -> None:
        """In the thread of the agreement, whose rank has given up: ends the process if nothing is lost with it. The main thread
        may wait for a rank that never started, in a collective that no signal interrupts."""
        if self._saves_by_itself and self._boundaries == self._began_at:
            with suppress(OSError):
                self._files.say_yielded(self._run)
                os.write(2, b"client_sdk.training: the gang is stopped before its first step, and a rank is missing; leaving\n")
            os._exit(OBEYED)
