"""Processes that have imported torch already: forked from one that has, and has run nothing of it.

`Forked` is used as a Popen. The process that forks is this module, run by its name: it reads a line for each process, and
writes one when the process has begun and one when it has ended.
"""

import atexit
import contextlib
import json
import os
import runpy
import select
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.harness import ROOT


class Forked:
    """A process that runs a Python file."""

    def __init__(self, server: "Server", script: Path, environment: Mapping[str, str], log: Path) -> None:
        self.args = [str(script)]
        self._ended = threading.Event()
        self.returncode: int | None = None
        self.pid = server.begin(self, {"script": str(script), "environment": dict(environment), "log": str(log)})

    def end(self, status: int) -> None:
        self.returncode = status
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:  # else its number may be that of another
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(9)


class Server:
    """Ends with its `close`, and what it has forked ends with it."""

    def __init__(self, *modules: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.sdk.forked", *modules]
        self._process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        atexit.register(self.close)
        self._begun = threading.Semaphore(0)
        self._last = 0
        self._running: dict[int, Forked] = {}
        self._lock = threading.Lock()
        self._beginning: Forked | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def begin(self, process: Forked, request: dict[str, object]) -> int:
        assert self._process.stdin is not None
        with self._lock:
            self._beginning = process
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            assert self._begun.acquire(timeout=60), "the server that forks processes has ended"
            return self._last

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            pid, *status = map(int, line.split())
            if status:
                self._running.pop(pid).end(status[0])
            else:
                assert self._beginning is not None
                self._running[pid] = self._beginning
                self._last = pid
                self._begun.release()

    def close(self) -> None:
        atexit.unregister(self.close)
        for process in list(self._running.values()):
            process.kill()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._reader.join(60)
        self._process.stdout.close()


def serve(modules: list[str]) -> None:
    for module in modules:
        __import__(module)
    running: set[int] = set()
    while True:
        while running and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            running.discard(ended[0])
            sys.stdout.write(f"{ended[0]} {os.waitstatus_to_exitcode(ended[1])}\n")
            sys.stdout.flush()
        if not select.select([0], [], [], 0.005 if running else None)[0]:
            continue
        if not (line := read_line()):
            return
        request = json.loads(line)
        if (pid := os.fork()) == 0:
            become(request["script"], request["environment"], request["log"])
        running.add(pid)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def read_line() -> bytes:
    """Of standard input, and not more, as `select` knows nothing of what Python has read ahead."""
    line = b""
    while not line.endswith(b"\n") and (piece := os.read(0, 1)):
        line += piece
    return line


def become(script: str, environment: dict[str, str], log: str) -> None:
    os.setsid()
    os.environ |= environment
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for number in (1, 2):
        os.dup2(output, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    status = 1
    try:
        sys.argv = [script]
        runpy.run_path(script, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1:])
