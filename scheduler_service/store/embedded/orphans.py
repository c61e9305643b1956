"""Leftovers of an embedded server that was killed, or whose user was: processes, a pid file, a socket's folder."""

import logging
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from scheduler_service.store.errors import EmbeddedError

SOCKET_DIR_PREFIX = "ebb-socket-"
FAST = signal.SIGINT
"""To a postmaster: end the sessions and stop."""
IMMEDIATE = signal.SIGQUIT
"""To a postmaster: stop at once, and recover at the next start."""

log = logging.getLogger(__name__)


def clear(data: Path, limit: float) -> None:
    """Stops every server process that still works on this database and removes its pid file, within `limit` seconds.

    The caller holds the lock of the folder, so nobody uses what is found here. Raises EmbeddedError when it does not stop.
    """
    if not Path("/proc/self/cwd").exists():
        return  # PostgreSQL's own check must do: it refuses to start next to another server
    pid_file = data / "postmaster.pid"
    try:
        lines = pid_file.read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        lines = []
    postmaster = int(lines[0]) if lines and lines[0].strip().isdigit() else 0
    processes = _working_in(data)
    if postmaster in processes:
        log.warning("Stopping PostgreSQL (pid %d), left behind in %s by a process that was killed", postmaster, data)
        _signal(postmaster, FAST)
        processes = _wait_until_gone(data, limit)
    # Children of a postmaster that was killed end by themselves, but not while they are busy.
    for process in processes:
        _signal(process, IMMEDIATE)
    if processes and (left := _wait_until_gone(data, limit)):
        raise EmbeddedError(data, f"its server processes {sorted(left)} do not stop. Stop them and try again")
    pid_file.unlink(missing_ok=True)
    if len(lines) > 4 and Path(lines[4]).name.startswith(SOCKET_DIR_PREFIX):
        shutil.rmtree(lines[4], ignore_errors=True)


def _working_in(data: Path) -> set[int]:
    """Processes of PostgreSQL servers of this database: each has it as its working folder. Dead ones are left out."""
    try:
        wanted = data.stat()
    except FileNotFoundError:
        return set()
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                there = (entry / "cwd").stat()
                if (there.st_dev, there.st_ino) == (wanted.st_dev, wanted.st_ino) and (
                    entry / "exe"
                ).readlink().name.startswith("postgres"):
                    found.add(int(entry.name))
    return found


def _wait_until_gone(data: Path, limit: float) -> set[int]:
    end = time.monotonic() + limit
    while (left := _working_in(data)) and time.monotonic() < end:
        time.sleep(0.01)
    return left


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
