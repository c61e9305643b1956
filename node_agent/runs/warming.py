"""Warm processes: the interpreter and the modules of a run that starts here once it has ended on another node.

The modules are those that the job has imported in its last run.

    RUN/warm/modules   modules that the process should import; written before the process starts
    RUN/warm/warmed    the process has imported them, and waits
    RUN/warm/go.json   the process should begin; the changes of its environment since it was started

A run whose command is no Python script has no warm process, and is launched when it begins.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from node_agent.processes import job_files
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import LaunchSpec, RunKey
from node_agent.spool.spool import Spool

_PYTHON = re.compile(r"python(3(\.[0-9]+)?)?")
_ALONE = re.compile(r"-[bBdEIOPqsSuv]+")
"""Options of the interpreter that take no argument, and that can be passed on to the warm process."""
_WITH_ARGUMENT = ("-W", "-X")
_MOST = 4096
"""Maximum modules in a message."""
_MODULES_LIMIT = 1 << 20
"""Bytes of a list of modules."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)
_OFF = "NO_EBB_WARM"
"""Variable by which a user makes the job start cold."""


def warm_launch(launch: LaunchSpec, hook: str) -> LaunchSpec | None:
    """Return the launch of a warm process for this one; None: the command starts cold. `hook`: the hook's folder."""
    theirs = dict(launch.inherited) | dict(launch.environment)
    split = _split(launch.command)
    if not hook or split is None or theirs.get(_OFF) or theirs.get("NO_EBB_HOOK"):
        return None
    options, rest = split
    command = (launch.command[0], *options, f"{hook}/ebb_hook/warm.py", *rest)
    return replace(launch, command=command, environment=(*launch.environment, ("EBB_WARM_OPTIONS", json.dumps(options))))


def _split(command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the options of the interpreter, and the script or module with its arguments; None if it has neither."""
    if not command or not _PYTHON.fullmatch(os.path.basename(command[0])):  # noqa: PTH119
        return None
    at = 1
    while at < len(command):
        word = command[at]
        if word == "-m":
            return (tuple(command[1:at]), tuple(command[at:])) if at + 1 < len(command) else None
        if word in _WITH_ARGUMENT:
            at += 2
        elif word.startswith(_WITH_ARGUMENT) or _ALONE.fullmatch(word):
            at += 1
        elif word.startswith("-"):
            return None
        else:
            return tuple(command[1:at]), tuple(command[at:])
    return None


class WarmFolder:
    """The files of one run's warm process."""

    def __init__(self, paths: Paths, key: RunKey) -> None:
        self._run = paths.folder(key)

    @property
    def exists(self) -> bool:
        """Whether the run has, or is to have, a warm process."""
        return job_files.has_file(self._run, "warm/modules")

    @property
    def is_warm(self) -> bool:
        return job_files.has_file(self._run, "warm/warmed")

    def make(self, modules: Sequence[str]) -> None:
        """Request a warm process. Raises OSError."""
        job_files.make_folder(self._run, "warm")
        job_files.write_file(self._run, "warm/modules", "\n".join(modules).encode("ascii"))

    def go(self, variables: Mapping[str, str]) -> None:
        """Let the process begin; harmless to repeat. Raises OSError."""
        job_files.make_folder(self._run, "warm")
        job_files.write_file(self._run, "warm/go.json", json.dumps(dict(variables)).encode(), 0o600)


def program_of(pid: int) -> str:
    """Return the file that a process executes; empty if it has ended."""
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115
    return ""


def last_modules(spool: Spool, paths: Paths, job_id: int) -> tuple[str, ...]:
    """Return the modules of the job's last run on this node, in the order of its imports; none if it has not listed any."""
    runs = [key for key in spool.runs if key.job_id == job_id]
    for key in sorted(runs, key=lambda key: (-key.run, key.task)):
        if modules := read_modules(paths, key):
            return modules
    return ()


def read_modules(paths: Paths, key: RunKey) -> tuple[str, ...]:
    """Return the modules that the run has listed. The user's program writes this."""
    lines = job_files.read_file(*os.path.split(paths.modules(key)), _MODULES_LIMIT).text.split()
    return tuple(name for name in lines[:_MOST] if _NAME.fullmatch(name) and len(name) < 256)
