"""Environment variables that a job inherits from the process that submits it, in the syntax of sbatch's `--export`."""

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from client_sdk.errors import InvalidArgument

DEFAULT = ("PATH", "VIRTUAL_ENV", "CONDA_*")
"""The search path for programs, and the active environment. Any other variable has to be named by the user."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")
_OF_THIS_SHELL = ("PWD", "OLDPWD", "SHLVL", "_")
_OF_THIS_MACHINE = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES")
_OF_THIS_GANG = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
_OF_HERE = frozenset({*_OF_THIS_SHELL, *_OF_THIS_MACHINE, *_OF_THIS_GANG})
"""Variables that ALL leaves out, like every EBB_*: they do not hold for another job."""


def export_environment(wanted: str | Iterable[str] | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return the inherited variables and the set ones, for NONE, ALL, NAME, PREFIX* and NAME=VALUE, comma-separated or a list.

    A name that is not set here is left out, as in sbatch. Raises InvalidArgument.
    """
    taken: dict[str, str] = {}
    given: dict[str, str] = {}
    parts = _parts(wanted)
    if len(parts) > 1 and "NONE" in parts:
        raise InvalidArgument("NONE takes over nothing, so it stands alone: leave out the rest, or NONE")
    for part in parts:
        name, has_value, value = part.partition("=")
        if has_value:
            if not _NAME.fullmatch(name):
                raise InvalidArgument(f"{name!r} is no name of a variable, in {part!r}")
            given[name] = value
        elif part == "ALL":
            taken |= {name: value for name, value in os.environ.items() if name not in _OF_HERE and _can_inherit(name, value)}
        elif part != "NONE":
            taken |= _matching_variables(part)
    if "PATH" in taken:
        taken["PATH"] = ":".join(map(_absolute, taken["PATH"].split(":")))
    return taken, given


def _absolute(folder: str) -> str:
    """Make a relative folder of PATH absolute, since the job runs in another directory."""
    try:
        return os.path.abspath(folder) if folder.strip(".") and not folder.startswith("/") else folder  # noqa: PTH100
    except FileNotFoundError:  # the folder that we are in is gone
        return folder


def _parts(wanted: str | Iterable[str] | None) -> tuple[str, ...]:
    if wanted is None:
        return DEFAULT
    try:
        parts = tuple(part.strip() for part in (wanted.split(",") if isinstance(wanted, str) else wanted))
    except (TypeError, AttributeError):
        raise InvalidArgument(f'export is like "PATH,LR=0.1", ["PATH"], "ALL" or "NONE", and not {wanted!r}') from None
    if not all(parts):
        raise InvalidArgument(f"{wanted!r} has an empty name; to take over nothing, write NONE")
    return parts or ("NONE",)


def _matching_variables(name: str) -> dict[str, str]:
    if not _PATTERN.fullmatch(name):
        raise InvalidArgument(f"{name!r} is no name of a variable; write ALL, NONE, or names such as PATH or CONDA_*")
    if name.startswith("EBB_"):
        raise InvalidArgument(f"{name}: names that begin with EBB_ are the agent's own, and no job takes them over")
    if not name.endswith("*"):
        value = os.environ.get(name)
        return {} if value is None or not _can_inherit(name, value) else {name: value}
    return {each: os.environ[each] for each in os.environ if fnmatchcase(each, name) and _can_inherit(each, os.environ[each])}


def _can_inherit(name: str, value: str) -> bool:
    """Whether a job can inherit it: shells export functions under unusual names, and only Unicode values can be sent."""
    if name.startswith("EBB_") or not _NAME.fullmatch(name):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
