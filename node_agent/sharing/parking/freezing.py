"""Stops all processes of a run, and continues them: those of its control group, if it has one, and of its process group.

Sending a signal proves nothing. The kernel is asked whether the processes have stopped.
"""

import asyncio
import os
import signal
import time
from contextlib import suppress
from typing import NamedTuple

from node_agent.processes.process_groups import (
    group_members,
    is_led_by,
    is_populated,
    kill_group,
    open_process,
    processes_inside,
    read,
    stat_fields,
    write,
)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02


class Processes(NamedTuple):
    """The processes of a run."""

    leader: int
    start_ticks: int
    control_group: str
    """Its path; empty if it has none."""

    def members(self) -> set[int]:
        found = set(group_members(self.leader)) if is_led_by(self.leader, self.start_ticks) else set()
        if self.control_group:
            found.update(processes_inside(self.control_group))
        return found


async def stop(run: Processes, deadline: float) -> str:
    """Stop the processes; return why some still run at the deadline (monotonic)."""
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
    """Continue the processes, stopped or not."""
    _freeze(run, "0")
    _signal(run, signal.SIGCONT)


def _freeze(run: Processes, value: str) -> bool:
    """Return whether the kernel freezes the control group, including processes that are forked there meanwhile."""
    if not is_populated(run.control_group):
        return False
    try:
        write(f"{run.control_group}/cgroup.freeze", value)
    except OSError:  # before Linux 5.2
        return False
    return True


def _running(run: Processes, frozen: bool) -> set[int]:
    """Return the processes that have not stopped. A frozen process's state does not show that, but its group's does."""
    outside = run.members()
    if frozen:
        held = set(processes_inside(run.control_group))
        if b"frozen 1" not in read(f"{run.control_group}/cgroup.events"):
            return held
        outside -= held
    return {pid for pid in outside if (fields := stat_fields(pid)) and fields[0] not in "TtZX"}


def _signal(run: Processes, signum: int) -> None:
    if is_led_by(run.leader, run.start_ticks):
        kill_group(run.leader, signum)
    if run.control_group:
        for pid in processes_inside(run.control_group):
            if (descriptor := open_process(pid)) is not None:
                with suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(descriptor, signum)
                os.close(descriptor)
