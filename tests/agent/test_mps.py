"""MPS daemons, one for each GPU and user, through real processes of a fake control program."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent.devices import mps
from node_agent.devices.mps import MpsDaemons, Server
from node_agent.processes.process_groups import stat_fields
from tests.agent.conftest import until

ME = os.geteuid()
A, B = Server(ME, "GPU-a"), Server(ME, "GPU-b")


class Site:
    """A node with a fake control program."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "mps"
        self.plan = folder / "plan"
        self.wrong("")
        self.control = folder / "nvidia-cuda-mps-control"
        module = Path(__file__).with_name("fake_mps_control.py")
        # A copy: the name of the program is how the agent tells the daemon from another process.
        self.control.write_text(f"#!{sys.executable} -S\n{module.read_text()}")
        self.control.chmod(0o755)
        self.daemons = self.again()

    def again(self) -> MpsDaemons:
        """What an agent that has just started has."""
        return MpsDaemons(self.root, str(self.control))

    def wrong(self, words: str) -> None:
        self.plan.write_text(words)

    def pid(self, server: Server) -> int:
        return int((self.root / f"{server.uid}-{server.gpu}" / "pipe" / "nvidia-cuda-mps-control.pid").read_text())


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("m"))  # a short path, for sockets
    monkeypatch.setenv("EBB_FAKE_MPS", str(made.plan))
    yield made
    for server in made.again().find_started():
        try:
            os.kill(made.pid(server), signal.SIGKILL)
        except (OSError, ValueError):
            continue


def runs(pid: int) -> bool:
    return stat_fields(pid)[:1] not in ([], ["Z"], ["X"])


async def test_daemons_run_as_long_as_they_are_wanted(site: Site) -> None:
    assert await site.daemons.keep({A, B}) == {}
    assert site.daemons.find_started() == [A, B]
    first, second = site.pid(A), site.pid(B)
    assert runs(first)
    assert runs(second)
    assert (site.root / f"{ME}-GPU-b" / "log" / "control.log").read_text() == f"{ME} GPU-b"
    assert await site.daemons.keep({A}) == {}
    until(lambda: not runs(second))
    assert site.daemons.find_started() == [A]
    assert site.pid(A) == first, "it was left alone"
    assert await site.daemons.keep(()) == {}
    until(lambda: not runs(first))
    assert list(site.root.iterdir()) == []


async def test_daemons_outlive_the_agent(site: Site) -> None:
    assert await site.daemons.start(A) == ""
    before = site.pid(A)
    later = site.again()
    assert await later.unhealthy(A) == ""
    assert await later.keep({A}) == {}
    assert site.pid(A) == before
    assert await site.again().keep(()) == {}
    until(lambda: not runs(before))


async def test_a_daemon_that_died_is_started_anew(site: Site) -> None:
    await site.daemons.start(A)
    dead = site.pid(A)
    os.kill(dead, signal.SIGKILL)
    until(lambda: not runs(dead))
    assert "no MPS daemon" in await site.daemons.unhealthy(A)
    assert await site.daemons.keep({A}) == {}
    assert site.pid(A) != dead
    assert await site.daemons.unhealthy(A) == ""


async def test_a_pid_that_another_process_has_taken_is_left_alone(site: Site) -> None:
    await site.daemons.start(A)
    real = site.pid(A)
    file = site.root / f"{ME}-GPU-a" / "pipe" / "nvidia-cuda-mps-control.pid"
    file.write_text(str(os.getppid()))
    assert "no MPS daemon" in await site.daemons.unhealthy(A)
    assert await site.daemons.stop(A) == ""
    assert runs(os.getppid())
    os.kill(real, signal.SIGKILL)


async def test_a_daemon_that_does_not_start_is_told(site: Site) -> None:
    site.wrong("refuse")
    failed = await site.daemons.keep({A})
    assert list(failed) == [A]
    assert "cannot be started: Cannot find MPS control daemon process" in failed[A]
    site.wrong("")
    assert await site.daemons.keep({A}) == {}


async def test_a_daemon_that_does_not_answer_is_replaced(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.daemons.start(A)
    deaf = site.pid(A)
    site.wrong("deaf")
    monkeypatch.setattr(mps, "LIMIT", 1.0)
    assert "does not answer" in await site.daemons.unhealthy(A)
    assert await site.daemons.stop(A) == ""
    until(lambda: not runs(deaf))
    site.wrong("")
    monkeypatch.setattr(mps, "LIMIT", 30.0)
    assert await site.daemons.start(A) == ""
    assert site.pid(A) != deaf


async def test_a_daemon_that_does_not_exit_is_killed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.daemons.start(A)
    stubborn = site.pid(A)
    site.wrong("stubborn")
    monkeypatch.setattr(mps, "LIMIT", 1.0)
    assert await site.daemons.stop(A) == ""
    assert not runs(stubborn)
    assert site.daemons.find_started() == []


async def test_a_control_program_that_is_not_there_is_told(site: Site) -> None:
    failed = await MpsDaemons(site.root, "/nowhere/nvidia-cuda-mps-control").keep({A})
    assert "cannot be started: /nowhere/nvidia-cuda-mps-control" in failed[A]


async def test_a_user_that_nobody_knows_has_no_daemon(site: Site) -> None:
    stranger = Server(3_999_999_999, "GPU-a")
    assert await site.daemons.keep({stranger}) == {stranger: "this machine does not know user 3999999999"}


async def test_a_path_that_is_too_long_for_a_socket_is_told(site: Site) -> None:
    why = await MpsDaemons(site.root / ("x" * 100), str(site.control)).start(A)
    assert "must have a shorter path" in why


def test_clients_find_their_daemon_and_have_their_limits(site: Site) -> None:
    folder = site.root / f"{ME}-GPU-a"
    plain = {
        "CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"),
        "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"),
        "CUDA_VISIBLE_DEVICES": "GPU-a",
    }
    assert site.daemons.environment(A) == plain
    assert site.daemons.environment(A, thread_percentage=37.5, memory_limit_mib=8192) == plain | {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "37.5",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8192M",
    }


@pytest.mark.parametrize("wrong", [{"thread_percentage": 0}, {"thread_percentage": 101}, {"memory_limit_mib": 0}])
def test_limits_that_mps_does_not_know_are_refused(site: Site, wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        site.daemons.environment(A, **wrong)
