"""Parks in the agent, of real processes: each rung, what is refused, and an agent that is killed at any point."""

import asyncio
import os
import struct
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from ebb_inject.ebb_hook import control
from node_agent.devices.driver_checkpoint import DriverCheckpoint
from node_agent.processes.cgroups import Groups
from node_agent.processes.process_groups import is_populated, kill_inside
from node_agent.processes.run_cgroups import RunCgroups
from node_agent.processes.run_paths import Paths
from node_agent.run_state.events import Phases
from node_agent.run_state.model import RunKey, RunPhase, RunRecord
from node_agent.run_state.park_state import ParkStage, Rung
from node_agent.runs.spool_opening import open_spool
from node_agent.sharing.parking import freezing, ladder, requests
from node_agent.sharing.parking.ladder import Ladder
from node_agent.sharing.parking.parking import Node, Parking
from node_agent.spool.spool import Spool
from tests.agent.conftest import until
from tests.agent.fake_checkpoint_driver import write_plan
from tests.agent.parkable import Program
from tests.agent.test_groups import group  # noqa: F401 (a fixture)

ONE, TWO, THREE = RunKey(1, 1), RunKey(2, 1), RunKey(3, 1)
GIB = 1 << 30


class Killed(BaseException):
    """The agent, by a test."""


class Stage:
    """What an agent has for parking, around real processes. `again` is the agent that comes next."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.total = GIB
        self.number = 0
        """Of the parks of gangs on several nodes."""
        self.groups = Groups()
        self.used: dict[RunKey, Mapping[int, int] | None] = {}
        self.looks: dict[RunKey, list[tuple[float, Mapping[int, int]]]] = {}
        """When a look at the devices began, and what it saw of a run; where there are none, `used` holds at all times."""
        self.driver: DriverCheckpoint | None = None
        self.programs: list[Program] = []
        self.events: list[tuple[Any, ...]] = []
        self.happened = asyncio.Event()
        self.failures: list[BaseException] = []
        self.again()

    def again(self) -> None:
        if hasattr(self, "spool"):
            self.parking.close()
            self.spool.close()
        self.spool: Spool = open_spool(self.state / "spool.db")
        self.paths = Paths(self.state, self.state / "checkpoints", self.spool.short_id)
        self.holding = holding = RunCgroups(self.spool, self.groups, self.guarded)
        node = Node(self.total, self.on_devices)
        self.parking = Parking(self.spool, holding, self.paths, Ladder(self.driver), node, self, self.guarded)

    def on_devices(self, key: RunKey, since: float) -> Mapping[int, int] | None:
        for began, used in reversed(self.looks.get(key, [])):
            return used if began >= since else None
        return self.used.get(key, {})

    def guarded(self, act: Callable[..., None], *arguments: object) -> None:
        try:
            act(*arguments)
        except BaseException as error:
            self.failures.append(error)
            self.happened.set()

    def run(self, key: RunKey, *command: str, gang: int = 1, nodes: int = 1, **program: Any) -> Program:
        made = Program(self.paths.folder_path(key), *command, **program)
        self.programs.append(made)
        record = RunRecord(key, RunPhase.RUNNING, pid=made.pid, start_ticks=made.ticks, gang_size=gang, gang_nodes=nodes)
        self.spool.remember([record])
        return made

    def park(self, *keys: RunKey, limit: float = 60.0) -> None:
        for key in keys:
            self.parking.want(key, parked=True, limit=limit, number=self.number)

    def resume(self, *keys: RunKey) -> None:
        for key in keys:
            self.parking.want(key, parked=False)

    async def told_any(self, count: int) -> list[tuple[Any, ...]]:
        """The next events."""
        while len(self.events) < count and not self.failures:
            self.happened.clear()
            async with asyncio.timeout(90):
                await self.happened.wait()
        assert not self.failures
        found, self.events = self.events[:count], self.events[count:]
        return found

    async def told(self, *kinds: str) -> list[tuple[Any, ...]]:
        """The next events, which must be of these kinds."""
        found = await self.told_any(len(kinds))
        assert [event[0] for event in found] == list(kinds)
        return found

    def stage(self, key: RunKey) -> ParkStage:
        return self.spool.runs[key].park.stage

    def handle_parked(self, key: RunKey, phases: Phases) -> None:
        self._add("parked", key, phases)

    def handle_resumed(self, key: RunKey, phases: Phases) -> None:
        self._add("resumed", key, phases)

    def handle_refused(self, key: RunKey, reason: str, lost: bool) -> None:
        self._add("refused", key, reason, lost)

    def not_saved(self, key: RunKey, reason: str) -> None:
        self._add("not saved", key, reason)

    def _add(self, *event: Any) -> None:
        self.events.append(event)
        self.happened.set()

    def close(self) -> None:
        self.parking.close()
        for program in self.programs:
            program.close()
        self.spool.close()


@pytest.fixture
async def stage(tmp_path: Path) -> Any:
    made = Stage(tmp_path)
    yield made
    made.close()
    if made.driver is not None:
        await made.driver.close()


@pytest.fixture
def fake_driver(stage: Stage) -> Callable[..., None]:
    """A driver that knows the processes in `pids`; `plan` as in tests.agent.fake_checkpoint_driver."""
    path = stage.state / "driver.json"

    def make(*pids: int, **plan: Any) -> None:
        write_plan(path, {"pids": {str(pid): "running" for pid in pids}} | plan)
        if stage.driver is None:
            stage.driver = DriverCheckpoint((sys.executable, "-m", "tests.agent.fake_checkpoint_driver", str(path)))
            stage.again()

    return make


# ---- the rungs -------------------------------------------------------------------------------------------------------------


async def test_a_program_parks_itself_and_goes_on(stage: Stage) -> None:
    program = stage.run(ONE)
    for times in range(1, 4):
        stage.park(ONE)
        ((_, key, phases),) = await stage.told("parked")
        assert key == ONE
        assert dict(phases).keys() == {"copy", "wait", "stop"}
        assert program.state() == "T"
        state = stage.spool.runs[ONE].park
        assert (state.stage, state.rung, state.switches) == (ParkStage.PARKED, Rung.COOPERATIVE, times)
        assert (state.bytes, state.residue_bytes) == (64 << 20, 5)
        stage.resume(ONE)
        await stage.told("resumed")
        assert stage.stage(ONE) is ParkStage.EXECUTES
        program.goes_on()
    assert stage.spool.runs[ONE].park.stops == 0, "it was never stopped in the middle of a step"


async def test_what_has_nothing_on_a_device_is_stopped_with_all_its_processes(stage: Stage) -> None:
    shell = "sleep 1000 & echo $! >child; wait"
    program = stage.run(ONE, "/bin/sh", "-c", shell)
    while not (program.folder / "child").exists() or not (program.folder / "child").read_text().strip():
        await asyncio.sleep(0.01)
    child = int((program.folder / "child").read_text())
    stage.park(ONE)
    await stage.told("parked")
    processes = freezing.Processes(program.pid, program.ticks, "")
    assert processes.members() == {program.pid, child}
    assert {psutil.Process(pid).status() for pid in processes.members()} == {psutil.STATUS_STOPPED}
    assert stage.spool.runs[ONE].park.rung is Rung.STOPPED
    stage.resume(ONE)
    await stage.told("resumed")
    assert psutil.STATUS_STOPPED not in {psutil.Process(pid).status() for pid in processes.members()}
    assert stage.spool.runs[ONE].park.stops == 1


async def test_the_driver_parks_what_does_not_park_itself(stage: Stage, fake_driver: Callable[..., None]) -> None:
    program = stage.run(ONE, mood="refuses")
    fake_driver(program.pid)
    stage.used[ONE] = {program.pid: 100}
    stage.park(ONE)
    ((_, _, phases),) = await stage.told("parked")
    assert dict(phases).keys() == {"driver", "stop"}
    state = stage.spool.runs[ONE].park
    assert (state.rung, state.bytes, state.driver_pids) == (Rung.DRIVER, 100 << 20, (program.pid,))
    assert program.state() == "T"
    stage.resume(ONE)
    await stage.told("resumed")
    program.goes_on()
    assert stage.spool.runs[ONE].park.driver_pids == ()


@pytest.mark.parametrize(
    ("plan", "lost", "word"),
    [
        ({"fail": {"lock": "CUDA_ERROR_NOT_READY"}}, False, "NOT_READY"),
        ({"fail": {"checkpoint": "CUDA_ERROR_NOT_SUPPORTED"}}, False, "NOT_SUPPORTED"),
        ({"broken": ["checkpoint"]}, True, "CUDA_ERROR_UNKNOWN"),
    ],
)
async def test_a_driver_that_fails(
    stage: Stage, fake_driver: Callable[..., None], plan: dict[str, Any], lost: bool, word: str
) -> None:
    program = stage.run(ONE, mood="refuses")
    fake_driver(program.pid, **plan)
    stage.used[ONE] = {program.pid: 100}
    stage.park(ONE)
    ((_, _, reason, is_lost),) = await stage.told("refused")
    assert is_lost == lost
    assert word in reason
    assert "CUDA graphs" in reason, "why the first rung was not enough"
    if not lost:
        assert stage.stage(ONE) is ParkStage.EXECUTES
        program.goes_on()


async def test_a_control_group_is_frozen_with_all_that_is_in_it(stage: Stage, group: Path) -> None:  # noqa: F811
    """A process that has left the process group of its run is in the control group all the same."""
    stage.groups = Groups(str(group))
    stage.again()
    shell = "until [ -e begin ]; do sleep 0.02; done; setsid sh -c 'while :; do sleep 0.01; done' & echo $! >child; wait"
    program = stage.run(ONE, "/bin/sh", "-c", shell)
    folder = Path(stage.groups.make(f"{stage.spool.short_id}/{ONE.name}", 0))
    (folder / "cgroup.procs").write_text(str(program.pid))
    (program.folder / "begin").touch()
    until(lambda: (program.folder / "child").exists() and (program.folder / "child").read_text().strip())
    child = int((program.folder / "child").read_text())
    until(lambda: os.getpgid(child) == child)
    stage.park(ONE)
    await stage.told("parked")
    assert "frozen 1" in (folder / "cgroup.events").read_text()
    spent = Path(f"/proc/{child}/schedstat").read_text().split()[0]
    await asyncio.sleep(0.1)
    assert Path(f"/proc/{child}/schedstat").read_text().split()[0] == spent
    stage.resume(ONE)
    await stage.told("resumed")
    until(lambda: Path(f"/proc/{child}/schedstat").read_text().split()[0] != spent)
    stage.park(ONE)
    await stage.told("parked")
    kill_inside(str(folder))  # also while it is frozen
    until(lambda: not is_populated(str(folder)))


# ---- what is refused -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mood", ["refuses", "deaf"])
async def test_a_run_that_no_rung_parks_goes_on(stage: Stage, mood: str) -> None:
    program = stage.run(ONE, mood=mood)
    stage.used[ONE] = {program.pid: 100}
    stage.park(ONE, limit=0.3)
    ((_, key, reason, lost),) = await stage.told("refused")
    assert (key, lost) == (ONE, False)
    assert "the driver's checkpoint is not used on this node" in reason
    assert ("CUDA graphs" if mood == "refuses" else "end of a step") in reason
    program.goes_on()
    assert stage.stage(ONE) is ParkStage.EXECUTES
    outlasted = stage.spool.runs[ONE].park.outlasted_seconds
    assert outlasted == (0 if mood == "refuses" else 0.3), "the time limit was over only if the program does not answer"
    (path,) = control.live(str(program.folder / "park"))
    request = control.send(path, control.RESUME)
    assert request >= 3, "the park was taken back: the last request said that it is to run"


async def test_what_is_on_the_devices_must_be_known(stage: Stage, fake_driver: Callable[..., None]) -> None:
    program = stage.run(ONE, "/bin/sleep", "1000")
    fake_driver()
    stage.used[ONE] = None
    stage.park(ONE, limit=5)
    ((_, _, reason, lost),) = await stage.told("refused")
    assert "not known yet" in reason
    assert not lost
    until(lambda: program.state() == "S")


async def test_a_run_is_parked_twice_by_the_driver_between_two_looks_at_the_devices(
    stage: Stage, fake_driver: Callable[..., None]
) -> None:
    """NVML shows nothing of a process that is checkpointed, so the last look says that a run that has just resumed has nothing
    on its device. On a GPU such a run was stopped with all its memory on the device."""
    program = stage.run(ONE, mood="refuses")
    fake_driver(program.pid)
    stage.looks[ONE] = [(time.monotonic(), {program.pid: 100})]
    stage.park(ONE)
    await stage.told("parked")
    stage.looks[ONE] = [(time.monotonic(), {})]
    stage.resume(ONE)
    await stage.told("resumed")
    stage.park(ONE)
    await asyncio.sleep(0.3)
    assert stage.stage(ONE) is not ParkStage.PARKED
    stage.looks[ONE].append((time.monotonic(), {program.pid: 100}))
    await stage.told("parked")
    state = stage.spool.runs[ONE].park
    assert (state.rung, state.bytes) == (Rung.DRIVER, 100 << 20)


async def test_what_takes_device_memory_while_it_is_being_stopped_is_not_parked_so(stage: Stage) -> None:
    program = stage.run(ONE, "/bin/sleep", "1000")
    stage.looks[ONE] = [(time.monotonic(), {})]
    stage.park(ONE)
    while program.state() != "T":
        await asyncio.sleep(0.01)
    assert stage.stage(ONE) is not ParkStage.PARKED, "no look has begun since it was stopped"
    stage.looks[ONE].append((time.monotonic(), {program.pid: 100}))
    ((_, _, reason, lost),) = await stage.told("refused")
    assert "the driver's checkpoint is not used on this node" in reason
    assert not lost
    until(lambda: program.state() == "S")


async def test_parked_memory_is_bounded(stage: Stage) -> None:
    """Of two runs one is parked, and nothing is left for the other, which goes on."""
    stage.total = 100 << 20
    stage.again()
    first, second = stage.run(ONE), stage.run(TWO, mood="")
    stage.used[TWO] = {second.pid: 100}
    stage.park(ONE)
    await stage.told("parked")
    stage.park(TWO)
    ((_, key, reason, _),) = await stage.told("refused")
    assert key == TWO
    assert "64 MiB would be moved" in reason
    second.goes_on()
    stage.resume(ONE)
    await stage.told("resumed")
    first.goes_on()
    stage.total = 64 << 20
    stage.again()
    stage.park(TWO)
    ((_, _, reason, _),) = await stage.told("refused")
    assert "64 MiB of 64 MiB are taken" in reason, "the first keeps its memory for the next park"
    assert "parked_memory_mib" in reason


async def test_a_refusal_at_the_end_of_a_step_and_too_little_memory_after_a_park_are_not_too_slow(stage: Stage) -> None:
    """Both take a while, but with more time nothing would be otherwise."""
    refuses = stage.run(ONE, mood="refuses", pause=0.2)
    stage.used[ONE] = {refuses.pid: 100}
    stage.park(ONE)
    ((_, _, reason, _),) = await stage.told("refused")
    assert "CUDA graphs" in reason
    assert stage.spool.runs[ONE].park.outlasted_seconds == 0
    stage.total = 100 << 20
    stage.again()
    programs = {key: stage.run(key) for key in (TWO, THREE)}
    stage.park(TWO, THREE)
    (refused,) = (event for event in await stage.told_any(2) if event[0] == "refused")
    assert "64 MiB of 100 MiB are taken" in refused[2]
    programs[refused[1]].goes_on()
    assert stage.spool.runs[refused[1]].park.outlasted_seconds == 0


async def test_a_program_that_was_asked_in_vain_was_too_slow_whatever_the_driver_says(
    stage: Stage, fake_driver: Callable[..., None]
) -> None:
    """Half of the limit is for asking the program, and half for the driver, which refuses."""
    program = stage.run(ONE, mood="deaf")
    fake_driver(program.pid)
    stage.used[ONE] = {program.pid: 100, 1: 100}
    stage.park(ONE, limit=0.4)
    ((_, _, reason, _),) = await stage.told("refused")
    assert "end of a step" in reason
    assert "one process at a time" in reason
    assert stage.spool.runs[ONE].park.outlasted_seconds == 0.4


async def test_a_parked_run_may_use_more_host_memory_than_it_asked_for(stage: Stage) -> None:
    """By as much as it has moved there, and by no more once its park was refused."""
    stage.run(ONE)
    program = stage.run(TWO, mood="refuses")
    stage.used[TWO] = {program.pid: 100}
    for key in (ONE, TWO):
        record = replace(stage.spool.runs[key], memory_mib=100)
        stage.spool.remember([record])
        stage.holding.hold(record)
    stage.park(ONE)
    await stage.told("parked")
    stage.park(TWO)
    await stage.told("refused")
    assert {key: limit >> 20 for key, (_, limit) in stage.holding.limits.items()} == {ONE: 164, TWO: 100}
    stage.again()
    for record in stage.spool.live():
        stage.holding.adopt(record)
    assert stage.holding.limits[ONE][1] >> 20 == 164, "the next agent knows it"


async def test_parks_at_the_same_time_are_bounded_together(stage: Stage) -> None:
    """Neither knows how much the other one is going to move. One of them is parked, and the other one goes on."""
    stage.total = 100 << 20
    stage.again()
    programs = {key: stage.run(key) for key in (ONE, TWO)}
    stage.park(ONE, TWO)
    events = await stage.told_any(2)
    (refused,) = (event for event in events if event[0] == "refused")
    assert "64 MiB of 100 MiB are taken" in refused[2]
    assert not refused[3]
    programs[refused[1]].goes_on()
    assert sorted(stage.stage(key) for key in (ONE, TWO)) == [ParkStage.EXECUTES, ParkStage.PARKED]


async def test_the_ranks_of_a_gang_on_several_nodes_are_told_which_park_it_is(stage: Stage) -> None:
    """They agree on the step by themselves."""
    program = stage.run(ONE, gang=2, nodes=2)
    stage.used[ONE] = {program.pid: 100}
    for number in (7, 8):
        stage.parking.want(ONE, parked=True, limit=60.0, number=number)
        await stage.told("parked")
        (path,) = control.live(stage.paths.park(ONE))
        data = Path(path).read_bytes()
        assert control.Request(*struct.unpack_from("@QQqq", data, 64))[1:3] == (control.PARK_TOGETHER, number)
        assert stage.spool.runs[ONE].park.rung is Rung.COOPERATIVE
        stage.resume(ONE)
        await stage.told("resumed")
        program.goes_on()


async def test_a_park_that_gets_another_number_is_not_taken_back(stage: Stage) -> None:
    """The ranks of another node may be parked by then, and nobody asks them for a park that they are in already."""
    here, there = RunKey(1, 1, 0), RunKey(1, 1, 1)
    programs = stage.run(here, gang=2, nodes=2), stage.run(there, gang=2, nodes=2, pause=1.5)
    for key, program in zip((here, there), programs, strict=True):
        stage.used[key] = {program.pid: 100}
        stage.parking.want(key, parked=True, limit=60.0, number=7)
    ((_, first, _),) = await stage.told("parked")
    assert first == here
    assert stage.stage(there) is ParkStage.PARKING
    for key in (here, there):
        stage.parking.want(key, parked=True, limit=60.0, number=8)
    ((_, second, _),) = await stage.told("parked")
    assert second == there
    for program in programs:
        assert (program.folder / "numbers.txt").read_text().split() == ["7"]


async def test_a_park_with_another_number_is_tried_after_the_first_has_failed(stage: Stage) -> None:
    program = stage.run(ONE, gang=2, nodes=2, pause=1.0)
    stage.used[ONE] = {program.pid: 100}
    stage.parking.want(ONE, parked=True, limit=0.2, number=7)
    while stage.stage(ONE) is not ParkStage.PARKING:
        await asyncio.sleep(0)
    stage.parking.want(ONE, parked=True, limit=60.0, number=8)
    await stage.told("parked")
    assert (program.folder / "numbers.txt").read_text().split()[-1] == "8"


async def test_a_hook_that_knows_no_agreement_refuses(stage: Stage) -> None:
    program = stage.run(ONE, gang=2, nodes=2, mood="old")
    stage.used[ONE] = {program.pid: 100}
    stage.parking.want(ONE, parked=True, limit=60.0, number=7)
    ((_, _, reason, lost),) = await stage.told("refused")
    assert "unknown to this version of the hook" in reason
    assert not lost
    program.goes_on()


async def test_a_gang_on_several_nodes_does_not_park_itself_without_a_number(stage: Stage) -> None:
    """As under a scheduler that is older than its agents. It is stopped only if it has nothing on a device."""
    program = stage.run(ONE, gang=2, nodes=2)
    stage.used[ONE] = {program.pid: 100}
    stage.park(ONE)
    ((_, _, reason, _),) = await stage.told("refused")
    assert "several nodes" in reason
    stage.used[ONE] = {}
    stage.park(ONE)
    await stage.told("parked")
    assert stage.spool.runs[ONE].park.rung is Rung.STOPPED
    stage.resume(ONE)
    await stage.told("resumed")
    program.goes_on()


async def test_the_tasks_of_a_gang_park_after_the_same_step(stage: Stage) -> None:
    keys = [RunKey(1, 1, task) for task in range(3)]
    for key in keys:
        stage.run(key, gang=3, pause=0.01)
    steps = []
    for _ in range(3):
        stage.park(*keys)
        await stage.told(*["parked"] * 3)
        answers = [control.answer(path) for key in keys for path in control.live(stage.paths.park(key))]
        (step,) = {answer["step"] for answer in answers if answer is not None}
        assert len(answers) == 3
        steps.append(step)
        stage.resume(*keys)
        await stage.told(*["resumed"] * 3)
    assert steps == sorted(set(steps))


async def test_a_park_that_is_not_wanted_any_more_is_given_up(stage: Stage) -> None:
    program = stage.run(ONE, pause=0.5)
    stage.used[ONE] = {program.pid: 100}
    stage.park(ONE)
    while stage.stage(ONE) is not ParkStage.PARKING:
        await asyncio.sleep(0)
    stage.resume(ONE)
    assert stage.parking.executes(ONE)
    await stage.told("resumed")
    assert stage.stage(ONE) is ParkStage.EXECUTES
    assert 0 < stage.spool.runs[ONE].park.outlasted_seconds < 10, "so long it was tried, and not for its limit"
    program.goes_on()


async def test_a_park_that_was_given_up_too_late_lets_nobody_use_the_devices(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is parked when it is to execute again: it resumes, and at no time is it told to be parked."""
    program = stage.run(ONE)
    stop = freezing.stop

    async def slowly(*arguments: Any) -> str:
        why = await stop(*arguments)
        stage.resume(ONE)
        return why

    monkeypatch.setattr(freezing, "stop", slowly)
    stage.park(ONE)
    remember, executed = Spool.remember, []

    def watched(spool: Spool, records: list[RunRecord]) -> None:
        remember(spool, records)
        executed.append(stage.parking.executes(ONE))

    monkeypatch.setattr(Spool, "remember", watched)
    await stage.told("resumed")
    assert all(executed)
    program.goes_on()


async def test_a_run_that_does_not_resume_is_lost(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "RESUME_LIMIT", 0.3)
    program = stage.run(ONE, mood="stuck")
    stage.park(ONE)
    await stage.told("parked")
    stage.resume(ONE)
    ((_, _, reason, lost),) = await stage.told("refused")
    assert lost
    assert reason == "out of memory"
    assert program.process.poll() is None


# ---- an agent that is killed at any point ------------------------------------------------------------------------------------


class Deaths:
    """Kills the agent before or after one of its acts, by number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 1 << 30
        self.died = False
        remember = Spool.remember
        monkeypatch.setattr(Spool, "remember", self._mortal(remember))
        monkeypatch.setattr(control, "send", self._mortal(control.send))
        monkeypatch.setattr(freezing, "_signal", self._mortal(freezing._signal))

    def _mortal(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def mortal(*arguments: Any, **more: Any) -> Any:
            self._pass()
            result = act(*arguments, **more)
            self._pass()
            return result

        return mortal

    def _pass(self) -> None:
        if self.died:
            raise Killed
        self.left -= 1
        if self.left < 0:
            self.died = True
            raise Killed


async def _until_dead_or_told(stage: Stage, deaths: Deaths) -> None:
    while not (stage.events or deaths.died):
        stage.happened.clear()
        async with asyncio.timeout(90):
            await stage.happened.wait()


@pytest.mark.parametrize("kind", ["itself", "together", "driver", "stopped"])
async def test_an_agent_that_is_killed_at_any_point_leaves_what_the_next_one_goes_on_from(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, fake_driver: Callable[..., None], kind: str
) -> None:
    program = stage.run(ONE, mood="refuses") if kind == "driver" else stage.run(ONE)
    if kind == "driver":
        fake_driver(program.pid)
        stage.used[ONE] = {program.pid: 100}
    if kind in ("stopped", "together"):
        stage.number = 5 if kind == "together" else 0
        stage.spool.remember([replace(stage.spool.runs[ONE], gang_size=2, gang_nodes=2)])
    deaths = Deaths(monkeypatch)
    for act, done in ((stage.park, "parked"), (stage.resume, "resumed")):
        points = 0
        while True:
            deaths.left, deaths.died = points, False
            act(ONE)
            await _until_dead_or_told(stage, deaths)
            survived = not deaths.died
            deaths.left, deaths.died = 1 << 30, False
            stage.failures.clear()
            if not survived:
                stage.events.clear()
                stage.again()
                act(ONE)
                if stage.stage(ONE) is not (ParkStage.PARKED if done == "parked" else ParkStage.EXECUTES):
                    await stage.told(done)
            else:
                await stage.told(done)
            if done == "parked":
                assert program.state() == "T"
            else:
                program.goes_on()
            if survived:
                break
            other, back = (stage.resume, "resumed") if done == "parked" else (stage.park, "parked")
            other(ONE)
            await stage.told(back)
            points += 1
        assert points >= 6, f"{kind}: an agent was killed at {points} points until it was {done}"


async def test_the_time_that_a_run_was_parked_is_known(stage: Stage) -> None:
    stage.run(ONE)
    began = time.monotonic()
    stage.park(ONE)
    await stage.told("parked")
    parked = time.monotonic()
    await asyncio.sleep(0.2)
    resuming = time.monotonic()
    stage.resume(ONE)
    await stage.told("resumed")
    state = stage.spool.runs[ONE].park
    assert resuming - parked <= state.parked_seconds <= time.monotonic() - began
    assert 0.001 <= state.switching_seconds <= time.monotonic() - began - state.parked_seconds


async def test_a_park_does_not_take_the_time_in_which_no_agent_was_there(stage: Stage) -> None:
    """An agent was killed in the middle of a park, and one in the middle of a resume; each time the next one comes an hour
    later."""
    program = stage.run(ONE, pause=0.3)
    stage.used[ONE] = {program.pid: 100}
    for left_in, act, told in (
        (ParkStage.PARKING, stage.park, "parked"),
        (ParkStage.RESUMING, stage.resume, "resumed"),
    ):
        record = stage.spool.runs[ONE]
        half = replace(record.park, stage=left_in, rung=Rung.COOPERATIVE, changed=time.monotonic() - 3600)
        stage.spool.remember([replace(record, park=half)])
        stage.again()
        act(ONE)
        await stage.told(told)
        while stage.parking._at_work:
            await asyncio.sleep(0)
    state = stage.spool.runs[ONE].park
    assert 0 < state.wait_seconds < 600
    assert 0 < state.resume_seconds < 600


async def test_anything_may_be_in_a_control_file(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "park"
    made = control.Control(str(folder))
    odd: list[dict[str, Any]] = [
        {"request": True, "state": 5, "bytes": -1, "seconds": []},
        {"request": 1 << 80, "state": "parked", "bytes": 1.5, "residue": 1 << 60, "seconds": {"a": "b", "c": 1e300, "d": 2}},
    ]
    for answer in odd:
        made.answer(answer)
        found = requests.answer_of(made.path)
        assert found is not None
        assert (found.number, found.bytes, found.residue) == (0, 0, 0)
        assert found.seconds in ({}, {"d": 2.0})
    made.close()
    assert requests.answer_of(str(folder / "no such file")) is None
