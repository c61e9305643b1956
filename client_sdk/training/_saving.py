"""Checkpoints of named parts: when they are saved, and how."""

import logging
import os
import time
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from client_sdk.training._gang.notices import read_stop_file
from client_sdk.training._gang.ranks import ranks_of
from client_sdk.training._run.grace import Grace
from client_sdk.training._run.run_files import RunFiles, reason_of
from client_sdk.training._storing import folders, sharded
from client_sdk.training._storing.background import Background
from client_sdk.training._storing.files import CheckpointError
from client_sdk.training._storing.host_copies import Copies
from client_sdk.training._storing.periodic_saves import OnSaveError, check_on_save_error, is_survived, pause_after
from client_sdk.training.checkpoint import Checkpointer
from client_sdk.training.step_counter import steps

Parts = dict[str, Any]
OWN = "job"
"""The part that is not registered: the step, the place in the data, and the random generators."""

_NAME = "checkpoint"
_log = logging.getLogger("client_sdk.training")


class Options(NamedTuple):
    """As for `Job.checkpointable`."""

    every_steps: int | None = None
    every_seconds: float | None = None
    keep: int = 2
    keep_every: int | None = None
    background: bool = True
    directory: str | os.PathLike[str] | None = None
    ranks: tuple[int, ...] | None = None
    elastic: bool | None = None
    micro_batches: int | None = None
    keep_batch: bool = True
    seed: int = 0
    sharded: bool = False
    on_save_error: OnSaveError = "warn"


class Saving:
    """Saves the parts between two steps: when a stop is asked for, and when a save is due."""

    def __init__(self, options: Options, environment: Mapping[str, str]) -> None:
        """Takes SIGTERM over. Raises ValueError for an option that cannot be."""
        for name in ("every_steps", "every_seconds", "keep_every", "micro_batches"):
            value = getattr(options, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name}={value!r} must be greater than 0")
        check_on_save_error(options.on_save_error)
        mine = ranks_of(environment, options.ranks)
        if options.every_seconds is not None and mine is not None and len(mine.together) > 1:
            raise ValueError(
                f"every_seconds={options.every_seconds:g}: the ranks of a gang would save at different steps, since their "
                "clocks differ; say every_steps instead"
            )
        self._options = options
        self.sharded = options.sharded
        self.elastic = bool(environment.get("EBB_MAX_TASKS")) if options.elastic is None else options.elastic
        if self.sharded:
            if options.elastic is False or options.ranks is not None:
                raise ValueError("sharded=True is for all ranks of an elastic job: leave out elastic=False and ranks")
            sharded.check_group(1 if mine is None else mine.world)
            self.elastic = True
        self._name = _NAME if mine is None else _NAME + mine.tag(mine.own)
        if self.elastic:
            self._name = f"{_NAME}.all"
        self._run = int(environment.get("EBB_RUN") or 0)
        self._checkpointer = Checkpointer(
            options.directory,
            name=_NAME,
            keep=options.keep,
            ranks=options.ranks,
            replicated=self.elastic,
            environment=environment,
        )
        self._directory = self._checkpointer.directory
        self._background, self._copies = Background(), Copies()
        self._grace = Grace(environment, options.background)
        self._files = RunFiles.from_environment(environment)
        self.folder: Path | None = None
        """The value in the checkpoint from which this run resumes."""
        self._saved_at = 0
        """The step of the last save, which may have failed."""
        self._failures = 0
        """The number of failed saves since the last one that succeeded."""
        self._retry_at: float = inf
        """The step after which a failed save is retried."""
        self._saves_alone = mine is None or len(mine.together) == 1 or (self.elastic and not self.sharded)
        self._next_time = time.monotonic() + (options.every_seconds or inf)
        self._last_boundary: float | None = None
        self._longest_step = 0.0
        folders.make_writable(self._directory)
        self._checkpointer.__enter__()

    def load(self) -> Parts | None:
        """The parts of the newest checkpoint that is whole; None on a first run.

        Raises CheckpointError when there are checkpoints and none can be used.
        """
        with folders.opening(self._read):
            saved = self._checkpointer.load()
        if self._checkpointer.writes:
            folders.clear(self._directory, self._name, self._options.keep_every)
        if saved is None:
            return None
        if not isinstance(saved, folders.Saved):
            raise CheckpointError(
                f"the newest checkpoint in {self._directory} is of a Checkpointer and not of job.checkpointable: use the "
                "program that has saved it, take another directory, or remove it to begin from the start"
            )
        self._saved_at = saved.about["step"]
        self._grace.note_durations(saved.about["seconds"], 0.0)
        self.folder = saved.folder
        self._files.say_loaded(saved.folder.name, self._saved_at)
        return saved.parts

    def _read(self, reference: folders.Reference) -> folders.Saved:
        if not self.sharded:
            return folders.read(self._directory, reference)
        folder, manifest = folders.check(self._directory, reference)
        return folders.Saved(folder, sharded.read_others(folder), manifest["about"])

    def begin_loop(self) -> None:
        """Says that a loop over steps begins. What was done since the last boundary, as an evaluation, is time in which a stop
        waits."""
        if self._last_boundary is None:
            self._last_boundary = time.monotonic()

    def at_boundary(self, step: int, parts: Callable[[], Parts]) -> None:
        """Call it between two steps. Raises SystemExit(OBEYED) once a stop was requested and the parts are saved.

        If a periodic save fails, training continues, and the save is retried: after the next step, after two more, after four
        more, and so on. Ranks that save together retry when all of them save next. Raises the error if no later save could
        succeed or the options say so, and CheckpointError for one in the background.
        """
        now = time.monotonic()
        if self._last_boundary is not None:
            self._longest_step = max(self._longest_step, now - self._last_boundary)
            self._grace.step_took(now - self._last_boundary)
        if self._background.failure is not None and not self._checkpointer.stop_requested:
            self._report_failure(step)
        self._checkpointer.at_boundary(lambda: self._save_for_stop(parts))
        every = self._options.every_steps
        due = (every is not None and step // every > self._saved_at // every) or now >= self._next_time
        if due or step >= self._retry_at:
            self._retry_at = inf
            self._save(step, parts)
            self._saved_at = step
            self._next_time = time.monotonic() + (self._options.every_seconds or inf)
        self._last_boundary = time.monotonic()

    def finish(self) -> None:
        """Says that the work is complete. With `on_save_error="raise"` raises CheckpointError if the last save has failed."""
        self.wait()
        self._report_failure(self._saved_at)
        self._checkpointer.__exit__(None, None, None)

    def wait(self) -> None:
        """Return when no save is in progress in the background."""
        self._background.wait()

    def _save_for_stop(self, parts: Callable[[], Parts]) -> object:
        """Save the parts for a stop, and return a reference to the complete folder, which a Checkpointer saves."""
        self.wait()
        return self._write(parts(), time.monotonic(), durable=not self._migrates) if self._takes_part else None

    def save_parked(self, step: int, parts: Callable[[], Parts]) -> None:
        """Save the state of a program that is parked after this step, unless a checkpoint of the step already exists.

        Raises what reading and writing the parts raise.
        """
        self.wait()
        if self._background.failure is None and not self._failures and step and self._saved_at == step:
            return
        self._background.failure = None  # that checkpoint is not there, and this one takes its place
        if self._takes_part:
            taken = parts()
            self._checkpointer.save(self._write(taken, time.monotonic(), durable=not self._migrates))
        self._saved_at = step

    def say_yielded(self) -> None:
        """Says that the work is saved and that the program leaves because it was asked to. Raises OSError."""
        self._files.say_yielded(self._run)

    @property
    def _migrates(self) -> bool:
        """Whether the job is migrating: the other node copies the checkpoint from this node's memory.

        So the save does not wait for the disk of this node, which is written later. If the node loses power in these seconds,
        the checksums reveal the incomplete checkpoint, and the one before is used, which therefore has to be kept.
        """
        stop = None if self._files.stop is None else read_stop_file(self._files.stop)
        return stop is not None and stop.reason == "migrated" and self._options.keep > 1

    def _save(self, step: int, parts: Callable[[], Parts]) -> None:
        if not self._takes_part:
            return
        self.wait()
        self._report_failure(step)
        began = time.monotonic()
        save = self._checkpointer.save_later()
        with steps().saving():
            taken = parts()
            if not self.sharded and self._options.background:
                copied = self._copies.copy(taken)
                self._background.start(lambda: self._complete(save, copied, began))
                return
            try:
                self._complete(save, taken, began)
            except Exception as error:
                if not is_survived(error, self._options.on_save_error):
                    raise
                _log.warning("the checkpoint could not be written: %s. The one before it is whole", reason_of(error))
                self._put_off(step)

    def _put_off(self, step: int) -> None:
        """A save of this step, or of one before, has failed, and is tried again."""
        self._failures += 1
        if self._saves_alone:
            self._retry_at = step + pause_after(self._failures)

    def _complete(self, save: Callable[[object], Path], parts: Parts, began: float) -> None:
        try:
            save(self._write(parts, began))
        except Exception as error:
            self._files.say_not_saved(error)
            raise
        self._failures = 0
        if self._checkpointer.writes:
            folders.clear(self._directory, self._name, self._options.keep_every)
        self._grace.note_durations(time.monotonic() - began, self._longest_step)

    def _write(self, parts: Parts, began: float, durable: bool = True) -> object:
        own = parts[OWN]

        def about() -> dict[str, Any]:
            return {"step": own["step"], "epoch": own["epoch"], "run": self._run, "seconds": time.monotonic() - began}

        name = folders.folder_name(self._name, own["step"], self._run)
        if not self.sharded:
            return folders.write(self._directory, name, parts, about, durable)
        things = {part: state for part, state in parts.items() if sharded.is_sharded(state)}
        others = {part: state for part, state in parts.items() if part not in things}
        return sharded.write(self._directory, name, things, others, about())

    @property
    def _takes_part(self) -> bool:
        """Whether this process takes part in a save."""
        return self.sharded or self._checkpointer.writes

    def _report_failure(self, step: int) -> None:
        """Raise the error of the last background save, unless training continues."""
        if (failure := self._background.failure) is not None:
            self._background.failure = None
            if is_survived(failure, self._options.on_save_error):
                self._put_off(step)
                return
            raise CheckpointError(
                f"the checkpoint could not be written in the background: {type(failure).__name__}: {failure}. "
                "The one before it is whole"
            ) from failure
