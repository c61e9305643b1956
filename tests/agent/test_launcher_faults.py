"""The launcher where something breaks: itself, the disk, descriptors, a job that meddles with its files."""

import asyncio
import errno
import os
import resource
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from node_agent.processes.launcher.client import (
    Connected,
    Ended,
    Event,
    LauncherClient,
    Lost,
    NotSpawned,
    Spawned,
    Unable,
)
from node_agent.processes.launcher.spawn import EXIT_FILE, LOG_FILE, PROCESS_FILE
from node_agent.processes.process_groups import group_members, start_ticks
from node_agent.processes.process_watch import GroupWatch
from node_agent.run_state.model import RunKey
from tests.agent.conftest import alive
from tests.agent.launching import KEY, SPOOL, Client, Play, end_on_disk


def test_runs_that_are_not_told_of_yet_do_not_take_all_descriptors(play: Play) -> None:
    async def scene(client: Client) -> None:
        launcher = client.launcher.pid
        resource.prlimit(launcher, resource.RLIMIT_NOFILE, (40, 40))
        keys = [RunKey(number, 1) for number in range(1, 51)]
        os.kill(launcher, signal.SIGSTOP)  # so that it finds them all at once
        for key in keys:
            client.spawn("sleep", "1000", key=key)
        os.kill(launcher, signal.SIGCONT)
        assert [(await client.next(Spawned)).key for _ in keys] == keys
        await client.launcher.quit()

    play(scene)


def test_after_the_launchers_death_jobs_go_on_and_are_known(play: Play) -> None:
    async def scene(client: Client) -> None:
        script = ("sh", "-c", "echo once; until [ -e go ]; do sleep 0.02; done")
        run = client.spawn(*script)
        spawned = await client.next(Spawned)
        os.kill(client.launcher.pid, signal.SIGKILL)
        assert (await client.next(Connected)).runs == {}
        assert alive(spawned.pid)
        client.spawn(*script)
        assert await client.next(Spawned) == replace(spawned, child=False)
        (run / PROCESS_FILE).write_text("")  # as if it had died before it wrote this
        client.spawn(*script)
        assert await client.next(Spawned) == Spawned(KEY, spawned.pid, spawned.start_ticks, child=False)
        ended = asyncio.Event()
        GroupWatch(spawned.pid, spawned.start_ticks, ended.set).begin()
        (run / "go").touch()
        await asyncio.wait_for(ended.wait(), 20)
        (run / PROCESS_FILE).write_text("")
        client.spawn(*script)
        assert await client.next(Lost) == Lost(KEY)
        assert (run / LOG_FILE).read_text() == "once\n"

    play(scene)


def test_an_end_is_kept_whatever_the_job_does_to_the_files_of_its_run(play: Play) -> None:
    async def scene(client: Client) -> None:
        for number, script in enumerate(("rm *.json", "echo [ >exit.json", "rm process.json; mkfifo process.json"), start=1):
            key = RunKey(number, 1)
            await client.run("sh", "-c", f"{script}; exit {number}", key=key)
            assert end_on_disk(client.state / str(key)) == (number, 0)
        victim = client.state / "victim"
        victim.write_text("untouched")
        await client.run("sh", "-c", f"ln -sf {victim} process.json; exit 7", key=RunKey(9, 1))
        assert end_on_disk(client.state / "9.1") == (7, 0)
        assert victim.read_text() == "untouched"

    play(scene)


def limit(pid: int, what: int, most: int) -> None:
    resource.prlimit(pid, what, (most, resource.prlimit(pid, what)[1]))


def test_a_full_disk_costs_neither_the_launcher_nor_an_exit_status(play: Play) -> None:
    async def scene(client: Client) -> None:
        launcher = client.launcher.pid
        unlimited = resource.prlimit(launcher, resource.RLIMIT_FSIZE)[0]
        limit(launcher, resource.RLIMIT_FSIZE, 0)  # files can be made, and nothing written into them
        run = client.spawn("sh", "-c", "until [ -e go ]; do sleep 0.02; done; exit 5")
        spawned = await client.next(Spawned)
        assert spawned.start_ticks == start_ticks(spawned.pid)
        assert (run / PROCESS_FILE).read_text() == ""
        client.spawn("/no/such/program", key=RunKey(2, 1))
        assert "No such file" in (await client.next(NotSpawned)).error
        (run / "go").touch()
        assert (await client.next(Ended)).code == 5
        assert not (run / EXIT_FILE).exists()
        await client.__aexit__()
        again = Client(client.state)
        again.task = asyncio.create_task(again.launcher.run())
        assert list((await again.next(Connected)).runs) == [KEY]
        assert again.launcher.pid == launcher
        assert await again.next(Ended) == Ended(KEY, 5, 0)
        limit(launcher, resource.RLIMIT_FSIZE, unlimited)
        while not (run / EXIT_FILE).exists():
            await asyncio.sleep(0.02)
        assert end_on_disk(run) == (5, 0)
        await again.__aexit__()

    play(scene)


async def spare(client: Client) -> None:
    """Until the launcher has made the next run's folder in advance, and holds its files open."""
    async with asyncio.timeout(20):
        while not list(client.state.glob(f"spare-{client.launcher.pid}/{LOG_FILE}")):
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("prepared", [False, True])
def test_without_descriptors_nothing_is_launched_and_nothing_forgotten(play: Play, prepared: bool) -> None:
    """Whether or not the launcher has files open for the next run: those are above the limit."""

    async def scene(client: Client) -> None:
        launcher = client.launcher.pid
        before = resource.prlimit(launcher, resource.RLIMIT_NOFILE)[0]
        run = client.spawn("sh", "-c", "(trap '' TERM; sleep 1000 & sleep 1000) & until [ -e go ]; do sleep 0.02; done; exit 6")
        spawned = await client.next(Spawned)
        if prepared:
            await spare(client)
        limit(launcher, resource.RLIMIT_NOFILE, 3)
        client.spawn("true", key=RunKey(2, 1))
        assert "Too many open files" in (await client.next(Unable)).error
        (run / "go").touch()
        while alive(spawned.pid):
            await asyncio.sleep(0.02)
        client.launcher.find(RunKey(3, 1), client.state / "3.1")
        assert isinstance(await client.next(Unable), Unable)
        assert client.launcher.pid == launcher
        limit(launcher, resource.RLIMIT_NOFILE, before)
        assert (await client.next(Ended)).code == 6
        assert group_members(spawned.pid) == []
        client.spawn("true", key=RunKey(2, 1))
        await client.next(Spawned)
        assert (await client.next(Ended)).code == 0

    play(scene)


def test_a_log_that_cannot_be_opened_is_the_nodes_fault(play: Play) -> None:
    async def scene(client: Client) -> None:
        log = client.state / str(KEY) / LOG_FILE
        log.mkdir(parents=True)
        client.spawn("true")
        assert await client.next(Unable) == Unable(KEY, f"{log}: Is a directory")
        log.rmdir()
        client.spawn("true")
        await client.next(Spawned)
        assert (await client.next(Ended)).code == 0

    play(scene)


def test_what_the_listener_raises_is_not_taken_for_the_launchers_fault(state: Path) -> None:
    def listen(_: list[Event]) -> None:
        raise ValueError("the executor's")

    state.mkdir()
    with pytest.raises(ValueError, match="the executor's"):
        asyncio.run(asyncio.wait_for(LauncherClient(state, SPOOL, listen, idle_limit=1).run(), 20))


def test_a_watch_without_descriptors_waits_for_one(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(client: Client) -> None:
        run = client.spawn("sh", "-c", "until [ -e go ]; do sleep 0.02; done")
        spawned = await client.next(Spawned)
        ended = asyncio.Event()
        with monkeypatch.context() as patched:

            def none_left(_: int) -> int:
                raise OSError(errno.EMFILE, "Too many open files")

            patched.setattr(os, "pidfd_open", none_left)
            GroupWatch(spawned.pid, spawned.start_ticks, ended.set).begin()
        assert not ended.is_set()
        (run / "go").touch()
        await asyncio.wait_for(ended.wait(), 20)
        assert not alive(spawned.pid)

    play(scene)
