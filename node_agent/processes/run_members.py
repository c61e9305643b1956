"""Decides which processes belong to a run, for every part of the agent that asks.

A process belongs to a run if one of these is true:

* It is in the control group of the run.
* It, or an ancestor, is the process that the launcher recorded for the run (its pid and its start time), or is in the session
  or the process group that this process leads.
* Its environment names the run (EBB_RUN_DIR), and it descends from the launcher of the run's state directory. The launcher
  adopts what the processes of its runs leave behind. If that launcher has died, init has adopted them: then each process from
  this one up to a child of init must name the run.

An environment alone proves nothing: anybody can set a variable.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TypeVar

from node_agent.processes.process_groups import pids, read, stat_fields
from node_agent.run_state.model import Process

T = TypeVar("T")

_ANCESTORS = 64
"""Generations that are checked."""
_LAUNCHER = b"/node_agent/processes/launcher/launcher.py"
_TRIES, _PAUSE = 3, 0.005
"""A launcher leaves its directory for a moment while it starts a run: looks at it, and seconds between them."""


class Kernel:
    """The source of facts about processes: /proc, or a table in tests."""

    def stat(self, pid: int) -> list[str]:
        """Return the fields from the state on (state, ppid, pgrp, session, ...); empty if the process has ended."""
        return stat_fields(pid)

    def environment(self, pid: int) -> bytes:
        return read(f"/proc/{pid}/environ")

    def command(self, pid: int) -> list[bytes]:
        return read(f"/proc/{pid}/cmdline").split(b"\0")

    def control_group(self, pid: int) -> str:
        return os.fsdecode(read(f"/proc/{pid}/cgroup")).strip()

    def pids(self) -> list[int]:
        return pids()

    def works_for(self, launcher: int, run_directory: str, pid: int) -> bool:
        """Whether a launcher works in the state directory of a run, given as process `pid` sees it, perhaps in a container.

        A state directory that was moved is known by the folder of the spool. One that was removed cannot be compared.
        """
        state, _, spool = os.path.dirname(run_directory).rpartition("/runs/")  # noqa: PTH120
        for _ in range(_TRIES):
            try:
                at = os.stat(f"/proc/{launcher}/cwd")  # noqa: PTH116
                if at.st_nlink == 0 or os.path.isdir(f"/proc/{launcher}/cwd/runs/{spool}"):  # noqa: PTH112
                    return True
                named = os.stat(f"/proc/{pid}/root{state}")  # noqa: PTH116
                if (at.st_dev, at.st_ino) == (named.st_dev, named.st_ino):
                    return True
            except FileNotFoundError:
                return bool(self.stat(launcher))
            except OSError:
                return False
            time.sleep(_PAUSE)
        return False


class RunMembers:
    """Answers questions about processes as they are now. Raises OSError if no descriptor or memory is left to find out."""

    def __init__(self, kernel: Kernel | None = None) -> None:
        self._kernel = kernel or Kernel()
        self._known_reapers: set[int] | None = None

    def find_leader_of(self, pid: int, leaders: Mapping[int, T]) -> T | None:
        """Return the value of the leader in whose session or process group the process, or an ancestor, is; None: of none."""
        for each, fields in self._ancestors(pid):
            for number in (each, *map(int, fields[2:4])):
                if number in leaders:
                    return leaders[number]
        return None

    def is_led_by(self, pid: int, leader: Process) -> bool:
        """Whether a process descends from a recorded one, or is or descends from a member of its session or group.

        The recorded process may have ended: its number goes to no other process while members of its session remain.
        """
        fields = self._kernel.stat(leader.pid)
        if len(fields) > 19 and int(fields[19]) != leader.start_ticks:
            return False
        return self.find_leader_of(pid, {leader.pid: True}) is not None

    def find_control_group(self, pid: int, spool: str) -> str:
        """Return the run of this spool whose control group a process is in, as <spool>/<run>; empty for none."""
        for part in self._kernel.control_group(pid).split("/"):
            if part.startswith(f"{spool}."):
                return part.replace(".", "/", 1)
        return ""

    def is_started_by_launcher(self, pid: int, run_directory: str) -> bool:
        """Whether a process whose environment names this run was started by a launcher in its state directory."""
        for ancestor, _ in self._ancestors(pid):
            if ancestor != pid and self._is_launcher(ancestor):
                return self._kernel.works_for(ancestor, run_directory, pid)
        return self._is_left_by_launcher(pid, run_directory)

    def belongs_to(self, pid: int, run_directory: str, leader: Process | None) -> bool:
        """Whether a process whose environment names a run belongs to it. `leader`: the recorded process of the run."""
        return (leader is not None and self.is_led_by(pid, leader)) or self.is_started_by_launcher(pid, run_directory)

    def _is_left_by_launcher(self, pid: int, run_directory: str) -> bool:
        """Whether a launcher that has died left the process, or an ancestor that also names the run, to init."""
        needle = os.fsencode(f"\0EBB_RUN_DIR={run_directory}\0")
        for each, fields in self._ancestors(pid):
            if needle not in b"\0" + self._environment(each) + b"\0":
                return False
            parent = int(fields[1])
            if parent in self._reapers():
                above = self._kernel.stat(parent)
                return len(above) > 3 and above[3] != fields[3]  # every run has a session of its own
        return False

    def _reapers(self) -> set[int]:
        """Return the processes that adopt orphans: the first one, and those that have adopted living launchers."""
        if self._known_reapers is None:
            launchers = filter(self._is_launcher, self._kernel.pids())
            self._known_reapers = {1, *(int(fields[1]) for pid in launchers if len(fields := self._kernel.stat(pid)) > 1)}
        return self._known_reapers

    def _is_launcher(self, pid: int) -> bool:
        words = self._kernel.command(pid)
        return words[1:3] == [b"-I", b"-S"] and len(words) > 3 and words[3].endswith(_LAUNCHER)

    def _environment(self, pid: int) -> bytes:
        with suppress(OSError):  # of another user
            return self._kernel.environment(pid)
        return b""

    def _ancestors(self, pid: int) -> Iterator[tuple[int, list[str]]]:
        """Yield a process and its ancestors, with the fields of each."""
        for _ in range(_ANCESTORS):
            fields = self._kernel.stat(pid) if pid > 0 else []
            if len(fields) < 4:
                return
            yield pid, fields
            pid = int(fields[1])
