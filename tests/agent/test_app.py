"""The agent's process from inside: what ends it, and how."""

import asyncio
import errno
import gc
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from node_agent import app, state_directory
from node_agent.config import load
from node_agent.errors import RunsLive, StateUnusable
from node_agent.processes.process_groups import boot_id, start_ticks
from node_agent.run_state.model import Process, RunKey, RunPhase, RunRecord
from node_agent.runs.spool_opening import open_spool
from node_agent.runs.stopping import Stopping
from tests.agent.conftest import alive, run_directory, until
from tests.agent.fake_scheduler import FakeScheduler


@asynccontextmanager
async def serving(state: Path, scheduler: FakeScheduler) -> AsyncIterator["asyncio.Task[None]"]:
    """The agent in this process, told to kill its jobs when it is stopped; gives its task once a job runs."""
    flags = {"scheduler": scheduler.address, "devices": "cpu-20c", "state": state, "node": "n1", "launcher_idle": 1}
    task = asyncio.create_task(app.run(load(flags | {"stop_jobs_on_exit": True, "allow_root": True})))
    try:
        await asyncio.to_thread(scheduler.connected)
        scheduler.start(1, "/bin/sh", "-c", "trap '' TERM; touch ready; while :; do sleep 0.05; done")
        await asyncio.to_thread(scheduler.started, 1)
        await asyncio.to_thread(until, (run_directory(state, 1) / "ready").exists)  # before that, a signal would end it
        yield task
    finally:
        if not task.done():
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait([task])


async def test_a_fault_ends_the_agent_and_leaves_jobs(
    state: Path, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError("the spool cannot be written")

    async with serving(state, scheduler) as task:
        monkeypatch.setattr(Stopping, "_kill", broken)
        scheduler.stop(1, 0.1)
        with pytest.raises(ExceptionGroup) as fault:
            await asyncio.wait_for(asyncio.shield(task), 20)
    assert str(fault.value.exceptions[0]) == "the spool cannot be written"
    assert alive(scheduler.started(1).pid)


async def test_an_error_that_is_nobodys_is_logged_and_no_more(state: Path, scheduler: FakeScheduler) -> None:
    async def forgotten() -> None:
        raise RuntimeError("nobody asks")

    async with serving(state, scheduler) as task:
        lost = asyncio.create_task(forgotten())
        await asyncio.sleep(0.05)
        del lost
        gc.collect()
        await asyncio.sleep(0.2)
        assert not task.done()
    assert not alive(scheduler.started(1).pid)


@pytest.mark.parametrize("noted", ["in the spool", "by the launcher"])
def test_a_cluster_is_not_forgotten_while_its_runs_are_alive(state: Path, noted: str) -> None:
    state.mkdir()
    settings = load({"scheduler": "127.0.0.1:1", "devices": "cpu-20c", "state": state, "forget_cluster": True})
    spool = open_spool(state / "spool.db")
    spool.obey("c1", 3)
    directory = state / "runs" / spool.short_id / "7.1"
    directory.mkdir(parents=True)
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as run:
        process = Process(run.pid, start_ticks(run.pid))
        try:
            if noted == "in the spool":
                spool.remember([RunRecord(RunKey(7, 1), RunPhase.RUNNING, None, *process)])
            else:
                spool.remember([RunRecord(RunKey(7, 1), RunPhase.STARTING)])
                known = {"pid": process.pid, "start": process.start_ticks, "boot": boot_id()}
                (directory / "process.json").write_text(json.dumps(known))
            with pytest.raises(RunsLive, match=r"runs of cluster c1 are still alive on this node: 7\.1\. "):
                state_directory.forgotten(spool, settings)
        finally:
            run.kill()
    spool = open_spool(state / "spool.db")
    assert (len(spool.live()), spool.cluster) == (1, ("c1", 3))
    new = state_directory.forgotten(spool, settings)  # nothing of it is alive, whatever the spool still says
    assert (new.live(), new.cluster) == ([], ("", 0))
    new.close()


def test_a_full_disk_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock can be made, and nothing be written into it."""

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(state_directory.os, "write", full)
        with pytest.raises(StateUnusable, match="No space left on device"):
            state_directory.state_directory(tmp_path).__enter__()
    with state_directory.state_directory(tmp_path):  # and the directory is free again
        pass
