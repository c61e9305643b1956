"""What an agent sees of the steps of its runs, and what it tells of them."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import protovalidate
import pytest
from ebb.agent.v1 import agent_link_pb2 as pb
from ebb.v1 import job_pb2
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from ebb_inject.ebb_hook.step_file import EVALUATING, RUNNING, SAVING, Record, Writer, empty
from node_agent.devices.base import Observation
from node_agent.measuring import step_watch
from node_agent.measuring.observations import Observations, RunCycle
from node_agent.measuring.step_rates import LONGEST, Advance, RunSteps, StepState
from node_agent.measuring.step_watch import StepWatch
from node_agent.processes.job_reports import MOST, RunGrace, is_plausible, read_grace
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import RunKey, RunPhase, RunRecord
from node_agent.run_state.save_values import SaveMeans
from node_agent.runs.spool_opening import open_spool
from node_agent.spool.spool import Spool
from node_agent.transport import convert
from tests.agent.conftest import AgentProcess, run_directory
from tests.agent.fake_scheduler import FakeScheduler

ROOT = Path(__file__).parents[2]
KEY, OTHER, GANG = RunKey(7, 2), RunKey(8, 1), RunKey(9, 1, 3)
SECOND = 10**9


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = open_spool(tmp_path / "spool.db")
    yield spool
    spool.close()


@pytest.fixture
def paths(tmp_path: Path, spool: Spool) -> Paths:
    return Paths(tmp_path, tmp_path / "checkpoints", spool.short_id)


def runs(spool: Spool, phase: RunPhase, *keys: RunKey) -> None:
    spool.remember([RunRecord(key, phase) for key in keys])


def publish(paths: Paths, key: RunKey, counted: int, **fields: int) -> None:
    """As a program does that began a minute ago and does a step in half a second."""
    now = time.monotonic_ns()
    record = Record(
        1, 0, RUNNING, now - 60 * SECOND, now - 60 * SECOND, 1, 0, 0, now, counted, counted * SECOND // 2, counted / 4
    )
    path = Path(paths.steps(key))
    path.parent.mkdir(parents=True, exist_ok=True)
    memory = bytearray(path.read_bytes() if path.exists() else empty())
    Writer(memory).write(record._replace(**fields))
    path.write_bytes(memory)


def seen(watch: StepWatch) -> dict[RunKey, int]:
    watch.read_files()
    return {steps.key: steps.step for steps in watch.latest}


# ---- which runs ----------------------------------------------------------------------------------------------------------


def test_runs_at_work_that_count(spool: Spool, paths: Paths) -> None:
    watch = StepWatch(spool, paths)
    assert seen(watch) == {}
    runs(spool, RunPhase.RUNNING, KEY, OTHER)
    runs(spool, RunPhase.STOPPING, GANG)
    assert seen(watch) == {}
    publish(paths, GANG, 4)
    publish(paths, KEY, 99)
    publish(paths, RunKey(10, 1), 5)  # of no run that is known
    assert seen(watch) == {KEY: 100, GANG: 5}
    publish(paths, KEY, 100)
    publish(paths, OTHER, 0)
    assert seen(watch) == {KEY: 101, OTHER: 1, GANG: 5}
    runs(spool, RunPhase.ENDED, KEY)
    assert seen(watch) == {OTHER: 1, GANG: 5}
    runs(spool, RunPhase.PREPARING, OTHER)
    assert seen(watch) == {GANG: 5}


def test_a_parked_run_is_parked_and_has_no_time_left(spool: Spool, paths: Paths) -> None:
    watch = StepWatch(spool, paths)
    runs(spool, RunPhase.RUNNING, KEY, OTHER)
    for key in (KEY, OTHER):
        publish(paths, key, 60, total=100)
    runs(spool, RunPhase.PARKED, OTHER)
    watch.read_files()
    executes, parked = watch.latest
    assert (executes.state, parked.state) == (StepState.RUNNING, StepState.PARKED)
    assert executes.remaining is not None
    assert (parked.step, parked.remaining) == (61, None)
    runs(spool, RunPhase.RUNNING, OTHER)
    watch.read_files()
    assert [steps.state for steps in watch.latest] == [StepState.RUNNING, StepState.RUNNING]


def test_what_was_seen_stays_while_the_file_cannot_be_read(spool: Spool, paths: Paths) -> None:
    watch = StepWatch(spool, paths)
    runs(spool, RunPhase.RUNNING, KEY, OTHER)
    publish(paths, KEY, 9)
    path = Path(paths.steps(KEY))
    assert seen(watch) == {KEY: 10}
    path.write_bytes(os.urandom(1000))
    assert seen(watch) == {KEY: 10}
    path.unlink()
    assert seen(watch) == {KEY: 10}
    Path(paths.steps(OTHER)).parent.mkdir(parents=True)
    Path(paths.steps(OTHER)).write_bytes(os.urandom(1000))
    publish(paths, KEY, 20)
    assert seen(watch) == {KEY: 21}


def test_it_needs_nothing_from_the_agent_before_it(spool: Spool, paths: Paths) -> None:
    runs(spool, RunPhase.RUNNING, KEY)
    publish(paths, KEY, 119)
    first, second = StepWatch(spool, paths), StepWatch(spool, paths)
    first.read_files()
    second.read_files()
    (before,), (after,) = first.latest, second.latest
    assert (before.rate, before.mini_batch, before.measured) == (after.rate, after.mini_batch, after.measured)
    assert after.rate == pytest.approx(119 / 60, rel=1e-3)


def test_no_more_are_told_of_than_the_scheduler_takes(spool: Spool, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_watch, "MOST", 2)
    runs(spool, RunPhase.RUNNING, GANG, OTHER, KEY)
    for key in (KEY, OTHER, GANG):
        publish(paths, key, 1)
    assert list(seen(StepWatch(spool, paths))) == [KEY, OTHER]


async def test_it_looks_again_and_again(spool: Spool, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_watch, "EVERY", 0.001)
    watch = StepWatch(spool, paths)
    runs(spool, RunPhase.RUNNING, KEY)
    task = asyncio.create_task(watch.run())
    for counted in (1, 2):
        publish(paths, KEY, counted)
        async with asyncio.timeout(20):
            while [steps.step for steps in watch.latest] != [counted + 1]:
                await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


# ---- what is sent --------------------------------------------------------------------------------------------------------


def sent(*steps: RunSteps) -> pb.Observations:
    data = convert.encode(Observations((Observation(0, 1, 2),), (RunCycle(KEY, 0, None, 1, 2, 0.0),), steps))
    return pb.ConnectRequest.FromString(data).observations


def test_the_message() -> None:
    little = RunSteps(KEY, 3, None, StepState.SAVING, 0.25)
    much = RunSteps(GANG, 5, 10, StepState.STALLED, 90.0, 2.5, 0.125, 2.0, 0.375, 0.0625, 60, 2.0)
    assert list(sent(little, much).steps) == [
        job_pb2.RunSteps(job_id=7, run=2, step=3, state=job_pb2.STEP_STATE_SAVING, since_step=Duration(nanos=250_000_000)),
        job_pb2.RunSteps(
            job_id=9,
            run=1,
            task=3,
            step=5,
            total=10,
            state=job_pb2.STEP_STATE_STALLED,
            since_step=Duration(seconds=90),
            step_rate=2.5,
            step_rate_error=0.125,
            step_rate_since_start=2.0,
            mini_batch_time=Duration(nanos=375_000_000),
            mini_batch_spread=Duration(nanos=62_500_000),
            measured=60,
            remaining=Duration(seconds=2),
        ),
    ]
    assert len(sent(little).devices) == len(sent(little).cycles) == 1


@given(
    st.builds(
        Record,
        pid=st.just(1),
        rank=st.just(0),
        state=st.sampled_from((RUNNING, EVALUATING, SAVING)),
        began_ns=st.integers(1, 10**18),
        changed_ns=st.integers(1, 10**18),
        first=st.integers(-MOST, MOST),
        total=st.integers(0, MOST) | st.integers(0, 3),
        untimed=st.integers(0, MOST) | st.integers(0, 3),
        last_ns=st.integers(1, 10**18),
        counted=st.integers(0, MOST) | st.integers(0, 9),
        busy_ns=st.integers(0, 10**18) | st.integers(0, 9000),
        squares=st.floats(0, 1e18),
    ),
    st.integers(0, 10**18),
    st.integers(0, 10**18),
)
def test_the_scheduler_takes_whatever_a_program_says(record: Record, lived: int, now: int) -> None:
    """If it refused a message for what a job has written, it would end the link of the node."""
    lied = record._replace(last_ns=record.began_ns + lived)
    advance = Advance(KEY)
    for each in (record, lied, lied._replace(changed_ns=record.began_ns, first=0, busy_ns=min(lived, record.busy_ns))):
        if is_plausible(each, now):
            advance.add(each)
    if (said := advance.steps_at(now)) is not None:
        assert protovalidate.collect_violations(sent(said)) == []


@pytest.mark.parametrize("seconds", [1e-6, 0.9999995, LONGEST])
def test_the_scheduler_takes_the_extremes(seconds: float) -> None:
    said = RunSteps(KEY, MOST, MOST, StepState.RUNNING, seconds, 1e9, 1e9, 1e9, seconds, seconds, MOST, seconds)
    assert protovalidate.collect_violations(sent(said)) == []


# ---- a real agent --------------------------------------------------------------------------------------------------------

TRAINS = """
import os, time
from client_sdk import training
for number in training.count(range(1, 1001), total=1000, done=0):
    if number in (21, 41, 61):
        go = os.environ["EBB_RUN_DIR"] + f"/go-{number}"
        while not os.path.exists(go):
            time.sleep(0.005)
"""


def said(scheduler: FakeScheduler, step: int) -> job_pb2.RunSteps:
    """What was told last of the one run that counts, once it is at this step."""
    return scheduler.wait(
        lambda: next((each for told in scheduler.observations[-1:] for each in told.steps if each.step == step), None)
    )


def test_from_the_program_to_the_scheduler_over_a_restart_of_the_agent(
    scheduler: FakeScheduler, agent: Callable[..., AgentProcess], state: Path
) -> None:
    scheduler.heartbeat = 0.05
    first = agent()
    scheduler.connected()
    environment = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "proto", ROOT / "third_party")))}
    scheduler.start(7, sys.executable, "-c", TRAINS, run=2, environment=environment)
    scheduler.start(8, "sleep", "600")
    folder = run_directory(state, 7, 2)
    steps = said(scheduler, 20)
    assert (steps.job_id, steps.run, steps.task, steps.total, steps.state) == (7, 2, 0, 1000, job_pb2.STEP_STATE_RUNNING)
    assert steps.measured == 19
    assert steps.step_rate > 0
    assert steps.step_rate == steps.step_rate_since_start
    assert steps.HasField("remaining")
    assert list(scheduler.observations[-1].devices) == [], "of simulated devices nothing is seen"
    first.kill()
    (folder / "go-21").touch()
    agent()
    scheduler.connected(2)
    again = said(scheduler, 40)
    assert again.measured == 39, "all since the start, also what no agent was there to see"
    (folder / "go-41").touch()
    assert said(scheduler, 60).measured == 59
    beats = scheduler.heartbeats
    os.kill(scheduler.started(7, 2).pid, signal.SIGKILL)
    scheduler.exited(7, 2)
    os.kill(scheduler.started(8, 1).pid, signal.SIGKILL)
    scheduler.exited(8, 1)
    scheduler.wait(lambda: scheduler.heartbeats > beats + 1)  # nothing is seen any more


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("45\n", 45.0),
        ("0.5", 0.5),
        ("1e9", 86400.0),
        ("0", None),
        ("-3", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
    ],
)
def test_what_a_run_asks_for_in_its_grace_file(tmp_path: Path, said: str, read: float | None) -> None:
    (tmp_path / "grace").write_text(said)
    found = read_grace(str(tmp_path / "grace"), KEY)
    assert found == (None if read is None else RunGrace(KEY, read))


def test_what_is_no_file_of_a_grace_period(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/proc/uptime")
    (tmp_path / "bytes").write_bytes(b"\xff\0")
    names = ("folder", "fifo", "link", "bytes", "missing")
    assert [read_grace(str(tmp_path / name), KEY) for name in names] == [None] * len(names)


def test_the_graces_of_live_runs_are_told(spool: Spool, paths: Paths) -> None:
    runs(spool, RunPhase.RUNNING, KEY, GANG)
    runs(spool, RunPhase.ENDED, OTHER)
    for key in (KEY, GANG, OTHER):
        paths.folder_path(key).mkdir(parents=True, exist_ok=True)
        Path(paths.grace(key)).write_text("90\n")
    watch = StepWatch(spool, paths)
    watch.read_files()
    assert watch.graces == (RunGrace(KEY, 90.0), RunGrace(GANG, 90.0))
    data = convert.encode(Observations((), (), graces=watch.graces))
    told = pb.ConnectRequest.FromString(data).observations
    protovalidate.validate(told)
    assert [(one.job_id, one.run, one.task, one.grace_period.seconds) for one in told.graces] == [(7, 2, 0, 90), (9, 1, 3, 90)]


@pytest.mark.parametrize("state", [RUNNING, EVALUATING])
def test_the_longest_time_without_the_end_of_a_step_is_told(spool: Spool, paths: Paths, state: int) -> None:
    """Of a run that has registered, and so saves between two steps; also once a step has ended."""
    watch = StepWatch(spool, paths, saves=lambda runs: {run.key: means[run.key] for run in runs})
    means = {KEY: SaveMeans.REGISTERED, OTHER: SaveMeans.HANDLER}
    runs(spool, RunPhase.RUNNING, KEY, OTHER)
    ago = time.monotonic_ns() - 40 * SECOND
    for key in (KEY, OTHER):
        publish(paths, key, 10, last_ns=ago, changed_ns=ago, state=state)
    watch.read_files()
    for key in (KEY, OTHER):
        publish(paths, key, 11)
    watch.read_files()
    found = {known.key: (round(known.longest_step), known.evaluated) for known in watch.checkpoints}
    assert found == {KEY: (40, state == EVALUATING), OTHER: (0, False)}
