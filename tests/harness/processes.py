"""Which processes there are, what they listen to, and what is left of them."""

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.harness.limits import LIMIT


def every_pid() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str]:
    """State, parent, group, session, ...; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def alive(pid: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[0] not in "ZX"


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> number - 1 & 1)


def job_processes(folder: Path) -> dict[int, list[int]]:
    """Job -> the leaders of its runs that are alive, of every node under the folder."""
    found: dict[int, list[int]] = {}
    for pid in every_pid():
        fields = _stat(pid)
        if len(fields) < 4 or fields[0] in "ZX" or not fields[2] == fields[3] == str(pid):
            continue
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if any(v.startswith(b"EBB_RUN_DIR=" + bytes(folder) + b"/") for v in variables):
                job = next(int(v.partition(b"=")[2]) for v in variables if v.startswith(b"EBB_JOB_ID="))
                found.setdefault(job, []).append(pid)
    return found


def processes_of(folder: Path) -> dict[int, str]:
    """Everything alive that has to do with a folder: by its arguments, its environment, or where it works."""
    found = {}
    needle = bytes(folder)
    for pid in every_pid():
        with contextlib.suppress(OSError):
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
            where = bytes(Path(f"/proc/{pid}/cwd").readlink())
            about = arguments + where + b"/\0" + Path(f"/proc/{pid}/environ").read_bytes()
            if needle + b"/" in about and alive(pid) and pid not in (os.getpid(), os.getppid()):
                found[pid] = arguments.replace(b"\0", b" ").decode(errors="replace")
    return found


def leftovers(folder: Path) -> list[str]:
    """Processes, sockets and held locks that a closed cluster has left behind."""
    left = [f"process {pid}: {command}" for pid, command in processes_of(folder).items()]
    left += [f"socket {path}" for path in folder.rglob("*") if path.is_socket()]
    for path in folder.rglob("lock"):
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                left.append(f"lock {path}")
    return left


def run(command: Sequence[str | Path], limit: float = LIMIT, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A program as its users start it, to its end."""
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=limit,
        stdin=subprocess.DEVNULL,
        env=os.environ | environment,
        check=False,
    )


def run_module(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return run([sys.executable, "-m", *arguments])
