"""Runs that CRIU restores from a dump, instead of executing their command.

CRIU makes the root of the dumped tree a sibling of itself, and so a child of the launcher, and exits: from then on the run is
that process. Until then the run is CRIU, and is not reported as begun. If CRIU fails, the launcher executes the command of the
run.

The launcher imports this, and so it imports next to nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from node_agent.processes import job_files
from node_agent.processes.launcher.children import start_of
from node_agent.processes.launcher.process_file import open_mark, rewrite
from node_agent.processes.process_groups import find_leader, kill_group, pids, start_ticks, stat_fields

TYPE_CHECKING = False  # as typing has it, which is not loaded here
if TYPE_CHECKING:
    from node_agent.processes.launcher.children import Children, Run

Request = dict[str, object]

PID_FILE = "restored.pid"
"""File in the directory of a run to which CRIU writes the root of the restored tree."""
_PID_LIMIT = 32
"""Bytes."""
_DEATH = 5.0
"""Seconds that killed processes may take to disappear."""


class Restores:
    """The restores of one launcher. `begin` executes the command of a run that CRIU has not restored, given its request and its
    open process file; `tell` is called with a run that CRIU has restored, and its open process file. `quitting` says whether
    nothing may begin any more."""

    def __init__(
        self,
        children: Children,
        begin: Callable[[Request, int], None],
        tell: Callable[[Run, int], None],
        quitting: Callable[[], bool],
    ) -> None:
        self._children = children
        self._begin = begin
        self._tell = tell
        self._quitting = quitting
        self.runs: dict[Run, tuple[Request, float]] = {}
        """Runs whose process is CRIU, each with its request, and the time at which CRIU is killed if it has not restored it."""
        self._unclaimed: dict[int, tuple[int, int]] = {}
        """Children of no run that have ended meanwhile: one may be a root that did not live long."""

    def is_ready(self, directory: str, restore: Request) -> bool:
        """Record in the directory of a run that CRIU is going to be executed."""
        try:
            forget_root(directory)
        except OSError:
            return False
        return rewrite(directory, self._recovery_record(0, restore, now_ticks()))

    def track_criu(self, run: Run, request: Request, restore: Request) -> None:
        """Track CRIU as the process of a run that it restores."""
        self.runs[run] = request, time.monotonic() + float(str(restore["limit"]))
        run.start = start_of(run.pid)
        if not rewrite(run.directory, self._recovery_record(run.pid, restore, run.start)):
            self._kill(run)  # a launcher after this one would not know what to end

    def handle_exit(self, run: Run, code: int, signum: int) -> None:
        """Handle the exit of CRIU, which is collected. The run is what it has restored, or else its command."""
        request, _ = self.runs.pop(run)
        root = restored_root(run.directory) if code == signum == 0 else 0
        if root and (root in self._unclaimed or is_child(root)):
            self._adopt(run, root)
        elif self._quitting():
            run.signal = signal.SIGKILL
            self._children.settle(run)
        else:
            del self._children.runs[run.key]
            self._begin(request, open_mark(run.directory))
        if not self.runs:
            self._unclaimed.clear()

    def handle_failure(self, run: Run) -> None:
        """Clean up after CRIU has failed. It is not collected yet, so its pid is its own. It has ended what it had begun,
        unless it was killed itself."""
        self._kill(run)

    def stranger_ended(self, pid: int, end: tuple[int, int]) -> None:
        """Note the end of a child of no run."""
        if self.runs:
            self._unclaimed[pid] = end

    def limit(self) -> None:
        """Kill each restore that takes too long."""
        for run, (_, until) in self.runs.items():
            if time.monotonic() >= until:
                self._kill(run)

    def kill(self) -> None:
        for run in self.runs:
            self._kill(run)

    def _adopt(self, run: Run, root: int) -> None:
        run.pid, run.restored, run.program = root, True, program_of(root)
        end = self._unclaimed.pop(root, None)
        if end is None:
            self._children.by_pid[root] = run
        self._tell(run, open_mark(run.directory))
        if end is not None:
            run.code, run.signal = end
            self._children.settle(run)

    def _kill(self, run: Run) -> None:
        request, _ = self.runs[run]
        kill_group(run.pid)
        kill_restored(run.pid, int(str(request["restore"]["root"])), run.start)  # type: ignore[index]

    def _recovery_record(self, criu: int, restore: Request, since: int) -> Request:
        """Return what is recorded before CRIU is executed, and again with its pid, so that the next launcher can end it."""
        return {"restoring": criu, "root": restore["root"], "start": since, "boot": self._children.boot}


def restored_root(directory: str) -> int:
    """Return the root of the tree that CRIU has restored; 0: it does not say."""
    try:
        return int(job_files.read_file(directory, PID_FILE, _PID_LIMIT).data or b"")
    except ValueError:
        return 0


def forget_root(directory: str) -> None:
    """Remove the result of an earlier try. Raises OSError if it cannot be removed."""
    job_files.remove_file(directory, PID_FILE)


def is_child(pid: int) -> bool:
    """Whether a process is a child of this one, which may have exited and is not collected yet."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def program_of(pid: int) -> str:
    """Return the file that a process executes; empty if it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115
    except OSError:
        return ""


def now_ticks() -> int:
    """Return the lowest start time of a process that starts now."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def find_restored(criu: int, root: int, since: int) -> list[int]:
    """Return the live processes of a restore: CRIU, and what it has restored, which is in the session of CRIU or of the root.

    `since`: the start time of CRIU. Older processes had their pids before, and so had those in their sessions.
    """
    sessions = {criu, root} if start_ticks(root) >= since else {criu}
    found = []
    for pid in pids():
        fields = stat_fields(pid)
        if len(fields) > 19 and fields[0] not in "ZX" and int(fields[3]) in sessions and int(fields[19]) >= since:
            found.append(pid)
    return found


def kill_restored(criu: int, root: int, since: int) -> None:
    for pid in find_restored(criu, root, since):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def abandon(known: dict[str, object], directory: str) -> bool:
    """End a restore of a launcher that died meanwhile, by its record. Return whether nothing of it lives."""
    criu, root, since = (int(str(known[name])) for name in ("restoring", "root", "start"))
    if criu and start_ticks(criu) not in (0, since):
        criu = 0  # its pid belongs to another process by now
    else:
        criu = criu or find_leader(directory)
    end = time.monotonic() + _DEATH
    while find_restored(criu, root, since):
        if time.monotonic() > end:
            return False
        kill_restored(criu, root, since)  # repeatedly: the next look finds what is being made meanwhile
        time.sleep(0.01)
    return True
