"""Processes and groups of them, as the kernel tells. The launcher loads this as well, so it imports next to nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Collection

_STAT_LENGTH = 4096
"""More than /proc/<pid>/stat has: some fifty numbers and a short name."""
SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
"""What is wanting, and may be there again in a moment."""


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on (state, ppid, pgrp, session, ...); empty when it is gone.

    Raises OSError where the want of a descriptor or of memory keeps it from being known.
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
    """When the process started, in clock ticks since boot; 0 when there is none. Tells it from a later owner of its pid."""
    fields = stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def boot_id() -> str:
    """Of the kernel, and of the first process: pids and start times of another boot mean nothing.

    A container that is started anew has the boot of its kernel, and nothing of what ran in it before.
    """
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
        return f"{file.read().strip()}/{start_ticks(1)}"


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def group_members(group: int) -> list[int]:
    """The processes of a group that still run; those that only wait to be collected do not count."""
    members = []
    for pid in pids():
        fields = stat_fields(pid)
        if len(fields) > 2 and fields[2] == str(group) and fields[0] not in "ZX":
            members.append(pid)
    return members


def kill_group(group: int, signum: int = signal.SIGKILL) -> bool:
    """Signals a process group; whether there is (still) one."""
    if group <= 1:  # to the kernel, 0 is our own, and 1 is everybody
        return False
    try:
        os.killpg(group, signum)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # one that changed its user; the others were signalled
    return True


def terminate_group(group: int, savers: Collection[int]) -> None:
    """SIGTERM for a process group, but not for what one of these `savers` in it has started, unless that is one itself.

    Workers that load the data of a training, say, would be gone before it has saved, and it would fail for it.
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
    """Sends a signal to those of these processes that handle it; to how many.

    What such a process has started gets none: workers inherit its handler, and would save as well. A process without a handler
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
    """The leader of the run with this directory, searched among all processes; 0 when there is none."""
    needle = os.fsencode(f"\0EBB_RUN_DIR={directory}\0")
    for pid in pids():
        fields = stat_fields(pid)
        if len(fields) > 3 and fields[2] == fields[3] == str(pid):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
                if needle in b"\0" + file.read() + b"\0":
                    return pid
    return 0


# Control groups (cgroup v2), by the paths of their directories. Without one ("") there is nothing in it.


def populated(group: str) -> bool:
    """Whether a process lives in this control group, or in one inside it."""
    return bool(group) and b"populated 1" in read(f"{group}/cgroup.events")


def inside(group: str) -> list[int]:
    """The processes of a control group, and of those inside it, that still run."""
    found = [int(pid) for pid in read(f"{group}/cgroup.procs").split()]
    with contextlib.suppress(FileNotFoundError):
        if os.stat(group).st_nlink > 2:  # noqa: PTH116 (seldom; to list it costs more)
            for entry in os.scandir(group):
                if entry.is_dir(follow_symlinks=False):
                    found += inside(entry.path)
    return found


def kill_inside(group: str) -> None:
    """Kills all that is in a control group, what is just being forked there included."""
    try:
        write(f"{group}/cgroup.kill", "1")
    except OSError:  # before Linux 5.14, or nothing is there
        with contextlib.suppress(OSError):  # before 5.2
            write(f"{group}/cgroup.freeze", "1")  # none of them forks any more, and none is too frozen to die
        targets = {pid: descriptor for pid in inside(group) if (descriptor := open_process(pid)) is not None}
        remaining = set(inside(group))  # what is here now, and had its number then, is no stranger
        for pid, descriptor in targets.items():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if pid in remaining:
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)
        with contextlib.suppress(OSError):
            write(f"{group}/cgroup.freeze", "0")


def led_by(leader: int, ticks: int) -> bool:
    """Whether a process group with this number, if there is one, is that of this leader, which may be gone.

    Its number cannot go to another process while members of its group remain.
    """
    return start_ticks(leader) in (0, ticks)


def rest_of(leader: int, ticks: int, group: str, signum: int = 0) -> list[int]:
    """What the leader of a run has left behind in its process group and its control group, where it may live on for days.

    `signum` is sent to the former; SIGKILL to both.
    """
    left = set()
    if led_by(leader, ticks) and kill_group(leader, signum):
        left.update(group_members(leader))
    if populated(group):
        if signum == signal.SIGKILL:
            kill_inside(group)
        left.update(inside(group))
    return list(left)


def kill_rest(leader: int, ticks: int, group: str) -> list[int]:
    """Kills what the leader of a run has left behind; what has yet to die."""
    return rest_of(leader, ticks, group, signal.SIGKILL)


def open_process(pid: int) -> int | None:
    """A descriptor of a process; None where it is gone."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def read(path: str) -> bytes:
    """The content of a file of the kernel's; empty where it is not there any more. Raises OSError in want of something."""
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
