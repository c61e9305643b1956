"""Digests of dependencies of results besides a case's settings: the code that makes them, and the files that a case names."""

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel


@cache
def engine() -> str:
    """A digest of the code that makes the histories, on which they depend besides the case."""
    package = Path(__file__).parents[2]
    folders = ("core/**", "policies/**", "sim", "sim/policies", "sim/sharing", "sim/workloads")
    sources = {source for folder in folders for source in package.glob(f"{folder}/*.py")}
    sources |= {package / "sim" / "experiments" / "job_outcomes.py", package / "randomness.py"}
    told = hashlib.sha256()
    for source in sorted(sources):
        told.update(source.read_bytes())
    return told.hexdigest()[:16]


def digest_of_file(file: Path) -> str:
    """A digest of the file's content. Many cases name the same file, so it is read again only when it has changed."""
    status = file.stat()
    return _digest_of(file, status.st_mtime_ns, status.st_size)


@cache
def _digest_of(file: Path, _written_ns: int, _size: int) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def paths(value: Any) -> Iterator[Path]:
    """The files that a model names, at any depth."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, BaseModel):
        for _name, part in value:
            yield from paths(part)
    elif isinstance(value, dict):
        yield from paths(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for part in value:
            yield from paths(part)
