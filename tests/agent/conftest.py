"""Agents as real processes, and the certainty that none of them, nor a job, is left behind."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from examples.cluster import Start, start_module
from node_agent.processes.process_groups import stat_fields
from tests import preloaded
from tests.agent.fake_scheduler import FakeScheduler
from tests.agent.launching import play as play

ROOT = Path(__file__).parents[2]
ROOT_FLAG = ["--allow-root"] if os.geteuid() == 0 else []
T = TypeVar("T")


def until(what: Callable[[], T], limit: float = 20.0) -> T:
    """The first true value of `what`, for things that cannot be waited for: they are asked again until the limit."""
    end = time.monotonic() + limit
    while not (value := what()):
        assert time.monotonic() < end, "did not come about"
        time.sleep(0.002)
    return value


def alive(pid: int) -> bool:
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in "ZX"


class AgentProcess:
    """`ebb-agent run` on a state directory."""

    def __init__(
        self,
        state: Path,
        scheduler: str,
        *flags: str,
        node: str = "n1",
        devices: str = "dgx-a100",
        start: Start = start_module,
    ) -> None:
        self.state = state
        self.log = state.with_suffix(".agent.log")
        arguments = [
            *("node_agent", "run", "--scheduler", scheduler, "--devices", devices),
            *("--node", node, "--state", str(state), "--log-level", "debug", "--launcher-idle", "1"),
            *(*ROOT_FLAG, *flags),
        ]
        paths = os.pathsep.join(map(str, (ROOT, ROOT / "proto", ROOT / "third_party")))
        self.process = start(arguments, self.log, os.environ | {"PYTHONPATH": paths})

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)

    def terminate(self) -> int:
        self.process.terminate()
        return self.process.wait(20)


def run_directory(state: Path, job: int, run: int = 1) -> Path:
    """Of a run that there is, whatever spool it is in."""
    return until(lambda: next(state.glob(f"runs/*/{job}.{run}"), None))  # type: ignore[return-value]


def block_runs(state: Path) -> None:
    """No run directory can be made from now on, as long as `runs` is a file. For an agent that is connected."""
    until(lambda: list(state.glob("runs/*/cluster")))
    (state / "runs").rename(state / "runs.away")
    (state / "runs").touch()


def lose_spool(state: Path) -> None:
    for file in state.glob("spool.db*"):
        file.unlink()


def of_state(state: Path) -> list[int]:
    """Every process of a state directory: jobs by their environment, the launcher by where it works."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                in_job = f"EBB_RUN_DIR={state}/".encode() in (entry / "environ").read_bytes()
                if (in_job or (entry / "cwd").readlink() == state) and int(entry.name) != os.getpid():
                    found.append(int(entry.name))
    return [pid for pid in found if alive(pid)]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "state"
    yield path
    until(lambda: not [_kill(pid) for pid in of_state(path)])


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended since it was looked at
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def scheduler() -> Iterator[FakeScheduler]:
    fake = FakeScheduler()
    yield fake
    fake.close()


@pytest.fixture
def agent(state: Path, scheduler: FakeScheduler) -> Iterator[Callable[..., AgentProcess]]:
    agents: list[AgentProcess] = []

    def start(*flags: str, start: Start = preloaded.start, **options: str) -> AgentProcess:
        agents.append(AgentProcess(state, options.pop("scheduler", scheduler.address), *flags, start=start, **options))
        return agents[-1]

    yield start
    for one in agents:
        if one.process.poll() is None:
            one.kill()
