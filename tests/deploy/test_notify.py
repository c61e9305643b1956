"""Both daemons speak to systemd: real processes, and a socket that hears what systemd would."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ebb_common.notify import Notifier
from examples.cluster import Cluster
from tests.agent.conftest import AgentProcess, of_state, until
from tests.agent.conftest import scheduler as scheduler
from tests.agent.conftest import state as state
from tests.agent.fake_scheduler import FakeScheduler
from tests.store.fixtures import short_dir

LIMIT = 30.0
_NAMES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Systemd:
    """The receiving end. `address` is what a unit's process finds in NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self.heard: list[str] = []

    def wait(self, wanted: Callable[[str], bool], limit: float = LIMIT) -> str:
        """The first message from now on that is wanted."""
        end = time.monotonic() + limit
        while True:
            self._socket.settimeout(max(0.01, end - time.monotonic()))
            self.heard.append(self._socket.recv(4096).decode())
            if wanted(self.heard[-1]):
                return self.heard[-1]

    def wait_for(self, message: str) -> None:
        self.wait(lambda said: said.startswith(message))

    def all(self) -> list[str]:
        self._socket.setblocking(False)
        try:
            while True:
                self.heard.append(self._socket.recv(4096).decode())
        except BlockingIOError:
            return self.heard

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", pytest.param("abstract", marks=pytest.mark.long)])
def systemd(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Systemd]:
    """What is started meanwhile, is started as by systemd."""
    name = secrets.token_hex(8)
    made = Systemd(f"@ebb-{name}" if request.param == "abstract" else f"/tmp/ebb-{name}")
    monkeypatch.setenv("NOTIFY_SOCKET", made.address)
    yield made
    made.close()
    if not made.address.startswith("@"):
        Path(made.address).unlink()


def environment(pid: int) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in Path(f"/proc/{pid}/environ").read_text().split("\0") if pair)
    return {name: value for name, _, value in pairs}


@contextlib.contextmanager
def standing_still(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    yield
    process.send_signal(signal.SIGCONT)


# ---- the agent ---------------------------------------------------------------------------------------------------------


def test_an_agent_is_ready_without_its_scheduler(state: Path, systemd: Systemd) -> None:
    """Else systemd would kill the agents of a site whose scheduler is away, one after the other."""
    agent = AgentProcess(state, "127.0.0.1:1")
    systemd.wait_for("READY=1")
    systemd.wait(lambda said: said.startswith("STATUS=The scheduler at 127.0.0.1:1 cannot be reached"))
    assert systemd.heard.count("READY=1") == 1
    assert agent.terminate() == 0
    systemd.wait_for("STOPPING=1")
    assert systemd.heard.count("READY=1") == 1


def test_an_agent_without_a_launcher_is_not_ready(state: Path, systemd: Systemd) -> None:
    """It cannot start a job, so that systemd may try it again, and says so."""
    state.mkdir(mode=0o700)
    (state / "launcher.sock").mkdir()  # nothing can listen there
    agent = AgentProcess(state, "127.0.0.1:1")
    try:
        until(lambda: "no launcher, so no job can start" in agent.log.read_text())
        assert "READY=1" not in systemd.all()
        (state / "launcher.sock").rmdir()
        systemd.wait_for("READY=1")
    finally:
        agent.kill()


def test_where_an_agent_is_connected(state: Path, scheduler: FakeScheduler, systemd: Systemd) -> None:
    agent = AgentProcess(state, scheduler.address)
    try:
        systemd.wait_for(f"STATUS=connected to {scheduler.address} (cluster c1, epoch 1)")
        scheduler.close()
        systemd.wait(lambda said: said.startswith(f"STATUS=The scheduler at {scheduler.address}"))
    finally:
        agent.kill()


def test_neither_jobs_nor_the_launcher_speak_for_the_agent(
    state: Path, scheduler: FakeScheduler, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    agent = AgentProcess(state, scheduler.address)
    try:
        until(lambda: environment(agent.process.pid).get("NOTIFY_SOCKET") == systemd.address)  # it is being executed
        scheduler.connected()
        scheduler.start(1, "/bin/sleep", "1000")
        job = scheduler.started(1).pid
        others = [pid for pid in of_state(state) if pid not in (agent.process.pid, job)]
        assert len(others) == 1, "the launcher"
        for pid in (job, *others):
            assert not set(_NAMES) & set(environment(pid))
    finally:
        agent.kill()


def test_the_watchdog_hears_of_a_loop_that_turns_and_of_no_other(
    state: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    agent = AgentProcess(state, "127.0.0.1:1")
    try:
        for _ in range(3):
            systemd.wait_for("WATCHDOG=1")
        with standing_still(agent.process):
            systemd.all()
            with pytest.raises(TimeoutError):
                systemd.wait(lambda said: said == "WATCHDOG=1", 1.0)
        systemd.wait_for("WATCHDOG=1")
    finally:
        agent.kill()


def test_a_watchdog_of_another_process_is_left_alone(state: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "1000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    agent = AgentProcess(state, "127.0.0.1:1")
    try:
        systemd.wait(lambda said: said.startswith("STATUS=The scheduler at"))
        assert "WATCHDOG=1" not in systemd.all()
    finally:
        agent.kill()


# ---- the scheduler -----------------------------------------------------------------------------------------------------


def test_a_scheduler_serves_leads_and_stops(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "6000000")  # nobody reads while it starts, and the kernel keeps ten messages
    with short_dir() as folder, Cluster(folder / "cluster") as cluster:
        cluster.start_scheduler()
        systemd.wait_for("STATUS=leads in epoch 1")
        assert systemd.heard.index("READY=1") < systemd.heard.index("STATUS=leads in epoch 1")
        systemd.wait_for("WATCHDOG=1")
        children = Path(f"/proc/{cluster.processes['scheduler'].pid}/task").glob("*/children")
        postgres = int(" ".join(path.read_text() for path in children).split()[0])
        assert not set(_NAMES) & set(environment(postgres))
        cluster.processes["scheduler"].terminate()
        systemd.wait_for("STOPPING=1")
        systemd.wait_for("STATUS=stands by")
        assert cluster.processes["scheduler"].wait(LIMIT) == 0
        assert systemd.all().count("READY=1") == 1


# ---- the notifier ------------------------------------------------------------------------------------------------------


class TestNotifier:
    async def test_nobody_asks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
        monkeypatch.setenv("WATCHDOG_USEC", "1000")  # without a socket nobody watches
        opened: list[object] = []
        monkeypatch.setattr(socket, "socket", lambda *args, **_: opened.append(args))  # descriptors, others open here too
        made = Notifier()
        made.ready()
        made.status("well")
        made.stopping()
        await made.watchdog()
        assert opened == []
        assert "WATCHDOG_USEC" not in os.environ

    def test_what_is_said(self, systemd: Systemd) -> None:
        made = Notifier()
        assert "NOTIFY_SOCKET" not in os.environ
        made.ready()
        made.ready()
        made.status("the scheduler\nstands by → trying again")
        made.status("the scheduler stands by → trying again")
        made.stopping()
        assert systemd.all() == ["READY=1", "STATUS=the scheduler stands by → trying again", "STOPPING=1"]
        made._socket.socket.close()

    def test_who_does_not_listen_is_not_waited_for(self, systemd: Systemd) -> None:
        made = Notifier()
        for number in range(10_000):
            made.status(str(number))  # more than the socket holds
        assert systemd.all()[0] == "STATUS=0"
        systemd.close()
        made.status("nobody is there")
        made._socket.socket.close()
