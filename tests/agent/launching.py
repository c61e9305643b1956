"""A launcher, and scenes with a client of it."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from node_agent.processes.launcher.client import (
    Connected,
    Ended,
    Event,
    LauncherClient,
    Spawned,
    SpawnRequest,
)
from node_agent.processes.launcher.spawn import EXIT_FILE, LOG_FILE
from node_agent.run_state.model import RunKey

E = TypeVar("E")
KEY = RunKey(1, 1)
SPOOL = "s1"


class Client:
    """A connection to the launcher of `state`, whose events can be awaited."""

    def __init__(self, state: Path, spool: str = SPOOL) -> None:
        self.state = state
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.launcher = LauncherClient(state, spool, self.hear, idle_limit=1)

    def hear(self, events: list[Event]) -> None:
        for event in events:
            self.events.put_nowait(event)

    async def __aenter__(self) -> "Client":
        self.task = asyncio.create_task(self.launcher.run())
        await self.next(Connected)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def next(self, kind: type[E]) -> E:
        event = await asyncio.wait_for(self.events.get(), 20)
        assert isinstance(event, kind), event
        return event

    def spawn(
        self,
        *command: str,
        key: RunKey = KEY,
        cpus: frozenset[int] | None = None,
        cwd: Path | None = None,
        group: Path | None = None,
        **env: str,
    ) -> Path:
        run = self.state / str(key)
        environment = {"PATH": os.defpath, "EBB_RUN_DIR": f"{self.state}/{key}"} | env
        self.launcher.spawn(SpawnRequest(key, command, environment, cwd or run, run, cpus, str(group or "")))
        return run

    async def run(self, *command: str, **options: object) -> tuple[Ended, str]:
        run = self.spawn(*command, **options)  # type: ignore[arg-type]
        await self.next(Spawned)
        return await self.next(Ended), (run / LOG_FILE).read_text()


def end_on_disk(run: Path) -> tuple[int, int]:
    end = json.loads((run / EXIT_FILE).read_text())
    return end["code"], end["signal"]


@pytest.fixture
def play(state: Path) -> Callable[[Callable[[Client], Awaitable[None]]], None]:
    """Runs a scene with a client in an event loop."""
    state.mkdir()

    async def scene(what: Callable[[Client], Awaitable[None]]) -> None:
        async with Client(state) as client:
            await what(client)

    return lambda what: asyncio.run(scene(what))


Play = Callable[[Callable[[Client], Awaitable[None]]], None]
