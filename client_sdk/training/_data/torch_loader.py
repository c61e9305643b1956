"""PyTorch's DataLoader from the middle of an epoch: the sampler is repeated, and no data of the batches before is loaded."""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sized
from itertools import islice
from typing import Any, NamedTuple

from client_sdk.training._data import random_state


def is_map_style(loader: Any) -> bool:
    """Whether it is PyTorch's own DataLoader, and its dataset is indexed by a sampler."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and type(loader) is data.DataLoader and not isinstance(loader.dataset, data.IterableDataset)


def set_epoch(loader: object, epoch: int) -> None:
    """Tells the epoch to every sampler of the loader that asks for it, as DistributedSampler does."""
    for part in _parts(loader):
        if callable(tell := getattr(part, "set_epoch", None)):
            tell(epoch)


def generators(loader: object) -> list[Any]:
    """The generators of the loader and of its samplers, in a fixed order."""
    found = [part.generator for part in _parts(loader) if hasattr(getattr(part, "generator", None), "get_state")]
    return [each for number, each in enumerate(found) if all(each is not other for other in found[:number])]


def _parts(loader: object) -> list[Any]:
    batches = getattr(loader, "batch_sampler", None)
    found = [loader, getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None)]
    return [
        part for number, part in enumerate(found) if part is not None and all(part is not other for other in found[:number])
    ]


def begin(loader: Any, skip: int) -> Iterator[Any]:
    """Iterates over the batches of a map-style loader that follow the first `skip`.

    A worker process seeds its generators for each batch from the seed of the epoch and the number of the batch. So what
    a dataset draws depends neither on the batches that a worker has had before nor on the number of workers.
    `persistent_workers` has no effect: the workers of each epoch are new.

    Raises ValueError for a loader whose batches arrive in no fixed order.
    """
    indices = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    remaining = _Remaining(indices, skip, numbered=loader.num_workers > 0)
    batches: Iterator[Any] = iter(_with_sampler(loader, remaining))
    remaining.begin()
    return batches


def iterate_batches(loader: Any, numbers: list[int]) -> Iterator[Any]:
    """Iterates over the batches of a map-style loader at these places of the epoch, which ascend. The order of the epoch is
    drawn at once. No data of other batches is loaded; for workers see `begin`."""
    indices = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    wanted = set(numbers)
    # All of the order, so that the generators are in the same state whichever places were asked for.
    found = [(number, each) for number, each in enumerate(islice(indices, len(loader))) if number in wanted]
    numbered = loader.num_workers > 0
    batches: Iterator[Any] = iter(_with_sampler(loader, [_Numbered(*pair) if numbered else pair[1] for pair in found]))
    return batches


def _with_sampler(loader: Any, indices: Any) -> Any:
    """A loader that is like this one, and loads what these indices say."""
    if not getattr(loader, "in_order", True):
        raise ValueError(
            "in_order=False: batches arrive in no fixed order, so a run could not resume in the middle of an epoch"
        )
    workers = loader.num_workers
    options: dict[str, Any] = {
        "collate_fn": loader.collate_fn,
        "num_workers": workers,
        "pin_memory": loader.pin_memory,
        "pin_memory_device": loader.pin_memory_device,
        "timeout": loader.timeout,
        "generator": loader.generator,
    }
    if workers:
        options["worker_init_fn"] = loader.worker_init_fn
        options["prefetch_factor"] = loader.prefetch_factor
        options["multiprocessing_context"] = loader.multiprocessing_context
    if loader.batch_sampler is not None:
        options["batch_sampler"] = indices
    else:
        options |= {"batch_size": None, "sampler": indices}
    dataset = _Seeding(loader.dataset) if workers else loader.dataset
    return type(loader)(dataset, **options)


class _Numbered(NamedTuple):
    """The sampler's indices for one batch, and the number of the batch in the epoch."""

    number: int
    indices: Any


class _Remaining:
    """A sampler without its first items."""

    def __init__(self, sampler: Iterable[Any], skip: int, numbered: bool) -> None:
        self._sampler = sampler
        self._skip = skip
        self._numbered = numbered
        self._rest: Iterator[Any] | None = None
        self._number = 0

    def __len__(self) -> int:
        return max(0, len(self._sampler) - self._skip)  # type: ignore[arg-type]  # raises TypeError as the sampler does

    def __iter__(self) -> Iterator[Any]:
        self._rest = iter(self._sampler)
        return self

    def begin(self) -> None:
        """Drops the first items, unless that is done."""
        assert self._rest is not None
        while self._number < self._skip:
            self._number += 1
            next(self._rest, None)

    def __next__(self) -> Any:
        self.begin()
        assert self._rest is not None
        found = next(self._rest)
        self._number += 1
        return _Numbered(self._number - 1, found) if self._numbered else found


class _Seeding:
    """A dataset in a worker process, whose generators are seeded for each batch."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        if name == "dataset":  # asked for while this is unpickled
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __getitem__(self, numbered: _Numbered) -> Any:
        """For a loader without batches: one item."""
        _seed(numbered.number)
        return self.dataset[numbered.indices]

    def __getitems__(self, numbered: _Numbered) -> Any:
        """The items of a batch, as a DataLoader asks for them."""
        _seed(numbered.number)
        if getattr(self.dataset, "__getitems__", None):
            return self.dataset.__getitems__(numbered.indices)
        return [self.dataset[index] for index in numbered.indices]


def _seed(batch: int) -> None:
    from torch.utils.data import get_worker_info

    worker = get_worker_info()
    base = worker.seed - worker.id  # of the epoch: the same for all workers
    random_state.seed(int.from_bytes(hashlib.blake2b(f"{base}:{batch}".encode(), digest_size=8).digest()))


def is_loader(part: object) -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(part, data.DataLoader)


def length(loader: object) -> int | None:
    try:
        return len(loader) if isinstance(loader, Sized) else None
    except TypeError:  # a DataLoader over an IterableDataset
        return None
