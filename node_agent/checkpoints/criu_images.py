"""The dumps that CRIU makes, and the commands that make and restore them.

A tree is restored with the pids, paths and libraries that it had, so these must be the same on another machine, and the pids
free. The launcher executes both commands (`launcher/criu_dump.py`, `launcher/restoring.py`), so a dump or a restore outlives
the agent.
"""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from node_agent.processes import job_files
from node_agent.processes.launcher import criu_dump
from node_agent.processes.launcher.criu_dump import ABOUT_FILE, first_error
from node_agent.processes.launcher.restoring import PID_FILE

_RESTORE_LIMIT = 60.0
"""Seconds, plus one for each `_BYTES_PER_SECOND` bytes of a dump."""
_BYTES_PER_SECOND = 50 << 20
_ABOUT_LIMIT = 1 << 20
"""Bytes: tens of thousands of pids."""
_LOG = "restore.log"


class Image(NamedTuple):
    """A dump of a run."""

    folder: Path
    pid: int
    """The root of the tree."""
    pids: tuple[int, ...]
    """The processes of the tree."""
    run: int
    """The number of the run."""
    log: str
    """Path of the file to which it wrote its output."""
    home: str
    """The run directory that the program knows: that of the run that executed the command."""
    node: str
    devices: tuple[str, ...]
    """The devices that the run could use, by UUID."""
    bytes: int


def dump_command(
    program: str, pid: int, images: Path, about: dict[str, object], yield_file: str, folder: str
) -> tuple[str, ...]:
    """Dump the tree below `pid` into `images` and end it, or let it continue. `about`: the fields of `Image` that the agent
    knows. The result is written to `folder`."""
    request = {
        "criu": program,
        "pid": pid,
        "images": str(images),
        "about": about,
        "yield_file": yield_file,
        "folder": folder,
    }
    return sys.executable, "-I", "-S", criu_dump.__file__, json.dumps(request)


def restore_command(program: str, image: Image, folder: str) -> tuple[str, ...]:
    """Restore the tree, as a sibling of CRIU. What it wrote to its log, it then writes to CRIU's descriptor 1. CRIU writes
    the result to `folder`, which must exist."""
    return (
        *(
            program,
            "restore",
            "--images-dir",
            str(image.folder),
            "--work-dir",
            folder,
            "--restore-detached",
            "--restore-sibling",
        ),
        *("--manage-cgroups=ignore", "--cpu-cap=cpu", "--file-locks", "--pidfile", PID_FILE, "--log-file", _LOG, "-v2"),
        *("--inherit-fd", f"fd[1]:{image.log.lstrip('/')}"),
    )


def restore_limit(image: Image) -> float:
    return _RESTORE_LIMIT + image.bytes / _BYTES_PER_SECOND


def why_not_restored(folder: str) -> str:
    """Return the error that CRIU wrote to the folder of a run."""
    return first_error(f"{folder}/{_LOG}", "")


def read_image(folder: Path) -> Image | None:
    """Return the dump in a folder; None: no dump, or an incomplete one."""
    with suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
        held = json.loads(job_files.read_file(str(folder), ABOUT_FILE, _ABOUT_LIMIT).data or b"")
        return Image(
            folder,
            int(held["pid"]),
            tuple(map(int, held["pids"])),
            int(held["run"]),
            str(held["log"]),
            str(held["home"]),
            str(held["node"]),
            tuple(map(str, held["devices"])),
            int(held["bytes"]),
        )
    return None
