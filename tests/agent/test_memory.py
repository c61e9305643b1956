"""What runs use, as the kernel counts it, and what becomes of one that uses too much."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from ebb.v1 import job_pb2

from node_agent.processes.memory_watch import MemoryWatch, OomKills, exact, resident
from node_agent.processes.process_groups import kill_group
from node_agent.run_state.model import RunKey
from tests.agent.conftest import AgentProcess
from tests.agent.fake_scheduler import FakeScheduler

Start = Callable[..., AgentProcess]

KEY = RunKey(1, 1)
MIB = 1 << 20
WAIT = "print('ready', flush=True); input()"
ALONE = f"data = bytearray(b'x') * (100 << 20); {WAIT}"
SHARED = f"import os; data = bytearray(b'x') * (100 << 20); [os.fork() for _ in range(2)]; {WAIT}"
MAPPED = (
    "import mmap, sys; file = open(sys.argv[1], 'rb'); data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ);"
    f"sum(data[::4096]); {WAIT}"
)


@contextmanager
def program(text: str, *arguments: str | Path, processes: int = 1) -> Iterator[int]:
    """A process group of a program that has got all of its memory."""
    command = [sys.executable, "-I", "-S", "-c", text, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            for _ in range(processes):
                assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            kill_group(process.pid)


def over(group: int, mib: int) -> list[RunKey]:
    return list(MemoryWatch(dict, lambda *_: None).find_exceeding({KEY: (group, mib * MIB)}))


def test_memory_of_one_process() -> None:
    with program(ALONE) as group:
        assert over(group, 90) == [KEY]
        assert over(group, 300) == []


def test_what_processes_share_counts_once() -> None:
    with program(SHARED, processes=4) as group:
        sizes = resident({group})[group]
        assert len(sizes) == 4
        assert sum(sizes.values()) > 400 * MIB
        assert 100 * MIB < sum(map(exact, sizes)) < 200 * MIB
        assert over(group, 250) == []
        assert over(group, 90) == [KEY]


def test_files_that_are_mapped_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(bytes(100 * MIB))
    with program(MAPPED, file) as group:
        assert sum(resident({group})[group].values()) > 100 * MIB
        assert over(group, 50) == []


def test_a_run_that_only_seems_too_large_is_seldom_looked_at_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    with program(SHARED, processes=4) as group:

        def look(pid: int) -> int:
            looks.append(pid)
            return 0

        monkeypatch.setattr("node_agent.processes.memory_watch.exact", look)
        clock = iter([100.0, 100.5, 109.0, 110.6, 111.0])
        monkeypatch.setattr("node_agent.processes.memory_watch.time", SimpleNamespace(monotonic=lambda: next(clock)))
        watch = MemoryWatch(dict, lambda *_: None)
        counts = []
        for _ in range(3):
            watch.find_exceeding({KEY: (group, 250 * MIB)})
            counts.append(len(looks))
    assert counts == [4, 4, 8]  # half a second's look at 100.0, so none at 109.0, and one at 110.6


def test_no_process_is_no_memory() -> None:
    with program("print('ready')") as group:
        pass
    assert exact(group) == 0
    assert resident({group}) == {}


def test_the_kernel_says_how_often_it_has_killed() -> None:
    kills = OomKills()
    assert kills.read() == kills.read_recent() >= 0
    assert "\noom_kill " in Path("/proc/vmstat").read_text()


def test_a_run_over_its_limit_is_killed_and_said_to_be(agent: Start, scheduler: FakeScheduler) -> None:
    agent()
    scheduler.connected()
    grows = "import time; data = bytearray(b'x') * (200 << 20); time.sleep(1000)"
    asked = job_pb2.Resources(memory_mib=100)
    scheduler.start(1, sys.executable, "-c", grows, resources=asked)
    scheduler.start(2, "/bin/sh", "-c", f"{sys.executable} -c '{grows.replace(chr(39), chr(34))}' & wait", resources=asked)
    for job in (1, 2):
        exited = scheduler.exited(job)
        assert (exited.exit_signal, exited.out_of_memory, exited.yielded) == (9, True, False)
    scheduler.start(3, "/bin/sh", "-c", "kill -9 $$", resources=asked)
    assert not scheduler.exited(3).out_of_memory


def test_limits_hold_over_a_restart_and_not_where_they_are_off(agent: Start, scheduler: FakeScheduler) -> None:
    first = agent("--memory-limit", "off")
    scheduler.connected()
    for job, seconds in ((1, 3), (2, 1000)):
        holds = f"data = bytearray(b'x') * (200 << 20); import time; time.sleep({seconds})"
        scheduler.start(job, sys.executable, "-c", holds, resources=job_pb2.Resources(memory_mib=100))
    assert scheduler.exited(1).exit_signal == 0  # three looks would have found it
    first.kill()
    agent()
    assert scheduler.exited(2).out_of_memory
