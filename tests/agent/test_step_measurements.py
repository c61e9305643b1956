"""What an agent measures of a run since its process began."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from ebb.agent.v1 import agent_link_pb2 as pb
from google.protobuf.duration_pb2 import Duration

from ebb_inject.ebb_hook.step_file import RUNNING, Record
from node_agent.measuring.observations import Observations
from node_agent.measuring.step_measurements import RunMeasurement, measurement, memory_peak
from node_agent.measuring.step_watch import StepWatch
from node_agent.processes.process_groups import start_ticks
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import RunKey, RunPhase, RunRecord
from node_agent.runs.spool_opening import open_spool
from node_agent.spool.spool import Spool
from node_agent.transport import convert
from tests.agent.test_step_watch import publish

KEY = RunKey(7, 2)
SECOND = 10**9
BALLAST = "import sys, time; x = bytearray({} << 20); print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = open_spool(tmp_path / "spool.db")
    yield spool
    spool.close()


def record(first: float, last: float, counted: int, **fields: float) -> Record:
    """Of this process: seconds from now on for the end of the first step, and of the last one."""
    now = time.monotonic_ns()
    began, ended = (now + round(moment * SECOND) for moment in (first, last))
    given = Record(1, 0, RUNNING, began, began, 1, 0, 0, ended, counted, counted * SECOND, counted * 1.0)
    return given._replace(**fields)


def test_steps_and_times_count_from_the_start_of_the_process() -> None:
    found = measurement(KEY, record(1, 11, 10, total=500)._replace(first=200), start_ticks(os.getpid()), 3)
    assert found is not None
    assert (found.key, found.steps, found.total, found.memory_mib) == (KEY, 11, 500, 3)
    assert found.last - found.first == pytest.approx(10, abs=1e-6)
    lived = time.time() - psutil.Process().create_time()
    assert found.first == pytest.approx(1 + lived, abs=5)


@pytest.mark.parametrize(
    ("squares", "spread"), [(10.0, 0.0), (12.5, 0.5 / 10**0.5)], ids=["all alike", "a deviation of half a second"]
)
def test_the_error_of_the_step_time(squares: float, spread: float) -> None:
    found = measurement(KEY, record(1, 11, 10, squares=squares), start_ticks(os.getpid()), 0)
    assert found is not None
    assert found.spread == pytest.approx(spread)


@pytest.mark.parametrize("ticks", [0, 10**12])
def test_a_process_of_which_nobody_knows_when_it_began_or_that_began_later(ticks: int) -> None:
    assert measurement(KEY, record(1, 11, 10), ticks, 0) is None


def test_the_memory_of_a_run_is_that_of_all_its_processes() -> None:
    """The parent has 64 MiB, and its child 128."""
    child = [sys.executable, "-c", BALLAST.format(128)]
    parent = f"import subprocess; p = subprocess.Popen({child!r}, stdin=0); " + BALLAST.format(64)
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"ready\n"] * 2
        peak = memory_peak(process.pid)
        assert process.stdin is not None
        process.stdin.close()
    assert 192 <= peak < 400
    assert memory_peak(process.pid) == 0, "it is gone"


def test_runs_that_count_are_measured_and_told_of(spool: Spool, tmp_path: Path) -> None:
    paths = Paths(tmp_path, tmp_path / "checkpoints", spool.short_id)
    watch = StepWatch(spool, paths)
    alive, unknown = RunKey(8, 1), RunKey(9, 1)
    pid = os.getpid()
    spool.remember([RunRecord(alive, RunPhase.RUNNING, pid=pid, start_ticks=1), RunRecord(unknown, RunPhase.RUNNING)])
    for key in (alive, unknown):
        publish(paths, key, 9, total=100)
    watch.read_files()
    (found,) = watch.measurements
    assert (found.key, found.steps, found.total) == (alive, 10, 100)
    assert found.memory_mib > 10
    assert [steps.key for steps in watch.latest] == [alive, unknown]


def test_a_measurement_on_the_wire() -> None:
    seen = Observations((), (), (), (RunMeasurement(RunKey(7, 2, 1), 5, 100, 1.5, 9.25, 0.125, 300),))
    sent = pb.ConnectRequest.FromString(convert.encode(seen)).observations
    assert list(sent.measurements) == [
        pb.RunMeasurement(
            job_id=7,
            run=2,
            task=1,
            steps=5,
            total=100,
            first_step=Duration(seconds=1, nanos=500_000_000),
            last_step=Duration(seconds=9, nanos=250_000_000),
            spread=0.125,
            memory_mib=300,
        )
    ]
