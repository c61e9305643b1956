"""The file of a spool, and those that SQLite keeps beside it."""

import contextlib
import itertools
from pathlib import Path

_MAGIC = b"SQLite format 3\0"


def check(path: Path) -> None:
    """Raises ValueError if there is a file that is no database. SQLite takes a file of one byte, or of none, for a new one."""
    if path.exists():
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ValueError("file is not a database")


def set_aside(path: Path) -> Path:
    """Renames the spool, and what SQLite keeps beside it, to a name that is free."""
    number = next(number for number in itertools.count(1) if not path.with_name(f"{path.name}.damaged-{number}").exists())
    aside = path.with_name(f"{path.name}.damaged-{number}")
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def discard(path: Path) -> None:
    """The spool first: without it, what SQLite keeps beside it means nothing."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
