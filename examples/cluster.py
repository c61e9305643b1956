"""A cluster on this machine: a scheduler with an embedded PostgreSQL, and agents with simulated devices, each a process.
Or several schedulers on one PostgreSQL that is there already.

For the demo, `make serve`, benchmarks and tests. Nothing is left behind: `close` stops the jobs, the agents, the scheduler
and its database, also when it is called in the middle of a start.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

START_LIMIT = 60.0
"""Seconds that a first start may take: it makes a database."""
STOP_LIMIT = 20.0


class ClusterError(Exception):
    """A process of the cluster did not do what it should; the message ends with the end of its log."""


class Process(Protocol):
    """The part of `subprocess.Popen` that is used here."""

    pid: int

    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


Start = Callable[[Sequence[str], Path, Mapping[str, str]], Process]
"""Starts `python -m <arguments>` with its output at the end of a file, and an environment."""


def start_module(arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the program that started the cluster, which then closes it
        )


class Cluster:
    """Processes under one folder, by name: `scheduler`, additional schedulers by names of their own, and agents by node name.

    `folder` contains everything: database, agents' states, checkpoints (shared by the agents), logs. With `database` (a URL),
    that database is used instead. While it polls for a condition, it calls `pause` in between, which may raise to give up.
    `start` may be a faster way to start processes.
    """

    def __init__(
        self,
        folder: Path,
        scheduler_flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        pause: Callable[[float], None] = time.sleep,
        database: str | None = None,
        start: Start = start_module,
    ) -> None:
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.checkpoints = self.folder / "checkpoints"
        self.scheduler_flags = list(scheduler_flags)
        self.processes: dict[str, Process] = {}
        self.agents: dict[str, list[str]] = {}
        self.listen = "127.0.0.1:0"
        self.standbys: dict[str, str] = {}
        """Name -> HOST:PORT of each scheduler but the first."""
        self.database = ["--embedded", str(self.folder / "db")] if database is None else ["--database", database]
        self._environment = {**os.environ, **(environment or {})}
        self._pause = pause
        self._start = start

    # ---- starting ------------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """HOST:PORT of the scheduler, or of each of them, with commas; the same over their restarts."""
        return ",".join((self.listen, *self.standbys.values()))

    def start_scheduler(self) -> None:
        """Starts the scheduler and waits until it leads. Raises ClusterError."""
        file = self.folder / "address"
        file.unlink(missing_ok=True)
        self._serve("scheduler", "--listen", self.listen, "--address-file", str(file))
        self._wait_for(file.exists, "scheduler")
        self.listen = file.read_text().strip()

    def start_standby(self, name: str = "standby") -> None:
        """Starts another scheduler and waits until it serves: as a standby, unless no scheduler leads.

        This also restarts a scheduler that was killed, including the first one.
        """
        address = self.listen if name == "scheduler" else self.standbys.setdefault(name, f"127.0.0.1:{free_port()}")
        self._serve(name, "--listen", address)
        self._wait_for(lambda: _listens(address), name)

    def _serve(self, name: str, *flags: str) -> None:
        self._spawn(name, ["scheduler_service", "serve", *self.database, *flags, *self.scheduler_flags])

    def start_agent(self, node: str, devices: str, *flags: str) -> None:
        """Starts a node's agent; does not wait until it is connected."""
        self.agents[node] = ["--devices", devices, *flags]
        self.restart_agent(node)

    def restart_agent(self, node: str) -> None:
        """Starts the agent of a node again, as it was started first."""
        state = ["--state", str(self.folder / node), "--checkpoints", str(self.checkpoints)]
        where = ["--scheduler", self.address, "--node", node]
        root = ["--allow-root"] if os.geteuid() == 0 else []
        self._spawn(node, ["node_agent", "run", *where, *state, *root, *self.agents[node], "--stop-jobs-on-exit"])

    def _spawn(self, name: str, arguments: list[str]) -> None:
        self.processes[name] = self._start(arguments, self.folder / f"{name}.log", self._environment)

    def _wait_for(self, started: Callable[[], bool], name: str) -> None:
        limit = time.monotonic() + START_LIMIT
        while not started():
            if self.processes[name].poll() is not None:
                raise ClusterError(f"the {name} ended with status {self.processes[name].returncode}:\n{self.tail(name)}")
            if time.monotonic() > limit:
                raise ClusterError(f"the {name} did not start within {START_LIMIT:.0f} s:\n{self.tail(name)}")
            self._pause(0.02)

    # ---- stopping ------------------------------------------------------------------------------------------------------

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Sends a process a signal; after SIGKILL it waits until the process is gone."""
        process = self.processes[name]
        process.send_signal(number)
        if number == signal.SIGKILL:
            process.wait(STOP_LIMIT)

    def close(self) -> None:
        """Stops everything: agents with their jobs first. Safe to repeat."""
        agents = [process for name, process in self.processes.items() if name in self.agents]
        self._stop(agents)
        self._stop([process for process in self.processes.values() if process not in agents])
        self.processes.clear()

    @staticmethod
    def _stop(processes: Sequence[Process]) -> None:
        for process in processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in processes:
            try:
                process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def tail(self, name: str, lines: int = 20) -> str:
        """The end of a process's log."""
        log = self.folder / f"{name}.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
