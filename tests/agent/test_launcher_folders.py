"""The folders that the launcher makes in advance."""

import asyncio
import os
import signal
from pathlib import Path

from node_agent.processes.launcher.client import (
    Connected,
    Ended,
    Spawned,
)
from node_agent.processes.launcher.spawn import LOG_FILE
from node_agent.run_state.model import RunKey
from tests.agent.launching import KEY, Client, Play, end_on_disk


async def spare(client: Client) -> Path:
    """The folder that the launcher has made in advance."""
    async with asyncio.timeout(20):
        while not (spares := list(client.state.glob(f"spare-*/{LOG_FILE}"))):
            await asyncio.sleep(0.02)
    return spares[0].parent


def test_a_run_gets_the_folder_that_was_made_in_advance(play: Play) -> None:
    async def scene(client: Client) -> None:
        (client.state / str(RunKey(2, 1))).mkdir()  # as for a task of a gang, which waits there
        for key in (KEY, RunKey(2, 1)):
            made = (await spare(client)).stat().st_ino
            run = client.spawn("sh", "-c", "echo out; pwd; exit 7", key=key)
            await client.next(Spawned)
            assert run.stat().st_ino == made
            assert (await client.next(Ended)).code == 7
            assert (run / LOG_FILE).read_text() == f"out\n{run}\n"
            assert end_on_disk(run) == (7, 0)

    play(scene)


def test_runs_that_come_together_do_not_wait_for_folders(play: Play) -> None:
    async def scene(client: Client) -> None:
        await spare(client)
        keys = [RunKey(number, 1) for number in range(1, 6)]
        runs = [client.spawn("sh", "-c", "pwd", key=key) for key in keys]
        told = [await asyncio.wait_for(client.events.get(), 20) for _ in range(2 * len(keys))]
        assert [sum(isinstance(event, kind) for event in told) for kind in (Spawned, Ended)] == [5, 5], told  # in any order
        assert [(run / LOG_FILE).read_text() for run in runs] == [f"{run}\n" for run in runs]

    play(scene)


def test_the_folder_made_in_advance_takes_the_place_of_nothing(play: Play) -> None:
    async def scene(client: Client) -> None:
        await spare(client)
        run = client.state / str(KEY)
        run.mkdir()
        (run / "work").write_text("mine")
        assert client.spawn("cat", "work") == run
        await client.next(Spawned)
        await client.next(Ended)
        assert (run / LOG_FILE).read_text() == "mine"

    play(scene)


def test_no_folder_made_in_advance_is_left(play: Play) -> None:
    async def scene(client: Client) -> None:
        left = await spare(client)
        os.kill(client.launcher.pid, signal.SIGKILL)
        await client.next(Connected)
        assert await spare(client) != left
        assert not left.exists()
        await client.launcher.quit()
        assert list(client.state.glob("spare-*")) == []

    play(scene)
