"""Checkpoint files: written whole or not at all, and checked before they are believed.

A file is a header and a pickle. The header holds the pickle's length and BLAKE2b digest, so that a file which was cut
short, or whose disk lied, is known for what it is before anything in it is used. Names are
`NAME-RUN-NUMBER.ckpt`; the newest is the one of the highest run, and then of the highest number. A process of an older
run that is still alive somewhere therefore never passes its work off as the newest.

A rank of a gang has `NAME.RANKofWORLD` for NAME, and a state that is the same on all ranks has `NAME.all`. The number is then a
step: how many boundaries the training has passed over all runs. So files of the same run and step are the same moment of the
training on all ranks.
"""

import hashlib
import os
import pickle
import re
import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from client_sdk.errors import EbbError

_HEADER = struct.Struct(">8sQ32s")
_MAGIC = b"EBBCKPT1"
_CHUNK = 1 << 20


class CheckpointError(EbbError):
    """A checkpoint could not be written, or an existing one cannot be used. The message names the file."""


class Refers:
    """A state that is in a folder next to the checkpoint, which is then named after the folder."""

    folder: str


class Key(NamedTuple):
    """The sort key of the checkpoints of a directory."""

    run: int
    number: int
    """The number of the save of a process; for a rank of a gang, its step."""
    more: int = 0
    """For a rank of a gang: the number of the call of `save` since that step; 0: the save at the step itself."""


def path_of(directory: Path, name: str, key: Key) -> Path:
    return directory / f"{name}-{key.run:06}-{key.number:08}{f'.{key.more}' if key.more else ''}.ckpt"


def present(directory: Path, name: str) -> list[Key]:
    """The checkpoints in a directory, oldest first; one that is not there holds none."""
    return sorted(key for tag, key in all_checkpoints(directory, name) if tag == "")


def all_checkpoints(directory: Path, name: str) -> list[tuple[str, Key]]:
    """Return the checkpoints of this name in a directory, of any writer: the tag between name and key, and the key."""
    pattern = re.compile(rf"{re.escape(name)}((?:\.[0-9]+of[0-9]+|\.all)?)-([0-9]{{6,}})-([0-9]{{8,}})(?:\.([0-9]+))?\.ckpt")
    try:
        names = [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return []
    found = filter(None, map(pattern.fullmatch, names))
    return [(match[1], Key(int(match[2]), int(match[3]), int(match[4] or 0))) for match in found]


def clear_unfinished(directory: Path, name: str) -> None:
    """Removes what writers that were killed left behind."""
    pattern = re.compile(rf"\.{re.escape(name)}-[0-9]+-[0-9]+(?:\.[0-9]+)?\.ckpt\.[0-9]+\.tmp")
    if directory.is_dir():
        for path in directory.iterdir():
            if pattern.fullmatch(path.name):
                path.unlink(missing_ok=True)


class _Hashed:
    """A file that digests what is written to it, so that a large state is never held twice."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.blake2b(digest_size=32)
        self.length = 0

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.length += memoryview(data).nbytes
        return self._file.write(data)


def write(directory: Path, name: str, key: Key, state: object) -> Path:
    """Writes a checkpoint; on return it is on the disk under its name, and before that it does not exist.

    Raises OSError (a full disk, for example) and whatever pickling raises, with nothing left behind.
    """
    path = path_of(directory, name, key)
    unfinished = directory / f".{path.name}.{os.getpid()}.tmp"
    try:
        with unfinished.open("wb") as file:
            file.write(bytes(_HEADER.size))
            body = _Hashed(file)
            pickle.dump(state, body, protocol=5)
            file.seek(0)
            file.write(_HEADER.pack(_MAGIC, body.length, body.digest.digest()))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync_directory(directory)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return path


_MOVED = {"client_sdk.training._folders": "client_sdk.training._storing.folders"}
"""Modules that older checkpoints name, and where their content is now."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(_MOVED.get(module, module), name)


def read(path: Path) -> Any:
    """Return the contents of a checkpoint. Raises CheckpointError if the file is damaged."""
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            raise CheckpointError(f"{path} is cut short: it has {len(header)} bytes, less than its header")
        magic, length, digest = _HEADER.unpack(header)
        if magic != _MAGIC:
            raise CheckpointError(f"{path} is not a checkpoint of this format")
        there = os.fstat(file.fileno()).st_size - _HEADER.size
        if there != length:
            raise CheckpointError(f"{path} is cut short: it has {there} of {length} bytes")
        found = hashlib.blake2b(digest_size=32)
        while chunk := file.read(_CHUNK):
            found.update(chunk)
        if found.digest() != digest:
            raise CheckpointError(f"{path} is damaged: its content does not match its checksum")
        file.seek(_HEADER.size)
        try:
            return _Unpickler(file).load()
        except Exception as error:
            raise CheckpointError(
                f"{path} is whole, but this program cannot read it: {type(error).__name__}: {error}"
            ) from error


def sync_directory(directory: Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
