"""The file of a spool, and those that SQLite keeps next to it."""

import contextlib
import itertools
from pathlib import Path

_MAGIC = b"SQLite format 3\0"


def check(path: Path) -> None:
    """Raise ValueError if a file is there that is no database. SQLite takes a file of one byte, or of none, for a new one."""
    if path.exists():
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ValueError("file is not a database")


def set_aside(path: Path) -> Path:
    """Rename the spool, and the files that SQLite keeps next to it, to a name that is free."""
    number = next(number for number in itertools.count(1) if not path.with_name(f"{path.name}.damaged-{number}").exists())
    aside = path.with_name(f"{path.name}.damaged-{number}")
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def discard(path: Path) -> None:
    """Remove the files, the spool first: without it, those that SQLite keeps next to it mean nothing."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
