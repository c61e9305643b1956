"""The checkpoints of a rank of a gang: the one from which it resumes together with the other ranks, and those it keeps."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from client_sdk.training._gang.ranks import Meeting, Ranks, Said, clear_words
from client_sdk.training._storing import files
from client_sdk.training._storing.files import CheckpointError, Key

_log = logging.getLogger("client_sdk.training")

_loads: Counter[tuple[Path, str, int]] = Counter()
"""How often this process has loaded: a word of one load is no answer to another."""
_ALL = ".all"
"""Follows the name in the names of files that all ranks load."""
_UNMATCHED = 3
"""Saves after which every rank should have a step in common with the others."""


class Together:
    """The checkpoints of one rank and one name. `run` is Ebb's number of the launch; 0: unknown, since the ranks were started
    by hand. `replicated`: all ranks have the same state, and the first of them writes it."""

    def __init__(
        self, directory: Path, name: str, ranks: Ranks, run: int, keep: int, timeout: float, replicated: bool = False
    ) -> None:
        self._directory = directory
        self._name = name
        self._ranks = ranks
        self._keep = keep
        self._timeout = timeout
        self._launch = f"{run:06}.0"
        self._known_run = run
        self._saves = 0
        self.is_replicated = replicated
        self.writes = not replicated or ranks.own == ranks.together[0]
        self.tag = name + self._tag_of(ranks.own)
        """The name in the files that this rank loads."""
        self.run = max(run, 1)
        """Part of the keys of what is saved now: greater than that of everything that was there before."""

    def load(self, between: Callable[[], None], restarted: bool) -> tuple[Key, Any] | None:
        """The newest checkpoint that all ranks have whole; None if all ranks begin from the start.

        `between` is called while this waits for the other ranks. `restarted`: processes of this launch have run before.
        Raises CheckpointError, which names ranks, directory and remedy, where going on or beginning would be wrong.
        """
        own = self._own(restarted)
        if not own:
            self._refuse_strangers()
        if self._known_run == 1 and not (own or restarted):
            return None  # nothing can be there, so nobody need be waited for
        use = self._directory, self._name, self._ranks.own
        _loads[use] += 1
        self._launch = f"{self._known_run:06}.{_loads[use]}"
        meeting = Meeting(self._directory, self._name, self._ranks, self._launch, self._timeout, between)
        all_said = meeting.begin(own, self._common_mark.exists())
        newest = max((key.run for said in all_said for key in said.has), default=0)
        self.run = max(self._known_run, newest + 1)
        problems: list[str] = []
        for key in sorted(_common(set(said.has) for said in all_said), reverse=True):
            state, problem = self._read(key)
            found = meeting.exchange_problems(key, problem)
            if not any(found):
                for text in problems:
                    _log.warning("%s; all ranks go on from the one before it, step %d of run %d", text, key.number, key.run)
                self._common_mark.touch()
                return key, state
            problems += [f"rank {rank}: {text}" for rank, text in zip(self._ranks.together, found, strict=True) if text]
        if problems or any(said.had for said in all_said):
            raise CheckpointError(self._lacking_text(all_said, problems))
        if any(said.has for said in all_said):
            _log.warning("%s; all ranks begin from the start", self._no_common(all_said))
        return None

    def key(self, step: int, more: int) -> Key:
        return Key(self.run, step, more)

    def note_save(self) -> None:
        """This rank has saved. An older checkpoint is removed if all ranks have newer ones, `keep` of them."""
        self._saves += 1
        if self._saves == 1 and self._directory.is_dir():
            clear_words(self._directory, self._name, self._ranks, self._launch)
        if not self.writes:
            return
        found = self._all_checkpoints()
        if common := sorted(_common(found[rank] for rank in self._ranks.together)):
            self._common_mark.touch()
            for old in found[self._ranks.own]:
                if old < common[-self._keep :][0]:
                    files.path_of(self._directory, self.tag, old).unlink(missing_ok=True)
        elif self._saves == _UNMATCHED:
            without = [str(rank) for rank in self._ranks.together if not found[rank]]
            who = f"rank {', '.join(without)} has saved nothing" if without else "the ranks have saved at other steps"
            _log.warning(
                "rank %d has saved %d times in %s, and %s there: after an interruption the ranks could not go on from one "
                "step. They need a directory that all of their nodes share, and must call at_boundary equally often",
                self._ranks.own,
                self._saves,
                self._directory,
                who,
            )

    @property
    def _common_mark(self) -> Path:
        """A file that is there since all ranks had a step in common."""
        return self._directory / f".{self.tag}.common"

    def _own(self, restarted: bool) -> list[Key]:
        found = self._all_checkpoints()[self._ranks.own]
        if self.is_replicated and self._known_run and not restarted:
            # What the writer has saved in this run is no checkpoint from which this run could have begun.
            found = {key for key in found if key.run < self._known_run}
        return sorted(found)

    def _tag_of(self, rank: int) -> str:
        return _ALL if self.is_replicated else self._ranks.tag(rank)

    def _all_checkpoints(self) -> dict[int, set[Key]]:
        """The checkpoints that are here, by rank."""
        by_tag: dict[str, set[Key]] = {}
        for tag, key in files.all_checkpoints(self._directory, self._name):
            by_tag.setdefault(tag, set()).add(key)
        return {rank: by_tag.get(self._tag_of(rank), set()) for rank in self._ranks.together}

    def _read(self, key: Key) -> tuple[Any, str]:
        try:
            return files.read(files.path_of(self._directory, self.tag, key)), ""
        except (CheckpointError, OSError) as error:
            return None, str(error)

    def _refuse_strangers(self) -> None:
        """Checkpoints of this name that others than these ranks have made are not thrown away in silence."""
        mine = {self._tag_of(rank) for rank in range(self._ranks.world)}
        strangers = {tag for tag, _ in files.all_checkpoints(self._directory, self._name)} - mine
        if strangers:
            refuse_strangers(self._directory, self._name, strangers, f"rank {self._ranks.own} of {self._ranks.world}")

    def _no_common(self, all_said: list[Said]) -> str:
        has = [f"rank {rank} (on {s.node}) {_newest(s)}" for rank, s in zip(self._ranks.together, all_said, strict=True)]
        return f"no step of {self._name!r} in {self._directory} is whole on every rank: {'; '.join(has)}"

    def _lacking_text(self, all_said: list[Said], problems: list[str]) -> str:
        return "; ".join([self._no_common(all_said), *problems]) + (
            f". Bring back what is missing, or remove every file {self._name}.* and .{self._name}.* to begin from the start"
        )


def refuse_strangers(directory: Path, name: str, tags: set[str], who: str) -> None:
    """Raises CheckpointError: these are the tags of others."""
    makers = sorted({_maker(tag) for tag in tags})
    raise CheckpointError(
        f"{who} has no checkpoint {name!r} in {directory}, but there are some of {' and '.join(makers)}: go on with as many "
        "ranks, take another directory or name, or remove them to begin from the start"
    )


def _maker(tag: str) -> str:
    if tag in ("", _ALL):
        return "ranks with replicated state" if tag else "a single process"
    return f"{tag.rpartition('of')[2]} ranks"


def _common(sets: Iterable[set[Key]]) -> set[Key]:
    return set.intersection(*sets)


def _newest(said: Said) -> str:
    if not said.has:
        return "has none"
    newest = max(said.has)
    return f"has {len(said.has)}, the newest of run {newest.run} and step {newest.number}"
