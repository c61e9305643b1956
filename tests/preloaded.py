"""Schedulers, agents and simulators that start in a moment: forked from a process that has imported them, and has run nothing.

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
from contextlib import suppress
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path
from signal import SIGKILL, SIGTERM
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
_PROGRAMS = {
    "scheduler_service": ("ebb-scheduler", "scheduler_service.commands.main"),
    "scheduler_service.sim": ("ebb-sim", "scheduler_service.sim.cli"),
    "node_agent": ("ebb-agent", "node_agent.commands.main"),
}
_context = multiprocessing.get_context("forkserver")


def start(arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> "Preloaded":
    """`python -m <arguments>`, with its output at the end of a file."""
    _ensure_server()
    # It works where its log is: who looks for what is left of a test finds it by that.
    return Preloaded(arguments, (log, log), environment, log.parent)


def run(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], timeout: float
) -> "subprocess.CompletedProcess[str]":
    """`python -m <arguments>` to its end, and what it said."""
    _ensure_server()
    with TemporaryDirectory() as folder:
        streams = Path(folder) / "stdout", Path(folder) / "stderr"
        process = Preloaded(arguments, streams, environment, cwd)
        try:
            status = process.wait(timeout)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, status, *(stream.read_text() for stream in streams))


class Preloaded:
    """A process, used as one of `subprocess.Popen`."""

    def __init__(self, arguments: Sequence[str], streams: tuple[Path, Path], environment: Mapping[str, str], cwd: Path) -> None:
        self.args = list(arguments)
        self._process = _context.Process(target=_run, args=(self.args, streams, dict(environment), cwd))
        self._process.start()
        atexit.register(self._forgotten)
        assert self._process.pid is not None
        self.pid = self._process.pid

    def _forgotten(self) -> None:
        """A test process that ends waits for nobody, as with a Popen: what it has left behind goes with it."""
        self.kill()
        self._process.join()

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
            with suppress(ProcessLookupError):  # it has ended, and the news is on its way
                os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(SIGTERM)

    def kill(self) -> None:
        self.send_signal(SIGKILL)


def _ensure_server() -> None:
    """It finds what it imports where this process does. NumPy would have threads, which a process that forks must not."""
    _context.set_forkserver_preload([f"{__package__}.preload"])
    before = os.environ.copy()
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "proto", ROOT / "third_party")))
    os.environ |= {"PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"}
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ |= before


def _run(arguments: Sequence[str], streams: tuple[Path, Path], environment: Mapping[str, str], cwd: Path) -> None:
    """In the new process."""
    program, *rest = arguments
    assert f"{__package__}.preload" in sys.modules, "it was not imported beforehand"
    os.environ.clear()
    os.environ |= environment
    os.setsid()
    os.chdir(cwd)
    for number, path in enumerate(streams, 1):
        output = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(output, number)
        os.close(output)
    name, module = _PROGRAMS[program]
    try:
        import_module(module).main(rest, prog_name=name)
    finally:
        atexit._run_exitfuncs()
