"""A loader that knows its place, for frameworks that save the state of a loader, such as Lightning."""

from collections.abc import Iterable, Iterator, Sized
from typing import Any, Generic, TypeVar

from client_sdk.training._data import random_state
from client_sdk.training._data.position import Pass

T = TypeVar("T")


class ResumableLoader(Generic[T]):
    """Iterates over a loader, and resumes in the middle of an epoch after `load_state_dict`.

    The state has the place in the data and the global random generators, which are set again when the first batch is asked
    for. So a run that resumes repeats neither a batch nor a random number. A batch counts as done when it was given, so take
    the state when the step is done, and before the next batch is asked for. `job.steps` treats loaders in the same way.
    """

    def __init__(self, loader: Iterable[T]) -> None:
        self._loader = loader
        self._epoch = 0
        self._pass: Pass | None = None
        self._saved: dict[str, Any] | None = None

    def __len__(self) -> int:
        """Raises TypeError if the loader has no length."""
        if not isinstance(self._loader, Sized):
            raise TypeError(f"a {type(self._loader).__name__} has no length")
        return len(self._loader)

    def __iter__(self) -> Iterator[T]:
        saved, self._saved = self._saved, None
        if self._pass is not None:
            self._epoch += 1
        current = self._pass = Pass(self._loader, self._epoch, saved)
        return _batches(current, iter(current), saved)

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "pass": None if self._pass is None else self._pass.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._epoch, self._saved, self._pass = state["epoch"], state["pass"], None


def _batches(current: Pass, batches: Iterator[Any], saved: dict[str, Any] | None) -> Iterator[Any]:
    if saved is not None:  # the framework may have drawn since the loader was asked for an iterator
        random_state.restore(saved["random"])
    for batch in batches:
        current.consumed += 1
        yield batch
