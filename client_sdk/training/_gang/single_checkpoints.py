"""The checkpoints of a process that is not a rank of a gang: the one from which it resumes, and those it keeps."""

import logging
from pathlib import Path
from typing import Any, NamedTuple

from client_sdk.training._gang.gang_checkpoints import refuse_strangers
from client_sdk.training._storing import files
from client_sdk.training._storing.files import CheckpointError, Key

_log = logging.getLogger("client_sdk.training")


class Found(NamedTuple):
    key: Key
    state: Any


class Alone:
    """The checkpoints of one process and one name. `run` is 0 if the process was started by hand."""

    def __init__(self, directory: Path, name: str, run: int, keep: int) -> None:
        self._directory = directory
        self._name = name
        self._run = run
        self._keep = keep
        self._good: list[Key] = []
        self._number = 0

    def begin(self) -> None:
        if good := files.present(self._directory, self._name):
            self._good = good
            # Started by hand in a job's directory, without a run number: its checkpoints still have to follow the job's.
            self._run = max(self._run, good[-1].run)
            self._number = max(key.number for key in good)

    def load(self) -> Found | None:
        """Return the newest intact checkpoint; None if none exists. Raises CheckpointError if none of several is usable."""
        keys = files.present(self._directory, self._name)
        problems: list[str] = []
        for key in reversed(keys):
            path = files.path_of(self._directory, self._name, key)
            try:
                state = files.read(path)
            except (CheckpointError, OSError) as error:
                problems.append(str(error))
                continue
            for problem in problems:
                _log.warning("%s; going on from the one before it, %s", problem, path)
            self._good = keys[: keys.index(key) + 1]
            return Found(key, state)
        if problems:
            raise CheckpointError(
                f"no checkpoint in {self._directory} can be used: {'; '.join(problems)}. "
                "Repair one, or remove them all to begin from the start"
            )
        if tags := {tag for tag, _ in files.all_checkpoints(self._directory, self._name)}:
            refuse_strangers(self._directory, self._name, tags, "this process, which is no rank of a gang,")
        return None

    def next_key(self) -> Key:
        return Key(self._run, self._number + 1)

    def reserve(self, key: Key) -> None:
        """From now on the key is a save's, and the next one follows it."""
        self._number = max(self._number, key.number)

    def note_save(self, key: Key) -> None:
        """Removes what is older than the newest `keep` checkpoints, or damaged."""
        self.reserve(key)
        self._good = [*self._good, key][-self._keep :]
        for old in files.present(self._directory, self._name):
            if old < key and old not in self._good:
                files.path_of(self._directory, self._name, old).unlink(missing_ok=True)
