"""The launcher with real processes."""

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from node_agent.processes.launcher.client import (
    Absent,
    Connected,
    Ended,
    NotSpawned,
    Spawned,
)
from node_agent.processes.launcher.spawn import LOG_FILE, PROCESS_FILE
from node_agent.processes.process_groups import group_members, kill_group, kill_rest, start_ticks
from node_agent.processes.process_watch import GroupWatch
from node_agent.run_state.model import Process, RunKey
from tests.agent.conftest import alive, until
from tests.agent.launching import KEY, SPOOL, Client, Play, end_on_disk


def test_exit_codes_signals_and_the_log(play: Play) -> None:
    async def scene(client: Client) -> None:
        ended, text = await client.run("sh", "-c", "echo out; echo err >&2; exit 7")
        assert (ended.code, ended.signal, text) == (7, 0, "out\nerr\n")
        assert end_on_disk(client.state / str(KEY)) == (7, 0)
        other = RunKey(2, 1)
        (client.state / str(other)).mkdir()
        (client.state / str(other) / LOG_FILE).write_text("before\n")
        ended, text = await client.run("sh", "-c", "echo after; kill -ABRT $$", key=other)
        assert (ended.code, ended.signal, text) == (0, signal.SIGABRT, "before\nafter\n")

    play(scene)


def test_a_job_gets_a_clean_process(play: Play) -> None:
    async def scene(client: Client) -> None:
        # A job inherits no descriptor but the usual three, ignores no signal, and leads its own session and group.
        script = "ls /proc/self/fd | wc -l; grep -E 'SigIgn|SigBlk' /proc/self/status; cut -d' ' -f5,6 /proc/self/stat; pwd"
        _, text = await client.run("sh", "-c", f"echo $$; {script}; env", A="1")
        lines = text.splitlines()
        assert lines[1] == "4"  # 0, 1, 2, and the folder that ls reads
        libc_own = 0b11 << 31  # 32 and 33: GNU make leaves them ignored in all that it starts, and libc lets nobody change them
        assert [int(line.split()[1], 16) & ~libc_own for line in lines[2:4]] == [0, 0]
        assert lines[4] == f"{lines[0]} {lines[0]}"
        assert lines[5] == f"{client.state}/{KEY}"
        assert "A=1" in lines
        assert not any(line.startswith("HOME=") for line in lines)

    play(scene)


def test_cpu_sets(play: Play) -> None:
    async def scene(client: Client) -> None:
        every = os.sched_getaffinity(0)
        one = frozenset({max(every)})
        show = ("sh", "-c", "exec grep Cpus_allowed_list /proc/self/status")
        _, text = await client.run(*show, cpus=one)
        assert text.split()[1] == str(max(every))
        _, text = await client.run("nproc", key=RunKey(2, 1))
        assert int(text) == len(every)

    play(scene)


def test_a_run_is_over_when_its_group_is(play: Play) -> None:
    async def scene(client: Client) -> None:
        client.spawn("sh", "-c", "(trap '' TERM; sleep 1000 & sleep 1000) & sh -c 'sleep 1000 & sleep 1000' & exit 2")
        pid = (await client.next(Spawned)).pid
        assert (await client.next(Ended)).code == 2
        assert group_members(pid) == []

    play(scene)


@pytest.mark.parametrize(
    ("command", "cwd", "error"),
    [
        ("/no/such/program", None, "command /no/such/program: No such file or directory"),
        ("no-such-program", None, "command no-such-program: No such file or directory"),
        ("/", None, "command /: Permission denied"),
        ("true", "/no/such/place", "working directory /no/such/place: No such file or directory"),
    ],
)
def test_launch_errors(play: Play, command: str, cwd: str | None, error: str) -> None:
    async def scene(client: Client) -> None:
        for _ in range(2):  # the second answer comes from the file
            client.spawn(command, cwd=Path(cwd) if cwd else None)
            assert await client.next(NotSpawned) == NotSpawned(KEY, error)

    play(scene)


def test_spawn_runs_once(play: Play) -> None:
    async def scene(client: Client) -> None:
        script = ("sh", "-c", "echo once; until [ -e go ]; do sleep 0.02; done")
        for _ in range(3):
            run = client.spawn(*script)
        first = await client.next(Spawned)
        assert [await client.next(Spawned) for _ in range(2)] == [first] * 2
        (run / "go").touch()
        await client.next(Ended)
        client.spawn(*script)
        assert await client.next(Spawned) == replace(first, child=False)
        assert (run / LOG_FILE).read_text() == "once\n"
        client.launcher.find(RunKey(9, 9), client.state / "9.9")
        assert await client.next(Absent) == Absent(RunKey(9, 9))

    play(scene)


def test_what_comes_in_the_head_start_of_a_run_finds_it(play: Play) -> None:
    """A run is told of a moment after it began; whatever is asked in between is answered as if it had been at once."""

    async def scene(client: Client) -> None:
        client.spawn("sleep", "1000")
        client.spawn("sleep", "1000")
        await client.__aexit__()
        other = Client(client.state)
        other.task = asyncio.create_task(other.launcher.run())
        (told,) = (await other.next(Connected)).runs.items()
        assert told == (KEY, Process(told[1].pid, start_ticks(told[1].pid)))
        assert json.loads((client.state / str(KEY) / PROCESS_FILE).read_text())["pid"] == told[1].pid
        other.spawn("sleep", "1000", key=RunKey(2, 1))
        await other.launcher.quit()
        spawned = await other.next(Spawned)
        assert spawned.key == RunKey(2, 1)
        assert {(await other.next(Ended)).key for _ in range(2)} == {KEY, spawned.key}
        assert not alive(spawned.pid)
        await other.__aexit__()

    play(scene)


def test_the_next_client_finds_the_same_launcher(play: Play) -> None:
    async def scene(client: Client) -> None:
        run = client.spawn("sh", "-c", "until [ -e go ]; do sleep 0.02; done; exit 9")
        await client.next(Spawned)
        launcher = client.launcher.pid
        await client.__aexit__()
        again = Client(client.state)
        again.task = asyncio.create_task(again.launcher.run())
        assert list((await again.next(Connected)).runs) == [KEY]
        assert again.launcher.pid == launcher
        (run / "go").touch()
        assert (await again.next(Ended)).code == 9
        await again.__aexit__()

    play(scene)


def test_a_watch_kills_what_the_leader_leaves(play: Play) -> None:
    async def scene(client: Client) -> None:
        run = client.spawn("sh", "-c", "sleep 1000 & sleep 1000 & until [ -e go ]; do sleep 0.02; done")
        spawned = await client.next(Spawned)
        os.kill(client.launcher.pid, signal.SIGKILL)
        await client.next(Connected)
        ended = asyncio.Event()
        GroupWatch(spawned.pid, spawned.start_ticks, ended.set).begin()
        (run / "go").touch()
        await asyncio.wait_for(ended.wait(), 20)
        assert group_members(spawned.pid) == []

    play(scene)


def test_a_watch_leaves_a_stranger_with_the_same_pid_alone(play: Play) -> None:
    async def scene(client: Client) -> None:
        client.spawn("sleep", "1000")
        spawned = await client.next(Spawned)
        ended = asyncio.Event()
        GroupWatch(spawned.pid, spawned.start_ticks - 1, ended.set).begin()
        assert ended.is_set()
        assert start_ticks(spawned.pid) == spawned.start_ticks

    play(scene)


def test_the_rest_of_a_run_is_no_stranger_with_the_pid_of_its_leader(play: Play) -> None:
    """What is left in its control group may take days to die. By then its leader's number is another's."""

    async def scene(client: Client) -> None:
        client.spawn("sleep", "1000")
        spawned = await client.next(Spawned)
        assert kill_rest(spawned.pid, spawned.start_ticks - 1, "") == []
        assert start_ticks(spawned.pid) == spawned.start_ticks
        assert kill_rest(spawned.pid, spawned.start_ticks, "") in ([spawned.pid], [])
        assert (await client.next(Ended)).signal == signal.SIGKILL

    play(scene)


def test_nobody_is_taken_for_everybody() -> None:
    assert [kill_group(group, 0) for group in (0, 1, os.getpgrp())] == [False, False, True]


def test_quit_leaves_nothing(play: Play) -> None:
    async def scene(client: Client) -> None:
        client.spawn("sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000")
        pid = (await client.next(Spawned)).pid
        launcher = client.launcher.pid
        await client.launcher.quit()
        assert (await client.next(Ended)).signal == signal.SIGKILL
        assert not alive(launcher)
        assert group_members(pid) == []

    play(scene)


def test_an_idle_launcher_leaves(play: Play) -> None:
    async def scene(client: Client) -> None:
        pid = client.launcher.pid
        await client.__aexit__()
        assert alive(pid)
        until(lambda: not alive(pid))

    play(scene)


def test_commands_are_looked_for_on_the_path_of_the_job(play: Play) -> None:
    async def scene(client: Client) -> None:
        work, first, second = (client.state / name for name in ("work", "first", "second"))
        for folder in (work, first, second):
            folder.mkdir()
        for folder, mode in ((work, 0o755), (first, 0o644), (second, 0o755)):
            program = folder / "program"
            program.write_text(f"#!/bin/sh\necho {folder.name}\n")
            program.chmod(mode)
        path = f"/no/such/folder:{first}:{second}"
        assert (await client.run("program", cwd=work, PATH=path))[1] == "second\n"
        assert (await client.run("./program", key=RunKey(2, 1), cwd=work, PATH=path))[1] == "work\n"
        assert (await client.run("program", key=RunKey(3, 1), cwd=work, PATH=":/no/such/folder"))[1] == "work\n"
        client.spawn("program", key=RunKey(4, 1), PATH=f"{first}:/no/such/folder")
        assert (await client.next(NotSpawned)).error == "command program: Permission denied"
        client.spawn("true", key=RunKey(5, 1), **{"A=B": "no name of a variable"})  # type: ignore[arg-type]
        assert "environment variable" in (await client.next(NotSpawned)).error

    play(scene)


def test_runs_of_another_spool_are_told_apart(play: Play) -> None:
    async def scene(client: Client) -> None:
        run = client.spawn("sh", "-c", "until [ -e go ]; do sleep 0.02; done; exit 9")
        spawned = await client.next(Spawned)
        await client.__aexit__()
        other = Client(client.state, "s2")
        other.task = asyncio.create_task(other.launcher.run())
        assert await other.next(Connected) == Connected({}, {f"{SPOOL}/{KEY}": Process(spawned.pid, spawned.start_ticks)})
        (run / "go").touch()
        while alive(spawned.pid):
            await asyncio.sleep(0.02)
        other.launcher.find(KEY, client.state / "elsewhere")
        assert await other.next(Absent) == Absent(KEY)  # and not the end of the other's
        await other.__aexit__()

    play(scene)
