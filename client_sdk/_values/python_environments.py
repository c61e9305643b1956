"""Activation of virtual and conda environments of the nodes, by putting them first in a job's PATH.

The job sets VIRTUAL_ENV or CONDA_PREFIX to the environment. From these, its node knows that the environment must exist.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from client_sdk.errors import InvalidArgument

Variables = dict[str, str]


def activate_environment(
    venv: str | os.PathLike[str] | None,
    conda: str | os.PathLike[str] | None,
    inherited: Mapping[str, str],
    own: Mapping[str, str],
) -> tuple[Variables, Variables]:
    """Return a job's inherited and own variables, with an environment activated. Raises InvalidArgument."""
    if venv is None and conda is None:
        return dict(inherited), dict(own)
    if venv is not None and conda is not None:
        raise InvalidArgument("venv and conda exclude each other; leave one out")
    if venv is not None:
        path = _absolute("venv", venv)
        names = {"VIRTUAL_ENV": path}
    else:
        path, name = _conda(conda)  # type: ignore[arg-type]  # one of them is not None
        names = {"CONDA_PREFIX": path, "CONDA_DEFAULT_ENV": name}
    inherited = {key: value for key, value in inherited.items() if key != "VIRTUAL_ENV" and not key.startswith("CONDA_")}
    folder = f"{path}/bin"
    if "PATH" in own:
        return inherited, {**own, **names, "PATH": f"{folder}:{own['PATH']}"}
    return {**inherited, "PATH": f"{folder}:{inherited['PATH']}" if "PATH" in inherited else folder}, {**own, **names}


def _absolute(what: str, path: str | os.PathLike[str]) -> str:
    try:
        said = os.fspath(path)
        if not isinstance(said, str) or not said:
            raise TypeError
    except TypeError:
        raise InvalidArgument(f"{what} is the path of an environment, and not {path!r}") from None
    return os.path.abspath(os.path.expanduser(said))  # noqa: PTH100, PTH111 (links are not resolved)


def _conda(given: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the path and the name of a conda environment."""
    if not isinstance(given, str) or "/" in given or given.startswith(("~", ".")):
        path = _absolute("conda", given)
        return path, path
    for path in _conda_environments():
        if os.path.basename(path) == given:  # noqa: PTH119
            return path, given
    raise InvalidArgument(
        f"there is no conda environment {given!r} here; give its path on the nodes, such as /shared/envs/{given}"
    )


def _conda_environments() -> Iterator[str]:
    """Yield the paths of the conda environments of this machine."""
    roots = [part for name in ("CONDA_ENVS_PATH", "CONDA_ENVS_DIRS") for part in os.environ.get(name, "").split(":") if part]
    if program := os.environ.get("CONDA_EXE"):
        roots.append(str(Path(program).parent.parent / "envs"))
    for root in roots:
        if Path(root).is_dir():
            yield from (entry.path for entry in sorted(os.scandir(root), key=lambda entry: entry.name) if entry.is_dir())
    try:
        yield from (Path.home() / ".conda" / "environments.txt").read_text(encoding="utf-8").split("\n")
    except (OSError, RuntimeError):
        return
