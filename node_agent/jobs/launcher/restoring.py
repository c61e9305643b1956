"""Runs that are restored from a dump by CRIU, in place of being executed.

CRIU makes the root of the dumped tree a sibling of itself, and so a child of the launcher, and exits: from then on the run is
that process. Until then the run is CRIU, and nobody is told that the run has begun. If CRIU fails, the launcher executes the
command of the run.

The launcher imports this, and so it imports next to nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from node_agent.jobs.processes import find_leader, pids, stat_fields

PID_FILE = "restored.pid"
"""In the directory of a run: CRIU writes the root of the restored tree there."""
_DEATH = 5.0
"""Seconds that killed processes may take to be gone."""


def restored_root(directory: str) -> int:
    """The root of the tree that CRIU has restored; 0: it does not say."""
    try:
        with open(f"{directory}/{PID_FILE}", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read())
    except (OSError, ValueError):
        return 0


def forget_root(directory: str) -> None:
    """What an earlier try has left says nothing about this one. Raises OSError if it cannot be removed."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{directory}/{PID_FILE}")  # noqa: PTH108


def is_child(pid: int) -> bool:
    """Whether a process is a child of this one, which may have exited and is not collected yet."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def program_of(pid: int) -> str:
    """The file that a process executes; empty if it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115
    except OSError:
        return ""


def now_ticks() -> int:
    """The start time of a process that starts now, at least."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def restoring(criu: int, restore: dict[str, object], since: int, boot: str) -> dict[str, object]:
    """What is written down of a restore before CRIU is executed, and then again with its pid: the next launcher ends it."""
    return {"restoring": criu, "root": restore["root"], "start": since, "boot": boot}


def restored_by(criu: int, root: int, since: int) -> list[int]:
    """What lives of a restore: CRIU, and what it has restored, which is in the session of CRIU or in that of the root.

    `since`: the start time of CRIU. What is older has its number from before.
    """
    found = []
    for pid in pids():
        fields = stat_fields(pid)
        if len(fields) > 19 and fields[0] not in "ZX" and int(fields[3]) in (criu, root) and int(fields[19]) >= since:
            found.append(pid)
    return found


def kill_restored(criu: int, root: int, since: int) -> None:
    for pid in restored_by(criu, root, since):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def abandon(known: dict[str, object], directory: str) -> bool:
    """Ends a restore of a launcher that died meanwhile, by what it has written down. Returns whether nothing of it lives."""
    criu, root, since = (int(str(known[name])) for name in ("restoring", "root", "start"))
    criu = criu or find_leader(directory)
    end = time.monotonic() + _DEATH
    while restored_by(criu, root, since):
        if time.monotonic() > end:
            return False
        kill_restored(criu, root, since)  # again: what is being made meanwhile is found by the next look
        time.sleep(0.01)
    return True
