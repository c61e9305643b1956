"""Processes and process groups, according to the kernel. The launcher also loads this, so it imports next to nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Collection

_STAT_LENGTH = 4096
"""More bytes than /proc/<pid>/stat has: some fifty numbers and a short name."""
SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
"""Errors for resources that are exhausted now and may be available again in a moment."""


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat from the state on (state, ppid, pgrp, session, ...); empty if it has ended.

    Raises OSError if no descriptor or memory is left to find out.
    """
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(descriptor, _STAT_LENGTH)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in SCARCE:
            raise
        return []
    return text.rpartition(b")")[2].decode("ascii", "replace").split()


def start_ticks(pid: int) -> int:
    """Return the start time in clock ticks since boot; 0 if the process has ended. Tells it from a later owner of its pid."""
    fields = stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def boot_id() -> str:
    """Return an ID of the boot, with that of the first process: pids and start times of another boot mean nothing.

    A container that is started again keeps its kernel's boot, and has none of the processes that ran in it before.
    """
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
        return f"{file.read().strip()}/{start_ticks(1)}"


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def group_members(group: int) -> list[int]:
    """Return the processes of a group that still run; zombies do not count."""
    members = []
    for pid in pids():
        fields = stat_fields(pid)
        if len(fields) > 2 and fields[2] == str(group) and fields[0] not in "ZX":
            members.append(pid)
    return members


def kill_group(group: int, signum: int = signal.SIGKILL) -> bool:
    """Signal a process group; return whether it (still) exists."""
    if group <= 1:  # to the kernel, 0 is our own group, and 1 means all processes
        return False
    try:
        os.killpg(group, signum)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # a process that changed its user; the others were signaled
    return True


def terminate_group(group: int, savers: Collection[int]) -> None:
    """Send SIGTERM to a process group, except to descendants of one of these `savers` in it that are not savers themselves.

    Otherwise the workers that load a training's data would end before it has saved, and it would fail for that.
    """
    parents = {pid: int(fields[1]) for pid in group_members(group) if len(fields := stat_fields(pid)) > 1}
    there = parents.keys() & set(savers)
    if not there:
        kill_group(group, signal.SIGTERM)
        return
    for pid, above in parents.items():
        while above in parents and above not in there:
            above = parents[above]
        if (pid in there or above not in there) and (descriptor := open_process(pid)) is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if stat_fields(pid)[2:3] == [str(group)]:  # it is the one that was found
                    signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            os.close(descriptor)


def handles(pid: int, signum: int) -> bool:
    """Whether a process has a handler of its own for a signal."""
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    return False


def signal_handlers(members: Collection[int], signum: int) -> int:
    """Send a signal to those of these processes that handle it; return how many got it.

    Descendants of such a process get none: workers inherit its handler, and would save as well. A process without a handler
    gets none either: most signals would end it.
    """
    parents = {pid: int(fields[1]) for pid in members if len(fields := stat_fields(pid)) > 1}
    handling = {pid for pid in parents if handles(pid, signum)}
    sent = 0
    for pid in handling:
        above = parents[pid]
        while above in parents and above not in handling:
            above = parents[above]
        if above not in handling and (descriptor := open_process(pid)) is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if handles(pid, signum):  # it is the one that was found
                    signal.pidfd_send_signal(descriptor, signum)
                    sent += 1
            os.close(descriptor)
    return sent


def find_leader(directory: str) -> int:
    """Return the leader of the run with this directory, searched among all processes; 0 if no process is.

    Its launcher has died, so it is an orphan, and has the parent that the caller, another launcher, has; or the first process.
    """
    needle = os.fsencode(f"\0EBB_RUN_DIR={directory}\0")
    reapers = {"1", str(os.getppid())}
    for pid in pids():
        fields = stat_fields(pid)
        if len(fields) > 3 and fields[2] == fields[3] == str(pid) and fields[1] in reapers:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
                if needle in b"\0" + file.read() + b"\0":
                    return pid
    return 0


# Control groups (cgroup v2), by the paths of their directories. The path "" means no group, with nothing in it.


def is_populated(group: str) -> bool:
    """Whether a process lives in this control group, or in one inside it."""
    return bool(group) and b"populated 1" in read(f"{group}/cgroup.events")


def processes_inside(group: str) -> list[int]:
    """Return the processes of a control group, and of those inside it, that still run."""
    found = [int(pid) for pid in read(f"{group}/cgroup.procs").split()]
    with contextlib.suppress(FileNotFoundError):
        if os.stat(group).st_nlink > 2:  # noqa: PTH116 (rarely; listing it costs more)
            for entry in os.scandir(group):
                if entry.is_dir(follow_symlinks=False):
                    found += processes_inside(entry.path)
    return found


def kill_inside(group: str) -> None:
    """Kill all processes of a control group, including those that are just being forked there."""
    try:
        write(f"{group}/cgroup.kill", "1")
    except OSError:  # before Linux 5.14, or nothing is there
        with contextlib.suppress(OSError):  # before 5.2
            write(f"{group}/cgroup.freeze", "1")  # none of them forks any more, and SIGKILL still ends them
        targets = {pid: descriptor for pid in processes_inside(group) if (descriptor := open_process(pid)) is not None}
        remaining = set(processes_inside(group))  # those that are here now and had their pid then are no strangers
        for pid, descriptor in targets.items():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if pid in remaining:
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)
        with contextlib.suppress(OSError):
            write(f"{group}/cgroup.freeze", "0")


def is_led_by(leader: int, ticks: int) -> bool:
    """Whether the process group with this number, if it exists, is that of this leader, which may have ended.

    Its number cannot go to another process while members of its group remain.
    """
    return start_ticks(leader) in (0, ticks)


def rest_of(leader: int, ticks: int, group: str, signum: int = 0) -> list[int]:
    """Return the processes that the leader of a run left in its process group and its control group, where they may live on.

    `signum` is sent to those in the process group; SIGKILL to both.
    """
    left = set()
    if is_led_by(leader, ticks) and kill_group(leader, signum):
        left.update(group_members(leader))
    if is_populated(group):
        if signum == signal.SIGKILL:
            kill_inside(group)
        left.update(processes_inside(group))
    return list(left)


def kill_rest(leader: int, ticks: int, group: str) -> list[int]:
    """Kill what the leader of a run has left behind; return what has yet to die."""
    return rest_of(leader, ticks, group, signal.SIGKILL)


def open_process(pid: int) -> int | None:
    """Return a descriptor of a process; None if it has ended."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def read(path: str) -> bytes:
    """Return the content of a kernel file; empty if it no longer exists. Raises OSError if resources are exhausted."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return b"".join(iter(lambda: os.read(descriptor, 1 << 16), b""))
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in SCARCE:
            raise
        return b""


def write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
