"""The step counter: a training loop counts its steps, and Ebb shows the step, the rate and the remaining time."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Generic, TypeVar

from ebb_inject.ebb_hook.steps import Steps, rank_of

if TYPE_CHECKING:
    from ebb_inject.ebb_hook.parking import Parking

T = TypeVar("T")

_own: Steps | None = None
"""The counter of this process, once `steps` was called."""


def steps(total: int | None = None, *, done: int | None = None) -> Steps:
    """Returns the step counter of this process, which is always the same one.

    `total` is the number of steps of the whole job, over all of its runs; with it, Ebb shows the remaining time. `done` is the
    number of steps that earlier runs have done, such as the step of the checkpoint from which this run resumes.

    Outside of Ebb the steps are counted, and nothing is published.
    """
    global _own  # one per process
    if _own is None:
        _own = Steps(os.environ.get("EBB_STEPS_FILE") or None, rank_of(os.environ))
        _own.parking = parking_of_process()
    if total is not None or done is not None:
        _own._plan(total, done)
    return _own


def parking_of_process() -> "Parking | None":
    """Return the `Parking` of this process; None outside of Ebb, where it is not imported."""
    if not os.environ.get("EBB_PARK_DIR"):
        return None
    from ebb_inject.ebb_hook import parking

    return parking.find_parking()


def steps_to_skip() -> int:
    """Return the number of steps, from the job's first one, that are counted without being executed; usually 0.

    It is set by EBB_SKIP_STEPS, for users who replay a long job and need only its later steps.
    """
    text = os.environ.get("EBB_SKIP_STEPS", "").strip()
    if not text:
        return 0
    if not text.isdecimal():
        raise ValueError(f"EBB_SKIP_STEPS={text!r} is no number of steps; write how many are to be skipped, such as 5000")
    return int(text)


def tell_modules() -> None:
    """Report the imported modules, so that the job starts faster on another node. Does nothing outside of Ebb."""
    if os.environ.get("EBB_RUN_DIR"):
        from ebb_inject.ebb_hook import imported_modules

        imported_modules.tell()


def saving() -> AbstractContextManager[None]:
    """Return `Steps.saving` if this process counts its steps, and otherwise a context that does nothing."""
    counter = active_counter()
    return nullcontext() if counter is None else counter.saving()


def active_counter() -> Steps | None:
    """Return the counter of this process: the program's own, or that of the hook for PyTorch's optimizers."""
    if _own is not None:
        return _own
    hook = getattr(sys.modules.get("ebb_hook.optimizers"), "hook", None)
    found: Steps | None = getattr(hook, "counter", None)
    return found


def known_step() -> int | None:
    """Return the current step of this process; None if its steps are not counted."""
    counter = active_counter()
    return None if counter is None else counter.step


class Counted(Generic[T]):
    """The iterable that `count` returns."""

    def __init__(self, items: Iterable[T], counter: Steps) -> None:
        self._items = items
        self._counter = counter

    def __len__(self) -> int:
        """Raises TypeError if the items have no length."""
        if not isinstance(self._items, Sized):
            raise TypeError(f"{type(self._items).__name__} has no length")
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        self._counter._new_loop()
        advance: Callable[[], None] = self._counter.advance
        skipped = steps_to_skip() - self._counter.done
        for item in self._items:
            if skipped > 0:
                skipped -= 1
            else:
                yield item
            advance()


def count(items: Iterable[T], total: int | None = None, *, done: int | None = None) -> Counted[T]:
    """Iterates over the items, such as the mini-batches of a DataLoader. Each counts as a step when the loop asks for the next.

    `total` and `done` are as for `steps`: they concern the whole job, not this loop.
    """
    return Counted(items, steps(total, done=done))
