"""The data of an elastic job: which micro-batches each task takes, so that steps are the same with any number of tasks.

An epoch is a sequence of micro-batches (the batches of the loader), in an order that follows from the seed and the epoch alone.
A step is the next `micro_batches` of them, whatever the number of tasks. Task r of w takes those micro-batches of a step that
have the places r, r + w, r + 2w, ... in the step. The random generators are seeded for each micro-batch by the seed, the epoch
and its place in the epoch. So what a step computes depends on the number of tasks only by the order in which sums are added up.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from client_sdk.training._data import random_state, torch_loader


class Share(NamedTuple):
    """A task's share of the micro-batches of each step."""

    rank: int
    world_size: int
    micro_batches: int
    """The micro-batches of all tasks together."""

    @property
    def accumulate(self) -> int:
        """Micro-batches of this task in a step."""
        return len(range(self.rank, self.micro_batches, self.world_size))

    @property
    def loss_scale(self) -> float:
        """The factor by which a task multiplies the mean loss of a micro-batch, so that the mean of the gradients over all
        tasks is the gradient of the mean loss over the step."""
        return self.world_size / self.micro_batches

    def takes(self, number: int) -> bool:
        """Whether the micro-batch at this position in the epoch is this task's, if a step starts at position 0."""
        return number % self.micro_batches % self.world_size == self.rank


def share_in(environment: Mapping[str, str], micro_batches: int | None, keep_batch: bool, saved: int | None) -> Share:
    """Return this task's share, from the options of `job.checkpointable` and the micro-batches per step in the checkpoint.

    Raises ValueError if some task would have no micro-batch.
    """
    rank, world = int(environment.get("RANK") or 0), int(environment.get("WORLD_SIZE") or 1)
    if keep_batch:
        # The greatest number of tasks, so that a step is the same from the first run on, whatever the number of tasks then.
        of_step = micro_batches or saved or int(environment.get("EBB_MAX_TASKS") or world)
    else:
        of_step = world * (micro_batches or 1)
    if of_step < world:
        raise ValueError(
            f"a step has {of_step} micro-batches, and the job {world} tasks: each task needs at least one. Give "
            "job.checkpointable(micro_batches=...) at least the greatest number of tasks (--max-tasks)"
        )
    return Share(rank, world, of_step)


class ElasticPass:
    """One pass over a loader. `consumed` micro-batches of the epoch are done already, by whatever number of tasks."""

    def __init__(self, loader: Any, epoch: int, seed: int, share: Share, consumed: int = 0) -> None:
        """Raises TypeError for a loader without a fixed sequence of batches, and ValueError for one that shards the data itself
        or has too few batches for a step."""
        self._loader = loader
        self._epoch = epoch
        self._seed = seed
        self._share = share
        self.consumed = consumed
        _check(loader)
        if len(loader) < share.micro_batches:
            raise ValueError(f"the loader has {len(loader)} batches, and a step needs {share.micro_batches} of them")

    @property
    def steps(self) -> int:
        """Steps of the whole epoch. Batches at its end that make no whole step are left out."""
        return len(self._loader) // self._share.micro_batches

    def state(self) -> dict[str, Any]:
        """Everything that is needed to resume."""
        return {"consumed": self.consumed}

    def __iter__(self) -> Iterator[tuple[Any, bool]]:
        """Yields the micro-batches of this task that are not done, and whether each is its last one of a step. The caller
        counts `consumed` after each step."""
        share, begin = self._share, self.consumed
        whole = (len(self._loader) - begin) // share.micro_batches * share.micro_batches
        own = [begin + number for number in range(whole) if share.takes(number)]
        torch_loader.set_epoch(self._loader, self._epoch)
        seed = _derive_seed(self._seed, self._epoch)
        for generator in torch_loader.generators(self._loader):
            generator.manual_seed(seed)
        random_state.seed(seed)
        batches = _batches(self._loader, own)
        for place, number in enumerate(own, 1):
            random_state.seed(_derive_seed(self._seed, self._epoch, number))
            batch = next(batches)
            yield batch, place % share.accumulate == 0


def _derive_seed(*numbers: int) -> int:
    """A seed of 64 bits."""
    text = ":".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())


def _check(loader: Any) -> None:
    if isinstance(loader, Sequence):
        return
    if not torch_loader.is_map_style(loader):
        raise TypeError(
            "an elastic job needs a sequence, or a DataLoader over a dataset that has indices, and not a "
            f"{type(loader).__name__}: its batches must be the same for any number of tasks"
        )
    for sampler in (loader.sampler, loader.batch_sampler):
        if hasattr(sampler, "num_replicas"):
            raise ValueError(
                f"the loader has a {type(sampler).__name__}, which shards the data: job.steps does that itself in an elastic "
                "job, so that it can change. Use the sampler of a single process, such as shuffle=True"
            )


def _batches(loader: Any, numbers: list[int]) -> Iterator[Any]:
    """The batches at these places of the epoch."""
    if isinstance(loader, Sequence):
        return (loader[number] for number in numbers)
    return torch_loader.iterate_batches(loader, numbers)


def scale_rates(things: Iterable[Any], factor: float) -> None:
    """Multiplies the learning rates of optimizers, and of schedulers with `base_lrs`."""
    for thing in things:
        for group in getattr(thing, "param_groups", ()):
            group |= {name: group[name] * factor for name in ("lr", "initial_lr") if name in group}
        if hasattr(thing, "base_lrs"):
            thing.base_lrs = [rate * factor for rate in thing.base_lrs]
