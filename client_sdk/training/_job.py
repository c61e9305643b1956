"""This job, for its training script: what to save is registered once, and a loop over the data does the rest."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from client_sdk.training import _folders, _random_state
from client_sdk.training._background import Background
from client_sdk.training._copies import Copies
from client_sdk.training._files import CheckpointError
from client_sdk.training._grace import Grace
from client_sdk.training._position import Pass
from client_sdk.training._ranks import ranks_of
from client_sdk.training._registered import Access, access
from client_sdk.training.checkpoint import Checkpointer
from client_sdk.training.step_counter import Steps, steps

T = TypeVar("T")
_OWN = "job"
"""The part that this module keeps: the step, the place in the data, and the random generators."""


class Job:
    """Saves what a training script registers when the scheduler preempts the job, and restores it in the next run.

        from client_sdk.training import job

        job.checkpointable(model=model, optimizer=optimizer, every_steps=1000)
        for epoch in job.epochs(10):
            for batch in job.steps(loader):
                ...

    A process has one, `client_sdk.training.job`. Its methods belong to the main thread.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = environment
        self._registered: dict[str, Access] = {}
        self._saved: dict[str, Any] = {}
        """Parts of the checkpoint from which this run resumes that are not registered yet."""
        self._resumed = False
        self._checkpointer: Checkpointer | None = None
        self._steps: Steps | None = None
        self._pass: Pass | None = None
        self._resume: dict[str, Any] | None = None
        self._in_epochs = False
        self._epoch = 0
        self._step = 0

    # ---- what to save ----------------------------------------------------------------------------------------------------

    def checkpointable(
        self,
        *,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        keep: int = 2,
        keep_every: int | None = None,
        background: bool = True,
        directory: str | os.PathLike[str] | None = None,
        ranks: Iterable[int] | None = None,
        **parts: Any,
    ) -> None:
        """Registers what to save by name, and restores it from the newest checkpoint if there is one.

        Each part is an object with `state_dict` and `load_state_dict` (a model, an optimizer, a scheduler, a gradient
        scaler), a tensor, an array, a random generator, a dict, a list, another object that `pickle` can save, or a pair of
        callables (get, put). The global random generators and the place in the data are saved without being named.

        Checkpoints are written when a stop is asked for, and every `every_steps` steps or `every_seconds` seconds. With
        `background` these are copied in host memory, which needs room for one copy, and a thread writes them. The last `keep`
        checkpoints are kept, and so are the folders of steps that are a multiple of `keep_every`. `directory` and `ranks` are
        as for `Checkpointer`.

        A later call registers more parts and takes no options. Raises TypeError for a part that cannot be restored in place,
        ValueError for an option or a name that cannot be, and CheckpointError when there are checkpoints and none can be used.
        """
        options = (every_steps, every_seconds, keep, keep_every, background, directory, ranks)
        if self._checkpointer is not None and options != (None, None, 2, None, True, None, None):
            raise ValueError("the options of job.checkpointable belong to its first call; later calls register more parts")
        if _OWN in parts:
            raise ValueError(f"{_OWN}= names the part that keeps the place in the data: choose another name")
        found = {name: access(name, part) for name, part in parts.items() if not _is_plain_loader(part)}
        if self._checkpointer is None:
            self._open(every_steps, every_seconds, keep, keep_every, background, directory, ranks)
        self._registered |= found
        for name, one in found.items():
            if name in self._saved:
                one.put(self._saved.pop(name))
            elif self._resumed:
                _warn("the checkpoint has no part %r: it begins with its initial value", name)
        if self._resume is not None:  # what was built above may have drawn from the generators
            _random_state.restore(self._resume["random"])

    def _open(
        self,
        every_steps: int | None,
        every_seconds: float | None,
        keep: int,
        keep_every: int | None,
        background: bool,
        directory: str | os.PathLike[str] | None,
        ranks: Iterable[int] | None,
    ) -> None:
        for name, value in (("every_steps", every_steps), ("every_seconds", every_seconds), ("keep_every", keep_every)):
            if value is not None and value <= 0:
                raise ValueError(f"{name}={value!r} must be greater than 0")
        environment = os.environ if self._environment is None else self._environment
        ranks = None if ranks is None else tuple(ranks)
        mine = ranks_of(environment, ranks)
        if every_seconds is not None and mine is not None and len(mine.together) > 1:
            raise ValueError(
                f"every_seconds={every_seconds:g}: the ranks of a gang would save at different steps, since their clocks "
                "differ; say every_steps instead"
            )
        checkpointer = Checkpointer(directory, keep=keep, ranks=ranks, environment=environment)
        self._name = "checkpoint" + (mine.tag(mine.own) if mine is not None else "")
        self._run = int(environment.get("EBB_RUN") or 0)
        self._keep_every = keep_every
        self._every_steps, self._every_seconds = every_steps, inf if every_seconds is None else every_seconds
        self._in_background = background
        self._background, self._copies, self._grace = Background(), Copies(), Grace(environment, background)
        checkpointer.__enter__()
        self._checkpointer = checkpointer
        self._load(checkpointer)
        _folders.clear(checkpointer.directory, self._name, keep_every)
        self._next_time = time.monotonic() + self._every_seconds
        self._last_boundary, self._longest_step = 0.0, 0.0

    def _load(self, checkpointer: Checkpointer) -> None:
        with _folders.opening(lambda reference: _folders.read(checkpointer.directory, reference)):
            saved = checkpointer.load()
        if saved is None:
            return
        if not isinstance(saved, _folders.Saved):
            raise CheckpointError(
                f"the newest checkpoint in {checkpointer.directory} is of a Checkpointer and not of job.checkpointable: go on "
                "with the program that has saved it, take another directory, or remove it to begin from the start"
            )
        own = saved.parts.pop(_OWN)
        self._saved, self._resumed = saved.parts, True
        self._step, self._epoch, self._resume = own["step"], own["epoch"], own["pass"]
        if self._resume is None:
            _random_state.restore(own["random"])
        self._grace.measured(saved.about["seconds"], 0.0)

    # ---- the loop --------------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Steps that are done, over all runs."""
        return self._step

    @property
    def epoch(self) -> int:
        """The epoch that is under way, or that comes next, from 0."""
        return self._epoch

    @property
    def batch(self) -> int:
        """Batches of this epoch that are done, over all runs."""
        if self._pass is not None:
            return self._pass.consumed
        return 0 if self._resume is None else int(self._resume["consumed"])

    def epochs(self, n: int) -> Iterator[int]:
        """Yields the epochs that are not complete, up to `n` of them over all runs. After the last one, the job is complete."""
        self._opened()
        self._total_epochs = n
        self._in_epochs = True
        try:
            while self._epoch < n:
                yield self._epoch
                self._check_registered()
                self._epoch, self._pass, self._resume = self._epoch + 1, None, None
        finally:
            self._in_epochs = False
        self.finish()

    def steps(self, loader: Iterable[T], total: int | None = None) -> Iterator[T]:
        """Yields the batches of one epoch that are not done. Each is a step, and ends when the loop asks for the next one.

        Between two steps the program saves, if a save is due, and stops, if a stop is asked for: it saves, tells the scheduler,
        and exits with OBEYED. `total` is the number of steps of the whole job; by default it follows from `epochs`.

        Without `epochs`, each call is an epoch. Raises RuntimeError for a second loop in an epoch.
        """
        checkpointer = self._opened()
        self._check_registered()
        if self._in_epochs and self._pass is not None:
            raise RuntimeError("an epoch has one loop over job.steps: use a plain loop for other data, as for a validation")
        if total is None and self._in_epochs and (length := _length(loader)) is not None:
            total = self._total_epochs * length
        counter = steps(total, done=self._step)
        current = self._pass = Pass(loader, self._epoch, self._resume)
        self._resume = None
        counter._new_loop()
        self._last_boundary = time.monotonic()
        try:
            for batch in current:
                yield batch
                current.consumed += 1
                self._step += 1
                counter.advance()
                self._at_boundary(checkpointer)
        finally:
            if not self._in_epochs:
                self._epoch, self._pass = self._epoch + 1, None

    def finish(self) -> None:
        """Says that the work is complete: a stop that comes later has nothing to save. `epochs` calls it at its end."""
        checkpointer = self._opened()
        self._background.wait()
        self._report_failure()
        checkpointer.__exit__(None, None, None)

    def _opened(self) -> Checkpointer:
        if self._checkpointer is None:
            raise RuntimeError("call job.checkpointable(...) first: it says what is saved")
        return self._checkpointer

    def _check_registered(self) -> None:
        for name in self._saved:
            _warn("the checkpoint has a part %r that this program does not register: it is dropped", name)
        self._saved = {}

    # ---- saving ----------------------------------------------------------------------------------------------------------

    def _at_boundary(self, checkpointer: Checkpointer) -> None:
        now = time.monotonic()
        self._longest_step = max(self._longest_step, now - self._last_boundary)
        if self._background.failure is not None and not checkpointer.stop_requested:
            self._report_failure()
        checkpointer.at_boundary(self._save_for_stop)
        if (self._every_steps is not None and self._step % self._every_steps == 0) or now >= self._next_time:
            self._save(checkpointer)
            self._next_time = time.monotonic() + self._every_seconds
        self._last_boundary = time.monotonic()

    def _save_for_stop(self) -> object:
        """What a Checkpointer saves when the program stops: a reference to a folder that is complete."""
        self._background.wait()
        return self._write(self._state(), time.monotonic())

    def _save(self, checkpointer: Checkpointer) -> None:
        self._background.wait()
        self._report_failure()
        began = time.monotonic()
        save = checkpointer.save_later()
        with steps().saving():
            if not self._in_background:
                self._complete(save, self._state(), began)
                return
            state = self._copies.copy(self._state())
        self._background.start(lambda: self._complete(save, state, began))

    def _complete(self, save: Callable[[object], Path], state: dict[str, Any], began: float) -> None:
        save(self._write(state, began))
        _folders.clear(self._opened().directory, self._name, self._keep_every)
        self._grace.measured(time.monotonic() - began, self._longest_step)

    def _write(self, state: dict[str, Any], began: float) -> object:
        own = state[_OWN]
        name = _folders.folder_name(self._name, own["step"], self._run)

        def about() -> dict[str, Any]:
            return {"step": own["step"], "epoch": own["epoch"], "run": self._run, "seconds": time.monotonic() - began}

        return _folders.write(self._opened().directory, name, state, about)

    def _state(self) -> dict[str, Any]:
        """The registered parts and this module's own; nothing is copied."""
        at = None if self._pass is None else self._pass.state()
        own = {"step": self._step, "epoch": self._epoch, "pass": at, "random": _random_state.capture()}
        return {_OWN: own} | {name: one.get() for name, one in self._registered.items()}

    def _report_failure(self) -> None:
        """Raises what the last save in the background raised."""
        if (failure := self._background.failure) is not None:
            self._background.failure = None
            raise CheckpointError(
                f"the checkpoint could not be written in the background: {type(failure).__name__}: {failure}. "
                "The one before it is whole"
            ) from failure


def _is_plain_loader(part: object) -> bool:
    """A loader that has no state of its own: `steps` keeps the place in it."""
    import sys

    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(part, data.DataLoader)


def _length(loader: object) -> int | None:
    try:
        return len(loader) if isinstance(loader, Sized) else None
    except TypeError:  # a DataLoader over an IterableDataset
        return None


def _warn(text: str, *values: object) -> None:
    import logging

    logging.getLogger("client_sdk.training").warning(text, *values)


def read_folder(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The parts of a checkpoint folder by name, such as for an evaluation. Raises CheckpointError if the folder is damaged."""
    return _folders.read_folder(Path(folder)).parts
