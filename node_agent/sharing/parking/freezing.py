"""Stops all processes of a run, and lets them go on: its control group where it has one, and its process group.

A signal that was sent is no proof. The kernel is asked whether the processes have stopped.
"""

import asyncio
import os
import signal
import time
from contextlib import suppress
from typing import NamedTuple

from node_agent.processes.process_groups import (
    group_members,
    inside,
    kill_group,
    led_by,
    open_process,
    populated,
    read,
    stat_fields,
    write,
)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02


class Processes(NamedTuple):
    """Those of a run."""

    leader: int
    start_ticks: int
    control_group: str
    """Its path; empty where it has none."""

    def members(self) -> set[int]:
        found = set(group_members(self.leader)) if led_by(self.leader, self.start_ticks) else set()
        if self.control_group:
            found.update(inside(self.control_group))
        return found


async def stop(run: Processes, deadline: float) -> str:
    """Stops them; why some still run at the deadline (monotonic)."""
    frozen, pause = _freeze(run, "1"), _FIRST_PAUSE
    while True:
        if not frozen:
            _signal(run, signal.SIGSTOP)
        running = _running(run, frozen)
        if not running:
            return ""
        if time.monotonic() >= deadline:
            return f"processes {', '.join(map(str, sorted(running)))} do not stop"
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


def go_on(run: Processes) -> None:
    """Lets them run, stopped or not."""
    _freeze(run, "0")
    _signal(run, signal.SIGCONT)


def are_stopped(run: Processes) -> bool:
    return not _running(run, bool(run.control_group) and b"frozen 1" in read(f"{run.control_group}/cgroup.events"))


def _freeze(run: Processes, value: str) -> bool:
    """Whether the kernel freezes the control group; what is forked there meanwhile is frozen as well."""
    if not populated(run.control_group):
        return False
    try:
        write(f"{run.control_group}/cgroup.freeze", value)
    except OSError:  # before Linux 5.2
        return False
    return True


def _running(run: Processes, frozen: bool) -> set[int]:
    """Those that have not stopped. The state of a frozen process does not tell that it is frozen, its group does."""
    outside = run.members()
    if frozen:
        held = set(inside(run.control_group))
        if b"frozen 1" not in read(f"{run.control_group}/cgroup.events"):
            return held
        outside -= held
    return {pid for pid in outside if (fields := stat_fields(pid)) and fields[0] not in "TtZX"}


def _signal(run: Processes, signum: int) -> None:
    if led_by(run.leader, run.start_ticks):
        kill_group(run.leader, signum)
    if run.control_group:
        for pid in inside(run.control_group):
            if (descriptor := open_process(pid)) is not None:
                with suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(descriptor, signum)
                os.close(descriptor)
