"""The checkpoints of this process under one name, whether it is a rank of a gang or not: their files, keys and tags."""

from collections.abc import Callable
from pathlib import Path

from client_sdk.training._gang.gang_checkpoints import Together
from client_sdk.training._gang.ranks import Ranks
from client_sdk.training._gang.single_checkpoints import Alone, Found
from client_sdk.training._storing import files


class OwnCheckpoints:
    """The checkpoints of a process that is no rank of a gang (`ranks` is None) are numbered. Those of a rank have the number of
    their step, and the ranks resume together. `run` and `replicated`: see `Together`."""

    def __init__(
        self, directory: Path, name: str, ranks: Ranks | None, run: int, keep: int, timeout: float, replicated: bool
    ) -> None:
        self._directory = directory
        self._alone = Alone(directory, name, run, keep)
        self._together: Together | None = None
        if ranks is not None:
            self._together = Together(directory, name, ranks, run, keep, timeout, replicated)
        self._direct = 0, 0
        """The step after which the program last saved by itself in a gang, and how often after that step."""
        self.tag = name if self._together is None else self._together.tag
        """The beginning of the names of the files."""

    @property
    def in_gang(self) -> bool:
        return self._together is not None

    @property
    def writes(self) -> bool:
        """Whether this process writes them: of ranks with replicated state, the first one does."""
        return self._together is None or self._together.writes

    @property
    def saves_alone(self) -> bool:
        """Whether a save needs no other rank."""
        return self._together is None or self._together.is_replicated

    def path_of(self, key: files.Key) -> Path:
        return files.path_of(self._directory, self.tag, key)

    def begin(self) -> None:
        """Look at what is there, and remove unfinished files."""
        if self._together is None:
            self._alone.begin()
        if self.writes:
            files.clear_unfinished(self._directory, self.tag)

    def load(self, between: Callable[[], None], restarted: bool) -> Found | None:
        """The checkpoint from which this process resumes; None if it begins from the start. For arguments and
        errors see `Together.load` and `Alone.load`."""
        if self._together is None:
            return self._alone.load()
        found = self._together.load(between, restarted)
        if found is None:
            return None
        key, state = found
        self._direct = key.number, key.more
        return Found(key, state)

    def next_key(self, step: int, direct: bool) -> files.Key:
        """The key of a save after this step. `direct`: the program saves by itself."""
        if self._together is None:
            return self._alone.next_key()
        more = 0
        if direct:
            more = self._direct[1] + 1 if self._direct[0] == step else 1
            self._direct = step, more
        return self._together.key(step, more)

    def reserve(self, key: files.Key) -> None:
        """Reserve the key for a save."""
        self._alone.reserve(key)

    def note_save(self, key: files.Key) -> None:
        """Remove older checkpoints."""
        if self._together is None:
            self._alone.note_save(key)
        else:
            self._together.note_save()
