"""The launcher's children: collects their exit status, ends what they leave behind, and records the end of each run.

The launcher imports this, and so it imports next to nothing.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable

from node_agent.processes.launcher.spawn import EXIT_FILE, may_save, write_exit
from node_agent.processes.process_groups import boot_id, kill_group, kill_rest, rest_of, start_ticks

TYPE_CHECKING = False  # as typing has it, which is not loaded here
if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Protocol

    class Restores(Protocol):
        """Runs that are restored from dumps; see `restoring`."""

        @property
        def runs(self) -> Container[Run]: ...
        def kill(self) -> None: ...
        def handle_failure(self, run: Run) -> None: ...
        def handle_exit(self, run: Run, code: int, signum: int) -> None: ...
        def stranger_ended(self, pid: int, end: tuple[int, int]) -> None: ...


AGAIN = 0.5
"""Seconds until an action that failed because resources were exhausted is tried again."""
_SET_CHILD_SUBREAPER = 36
"""The number of this prctl."""


class Run:
    """A run that this launcher started and that has not ended."""

    __slots__ = (
        *("code", "directory", "group", "key", "over", "pid", "program", "restored"),
        *("saves", "signal", "start", "watched"),
    )

    def __init__(self, key: str, pid: int, directory: str, group: str, program: str = "") -> None:
        self.key, self.pid, self.directory, self.group = key, pid, directory, group
        self.program = program
        """The file that was executed."""
        self.start = 0
        """Set once the run is reported as running."""
        self.code = self.signal = 0
        self.watched = 0
        """Number of remaining processes that are being waited for."""
        self.saves = False
        """The processes that its leader left behind have the rest of the grace period, and are not killed from here."""
        self.over = False
        """Nothing of it is left, and its exit file has yet to be written."""
        self.restored: bool | None = None
        """Whether CRIU restored it; None: no restore was requested."""


class Children:
    """`tell_end` is called when a run has ended, once its exit file is there or could not be written."""

    def __init__(self, selector: selectors.BaseSelector, tell_end: Callable[[Run], None]) -> None:
        self.selector = selector
        self.tell_end = tell_end
        self.restores: Restores
        """Set by the launcher before there are any children."""
        self.boot = boot_id()
        self.runs: dict[str, Run] = {}
        self.by_pid: dict[int, Run] = {}
        """Runs whose leader is not collected."""
        self.unsettled: list[Run] = []
        """Runs for which an action failed and is tried again."""
        self.again_at = 0.0
        self.wakeup, wakeup = socket.socketpair()
        self.wakeup.setblocking(False)
        wakeup.setblocking(False)
        self._keep = wakeup
        signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        selector.register(self.wakeup, selectors.EVENT_READ, self.collect)

    def add(self, run: Run) -> None:
        self.runs[run.key] = self.by_pid[run.pid] = run

    def kill(self) -> None:
        self.restores.kill()
        for pid in self.by_pid:  # the others' leaders are gone, and their pids may be strangers'
            kill_group(pid)
        for run in self.runs.values():
            if run.saves and not run.over:
                run.saves = False
                kill_rest(run.pid, run.start, run.group)

    def retry(self) -> None:
        """Retry what could not be done, if it is time."""
        if self.unsettled and time.monotonic() >= self.again_at:
            self.again_at = time.monotonic() + AGAIN
            runs, self.unsettled = self.unsettled, []
            for run in runs:
                self.keep(run) if run.over else self.settle(run)

    def collect(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.wakeup.recv(4096):
                pass
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            run = self.by_pid.pop(ended.si_pid, None)
            end = (ended.si_status, 0) if ended.si_code == os.CLD_EXITED else (0, ended.si_status)
            if run is not None and run in self.restores.runs:
                if end != (0, 0):
                    self.restores.handle_failure(run)
                os.waitpid(ended.si_pid, 0)
                self.restores.handle_exit(run, *end)
                continue
            if run is not None:
                run.code, run.signal = end
                run.saves = signal.SIGTERM in (run.signal, run.code - 128) and may_save(run.directory, [run.pid])
            if run is not None and not run.saves:
                # Not collected yet, it keeps its pid, so this cannot hit a stranger's group. The group of an adopted process is
                # spared: a daemon may live on in it.
                kill_group(ended.si_pid)
            os.waitpid(ended.si_pid, 0)
            if run is not None:
                self.settle(run)
            else:
                self.restores.stranger_ended(ended.si_pid, end)

    def settle(self, run: Run) -> None:
        """Handle a run whose leader is gone. The run has ended as soon as nothing of its groups is left.

        If the stop signal ended the leader, as it ends a shell immediately, what the leader has started may be saving its work:
        that has until the agent kills it.
        """
        try:
            for pid in self.find_rest(run):
                with contextlib.suppress(ProcessLookupError):
                    self.watch(run, os.pidfd_open(pid))
        except OSError:  # no descriptor is left; the end of a watched member leads here again
            if run.watched == 0:
                self.unsettled.append(run)
            return
        if run.watched == 0:
            self.finish(run)

    def watch(self, run: Run, descriptor: int) -> None:
        """Count the end of a process (its descriptor). Raises OSError if no more processes can be watched now."""
        try:
            self.selector.register(descriptor, selectors.EVENT_READ, lambda: self.member_ended(run, descriptor))
        except OSError:
            os.close(descriptor)
            raise
        run.watched += 1

    def find_rest(self, run: Run) -> list[int]:
        """Return what is left of the run, which is killed unless it may be saving."""
        if run.saves:
            rest = rest_of(run.pid, run.start, run.group)
            if may_save(run.directory, rest):
                return rest
            run.saves = False
        return kill_rest(run.pid, run.start, run.group)

    def member_ended(self, run: Run, descriptor: int) -> None:
        self.selector.unregister(descriptor)
        os.close(descriptor)
        run.watched -= 1
        if run.watched == 0:
            self.settle(run)
        elif run.saves:  # that was perhaps the last one that saved
            with contextlib.suppress(OSError):
                self.find_rest(run)

    def finish(self, run: Run) -> None:
        run.over = True
        self.keep(run)
        self.tell_end(run)
        if run.key in self.runs:
            complain(f"{run.directory}/{EXIT_FILE} cannot be written; kept in memory until it can")

    def keep(self, run: Run) -> None:
        """Write the exit status where it outlives this program, now or later."""
        content = {"pid": run.pid, "start": run.start, "boot": self.boot, "code": run.code, "signal": run.signal}
        content["program"] = run.program
        if write_exit(run.directory, content):
            del self.runs[run.key]
        else:
            self.unsettled.append(run)


def adopt_orphans() -> None:
    """Become the parent of what processes of runs leave behind, so that it still descends from this program."""
    import ctypes  # a megabyte

    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start_of(pid: int) -> int:
    """Return the start time of a child that is not collected yet. It exists; if the kernel cannot say, ask again."""
    while True:
        try:
            return start_ticks(pid)
        except OSError:
            time.sleep(AGAIN)


def complain(text: str) -> None:
    """Write to the launcher's log, if possible."""
    with contextlib.suppress(OSError):
        os.write(2, text.rstrip().encode(errors="backslashreplace") + b"\n")
