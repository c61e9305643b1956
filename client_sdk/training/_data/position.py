"""The place of a training loop in its data: how one pass over a loader is repeated up to a batch, and resumes there.

* PyTorch's DataLoader over a map-style dataset: the sampler is repeated, and no data is loaded for the batches before.
* A loader with `state_dict` and `load_state_dict`, such as torchdata's StatefulDataLoader: these restore the place.
* A sequence, such as a range or a list: it resumes by index.
* Any other iterable, such as a DataLoader over an IterableDataset: it is read from its beginning, and batches are dropped.

Everything repeats exactly because the random generators are set to their states at the start of the pass while the pass is
repeated, and then to their states at the batch.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from client_sdk.training._data import random_state, torch_loader

_log = logging.getLogger("client_sdk.training")


class Pass:
    """One pass over a loader."""

    def __init__(self, loader: Iterable[Any], epoch: int, saved: dict[str, Any] | None = None) -> None:
        """`saved` is what `state` returned in an earlier run; None: the pass begins at its first batch."""
        self._loader = loader
        self._epoch = epoch
        self._saved = saved
        self._start: dict[str, Any] = {}
        self.consumed = 0 if saved is None else saved["consumed"]
        """Batches that are done."""

    def state(self) -> dict[str, Any]:
        """Everything that is needed to resume after the batches that are done."""
        own = self._loader.state_dict() if _is_stateful(self._loader) else None  # type: ignore[attr-defined]  # it has one
        return {"start": self._start, "consumed": self.consumed, "loader": own, "random": random_state.capture()}

    def __iter__(self) -> Iterator[Any]:
        """Yields the batches that are not done. The caller counts `consumed`."""
        torch_loader.set_epoch(self._loader, self._epoch)
        generators = torch_loader.generators(self._loader)
        if self._saved is None:
            self._start = {"random": random_state.capture(), "generators": [each.get_state() for each in generators]}
            return _begin(self._loader, 0)
        saved, self._saved = self._saved, None
        self._start = saved["start"]
        random_state.restore(self._start["random"])
        for generator, state in zip(generators, self._start["generators"], strict=False):
            generator.set_state(state)
        if saved["loader"] is not None and _is_stateful(self._loader):
            self._loader.load_state_dict(saved["loader"])  # type: ignore[attr-defined]  # it has one
            batches = iter(self._loader)
        else:
            batches = _begin(self._loader, self.consumed)
        random_state.restore(saved["random"])
        return batches


def _is_stateful(loader: object) -> bool:
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


def _begin(loader: Iterable[Any], skip: int) -> Iterator[Any]:
    """Iterates over what follows the first `skip` batches, which have drawn from the random generators on return."""
    if torch_loader.is_map_style(loader):
        return torch_loader.begin(loader, skip)
    if isinstance(loader, Sequence):
        return (loader[index] for index in range(skip, len(loader)))
    batches = iter(loader)
    if skip and _is_stateful(loader):
        _log.warning(
            "the checkpoint has no state of a %s: the %d batches that are done are read again", type(loader).__name__, skip
        )
    elif skip:
        _log.warning(
            "a %s cannot resume in its middle: the %d batches that are done are read again", type(loader).__name__, skip
        )
    for _ in range(skip):
        next(batches, None)
    return batches
