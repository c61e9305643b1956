"""The ranks of a gang that save together, and how they agree on the step from which all of them resume.

The ranks need only a shared directory: when they load, they are not yet connected to each other. Each rank keeps a small file
there, its word, which it replaces atomically. A rank first lists its checkpoints, then the words that it has read, and then the
result of reading the checkpoint that all ranks have. It continues only when every rank has published the same stage. So all
ranks of a launch take the same step: they decide from the same words, regardless of their directory listings and of how far
other ranks are, even on file systems that show changes late. The word of an earlier launch, or of a restarted process, has
another nonce, and no rank takes it for an answer.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from client_sdk.training._storing.files import CheckpointError, Key

_SHORTEST, _LONGEST = 0.005, 0.25
"""Seconds between two reads of the words of the others."""


class Ranks(NamedTuple):
    own: int
    together: tuple[int, ...]
    """The ranks that save together, including this one."""
    world: int

    def tag(self, rank: int) -> str:
        """Return the part of a rank's file names that follows the checkpoint's name."""
        return f".{rank}of{self.world}"


def ranks_of(environment: Mapping[str, str], together: Iterable[int] | None, also_alone: bool = False) -> Ranks | None:
    """Return the rank of this process, from RANK and WORLD_SIZE; None if it is the only one, unless `also_alone`: it is then
    rank 0 of 1.

    Raises ValueError for values that cannot be.
    """
    texts = environment.get("RANK"), environment.get("WORLD_SIZE")
    if not all(texts):
        return Ranks(0, (0,), 1) if also_alone else None
    try:
        own, world = map(int, texts)  # type: ignore[arg-type]
    except ValueError:
        raise ValueError(f"RANK={texts[0]!r} and WORLD_SIZE={texts[1]!r} must be whole numbers, or both be unset") from None
    if not 0 <= own < world:
        raise ValueError(f"RANK={own} must be at least 0 and less than WORLD_SIZE={world}")
    if world == 1:
        return Ranks(0, (0,), 1) if also_alone else None
    chosen = tuple(range(world)) if together is None else tuple(sorted(set(together)))
    if own not in chosen or not all(0 <= rank < world for rank in chosen):
        raise ValueError(
            f"ranks={chosen}: rank {own} of {world} must be one of them, and all must be less than {world}; "
            "a rank that saves nothing needs no Checkpointer"
        )
    return Ranks(own, chosen, world)


class Said(NamedTuple):
    """The word of a rank."""

    nonce: str
    node: str
    has: tuple[Key, ...]
    had: bool
    """All ranks had a step in common at some time."""
    seen: tuple[str, ...] = ()
    """The nonces of all ranks, as this one has read them."""
    found: tuple[tuple[Key, str], ...] = ()
    """Results of reading this rank's checkpoints, for those that all ranks have: the problem, or an empty text."""


class Meeting:
    """One `load` of all ranks. `number`: which one, in the order of this process."""

    def __init__(
        self,
        directory: Path,
        name: str,
        ranks: Ranks,
        launch: str,
        timeout: float,
        between: Callable[[], None],
    ) -> None:
        """`launch` tells the words of one launch from those of others as far as that is known; `between` is called while this
        waits for the other ranks."""
        self._directory = directory
        self._name = name
        self._ranks = ranks
        self._launch = launch
        self._timeout = timeout
        self._between = between
        self._own = Said("", "", (), False)

    def begin(self, has: Iterable[Key], had: bool) -> list[Said]:
        """Return the words of all ranks in order, identical on all of them. Raises CheckpointError if a rank is missing."""
        node = os.environ.get("EBB_NODE") or os.uname().nodename
        self._say(Said(os.urandom(8).hex(), node, tuple(has), had))

        def have_agreed(all_said: list[Said]) -> bool:
            nonces = tuple(said.nonce for said in all_said)
            if self._own.seen != nonces:
                self._say(self._own._replace(seen=nonces))
                return False
            return all(said.seen == nonces for said in all_said)

        return self._wait_until(have_agreed)

    def exchange_problems(self, key: Key, problem: str) -> list[str]:
        """Publish the result of reading this rank's checkpoint of that key, and return the problems of all ranks."""
        self._say(self._own._replace(found=(*self._own.found, (key, problem))))
        all_said = self._wait_until(lambda all_said: all(s.seen == self._own.seen and key in dict(s.found) for s in all_said))
        return [dict(said.found)[key] for said in all_said]

    def _wait_until(self, holds: Callable[[list[Said]], bool]) -> list[Said]:
        deadline, pause = time.monotonic() + self._timeout, _SHORTEST
        while True:
            heard = [self._hear(rank) for rank in self._ranks.together]
            all_said = [said for said in heard if said is not None]
            if len(all_said) == len(heard) and holds(all_said):
                return all_said
            if time.monotonic() >= deadline:
                self._give_up(heard)
            self._between()
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST)

    def _give_up(self, heard: list[Said | None]) -> None:
        missing = [str(rank) for rank, said in zip(self._ranks.together, heard, strict=True) if said is None]
        who = f"rank {', '.join(missing)} of {self._ranks.world} has" if missing else "another rank has"
        raise CheckpointError(
            f"rank {self._ranks.own}: {who} not come to load its checkpoint {self._name!r} in {self._directory} within "
            f"{self._timeout:g} s, so it is unknown which step all ranks have. Let every rank enter a Checkpointer of the same "
            "name and directory and call load(). Ranks on several nodes need a directory that these nodes share (the setting "
            "`checkpoints` of their agents). If only some ranks save, name them: Checkpointer(ranks=[0])"
        )

    def _path(self, rank: int) -> Path:
        return self._directory / f".{self._name}{self._ranks.tag(rank)}.{self._launch}.word"

    def _say(self, said: Said) -> None:
        self._own = said
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._path(self._ranks.own)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(said), encoding="utf-8")
        new.replace(path)

    def _hear(self, rank: int) -> Said | None:
        if rank == self._ranks.own:
            return self._own
        try:
            nonce, node, has, had, seen, found = json.loads(self._path(rank).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return Said(nonce, node, _keys(has), had, tuple(seen), tuple((Key(*key), problem) for key, problem in found))


def _keys(found: list[Any]) -> tuple[Key, ...]:
    return tuple(Key(*key) for key in found)


def clear_words(directory: Path, name: str, ranks: Ranks, launch: str) -> None:
    """Removes this rank's words of earlier launches, which nobody waits for any more."""
    begin, end = f".{name}{ranks.tag(ranks.own)}.", ".word"
    for path in directory.iterdir():
        if path.name.startswith(begin) and path.name.endswith(end) and path.name < f"{begin}{launch}{end}":
            path.unlink(missing_ok=True)
