"""The contract of the launcher: what `run_world` models, by which orders are shown to end, answers as the real one does."""

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent.processes import process_groups as processes
from node_agent.processes.launcher.client import Absent, Ended, Event, NotSpawned, Spawned, SpawnRequest
from node_agent.run_state.model import RunKey
from tests.agent.conftest import until
from tests.agent.launching import Client
from tests.agent.run_world import Conduct, World, play
from tests.thorough import examples

LEAVES, IGNORES, ENDS, FAILS = RunKey(1, 1), RunKey(2, 1), RunKey(3, 1), RunKey(4, 1)
"""Runs: one that SIGTERM ends, one that ignores SIGTERM, one that ends with code 3 by itself, one without such a command."""
COMMANDS = {
    LEAVES: ("sleep", "1000"),
    IGNORES: ("sh", "-c", 'trap "" TERM; touch "$EBB_RUN_DIR/ready"; exec sleep 1000'),
    ENDS: ("sh", "-c", "exit 3"),
    FAILS: ("/no/such/command",),
}
CALLS = ("spawn", "find", "terminate", "kill", "led")
LIMIT = 20.0
Answer = tuple[object, ...]


class Side(Protocol):
    """A launcher, and the processes that it has started."""

    async def spawn(self, key: RunKey) -> None: ...
    def find(self, key: RunKey) -> None: ...
    def led_by(self, pid: int, ticks: int) -> bool: ...
    def terminate(self, pid: int) -> None: ...
    def kill(self, pid: int) -> None: ...
    async def next(self) -> Event: ...


class Real:
    """The launcher, its client, and signals as `Stopping` sends them."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def spawn(self, key: RunKey) -> None:
        self.client.spawn(*COMMANDS[key], key=key, cwd=self.client.state)

    def find(self, key: RunKey) -> None:
        self.client.launcher.find(key, self.client.state / str(key))

    def led_by(self, pid: int, ticks: int) -> bool:
        return processes.is_led_by(pid, ticks)

    def terminate(self, pid: int) -> None:
        processes.terminate_group(pid, ())

    def kill(self, pid: int) -> None:
        processes.kill_group(pid, signal.SIGKILL)

    async def next(self) -> Event:
        event = await asyncio.wait_for(self.client.events.get(), LIMIT)
        if isinstance(event, Spawned) and event.key == IGNORES and event.child:
            until((self.client.state / str(IGNORES) / "ready").exists)  # before, SIGTERM would end it
        return event


class Modelled(World):
    """The model, without the agent: what it tells is kept."""

    def __post_init__(self) -> None:
        self.heard: asyncio.Queue[Event] = asyncio.Queue()
        super().__post_init__()
        while not self.heard.empty():
            self.heard.get_nowait()  # that it is connected
        self.conduct = {IGNORES: Conduct(leaves_s=None), FAILS: Conduct(fails=True)}

    def tell(self, event: Event) -> None:
        self.heard.put_nowait(event)


class Model:
    def __init__(self, world: Modelled) -> None:
        self.world = world

    async def spawn(self, key: RunKey) -> None:
        folder = self.world.paths.folder(key)
        self.world.spawn(SpawnRequest(key, COMMANDS[key], {}, folder, folder, None))
        if key == ENDS:
            await asyncio.sleep(0.1)
            for pid in [pid for pid, life in self.world.lives.items() if life.key == key]:
                self.world.end(pid, 3, 0)

    def find(self, key: RunKey) -> None:
        self.world.find(key, str(self.world.paths.folder(key)))

    def led_by(self, pid: int, ticks: int) -> bool:
        return self.world.led_by(pid, ticks)

    def terminate(self, pid: int) -> None:
        self.world.terminate(pid)

    def kill(self, pid: int) -> None:
        self.world.kill(pid)

    async def next(self) -> Event:
        return await asyncio.wait_for(self.world.heard.get(), LIMIT)


async def answers(side: Side, calls: Sequence[tuple[str, RunKey]]) -> list[Answer]:
    """What is answered to these calls, without what differs from one process to the next. Each end is waited for that a call
    causes; a look at the end shows that nothing else was told."""
    said: list[Answer] = []
    first: dict[RunKey, Spawned] = {}
    gone: set[RunKey] = set()

    async def hear() -> None:
        event = await side.next()
        match event:
            case Spawned(key, pid, ticks, child):
                before = first.setdefault(key, event)
                said.append(("spawned", key, (pid, ticks) == (before.pid, before.start_ticks), child))
            case Ended(key, code, signum):
                gone.add(key)
                said.append(("ended", key, code, signum))
            case NotSpawned(key, error):
                said.append(("not spawned", key, bool(error)))
            case Absent(key):
                said.append(("absent", key))
            case _:
                said.append((type(event).__name__,))

    for call, key in [*calls, *(("find", key) for key in COMMANDS)]:
        run = first.get(key)
        if call == "spawn":
            await side.spawn(key)
            await hear()
            if key == ENDS and run is None:
                await hear()
        elif call == "find":
            side.find(key)
            await hear()
        elif run is None:
            continue  # nobody signals a run of which no process is known
        elif call == "led":
            said.append(("led", key, side.led_by(run.pid, run.start_ticks)))
        elif call == "terminate":
            side.terminate(run.pid)
            if key == LEAVES and key not in gone:
                await hear()
        else:
            side.kill(run.pid)
            if key not in gone:
                await hear()
    return said


def of_real(state: Path, calls: Sequence[tuple[str, RunKey]]) -> list[Answer]:
    async def scene() -> list[Answer]:
        async with Client(state) as client:
            try:
                return await answers(Real(client), calls)
            finally:
                await client.launcher.quit()

    return asyncio.run(scene())


def of_model(state: Path, calls: Sequence[tuple[str, RunKey]]) -> list[Answer]:
    found: list[Answer] = []

    async def scene(_: World) -> None:
        world = Modelled(state / "other")
        try:
            found.extend(await answers(Model(world), calls))
        finally:
            world.executor.close()
            world.spool.close()

    (state / "other").mkdir()
    play(state, scene)
    return found


def both(calls: Sequence[tuple[str, RunKey]]) -> None:
    sides: tuple[Callable[[Path, Sequence[tuple[str, RunKey]]], list[Answer]], ...] = of_real, of_model
    found = []
    for side in sides:
        folder = Path(tempfile.mkdtemp())
        try:
            found.append(side(folder, calls))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    real, modelled = found
    assert modelled == real


@pytest.mark.parametrize("key", COMMANDS)
def test_each_call_before_and_after_the_end_of_a_run(key: RunKey) -> None:
    both([(call, key) for call in ("find", "spawn", "spawn", "led", "find", "terminate", "find", "led", "kill", *CALLS)])


@settings(max_examples=examples(8))
@given(st.lists(st.tuples(st.sampled_from(CALLS), st.sampled_from(tuple(COMMANDS))), max_size=12))
def test_any_calls(calls: list[tuple[str, RunKey]]) -> None:
    both(calls)
