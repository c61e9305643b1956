"""Schedulers and agents that start in a moment: forked from a process that has imported them, and has run nothing.

Python imports such a program anew for a second or two, which is more than most tests take, and says nothing new the second
time. A process of these is as real as any: it has its own signals, locks and sockets, leads a session, and can be killed at
any moment. It has no command line and no environment in /proc; where these matter, and that the commands start at all, is
for tests that start `python -m`, as those do that use `Cluster` by itself.
"""

import atexit
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path
from signal import SIGKILL, SIGTERM

ROOT = Path(__file__).parents[1]
_PROGRAMS = {"scheduler_service": "scheduler_service.cli", "node_agent": "node_agent.cli"}
_context = multiprocessing.get_context("forkserver")


def start(arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> "Preloaded":
    """`python -m <arguments>`, with its output at the end of a file."""
    _ensure_server()
    return Preloaded(arguments, log, environment)


class Preloaded:
    """A process, used as one of `subprocess.Popen`."""

    def __init__(self, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.args = list(arguments)
        self._process = _context.Process(target=_run, args=(self.args, str(log), dict(environment)))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (status := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(SIGTERM)

    def kill(self) -> None:
        self.send_signal(SIGKILL)


def _ensure_server() -> None:
    """The server finds what it imports where this process does, and imports it when it starts."""
    _context.set_forkserver_preload([f"{__package__}.preload"])
    before = os.environ.copy()
    os.environ |= {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "proto", ROOT / "third_party")))}
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ |= before


def _run(arguments: Sequence[str], log: str, environment: Mapping[str, str]) -> None:
    """In the new process."""
    program, *rest = arguments
    assert f"{__package__}.preload" in sys.modules, "it was not imported beforehand"
    os.environ.clear()
    os.environ |= environment
    os.setsid()
    os.chdir(Path(log).parent)  # who looks for what is left of a test finds it by that
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    try:
        import_module(_PROGRAMS[program]).main(rest, prog_name=program)
    finally:
        atexit._run_exitfuncs()
