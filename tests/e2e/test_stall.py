"""What stalls and comes back, and what dies alone: a stopped agent, and the embedded database."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from client_sdk import Client, JobState, NodeState
from tests.harness import quick_cluster

LIMIT = 30.0
QUICK = ("--heartbeat", "0.2", "--silent-after", "1")


def until(what: str, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def test_a_node_that_stalled_is_up_again_and_its_job_goes_on(folder: Path) -> None:
    with quick_cluster(folder, QUICK) as cluster:
        cluster.start_scheduler()
        cluster.start_agent("n1", "cpu-20c")
        go = folder / "go"
        with Client(cluster.address) as ebb:
            job = ebb.submit(["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done"], working_directory="/tmp")
            until("the job runs", lambda: ebb.get(job.id).state is JobState.RUNNING)
            cluster.kill("n1", signal.SIGSTOP)
            until("the node is silent", lambda: [n.state for n in ebb.nodes()] == [NodeState.SILENT])
            assert ebb.get(job.id).state is JobState.UNREACHABLE
            cluster.kill("n1", signal.SIGCONT)
            until("the node is up", lambda: [n.state for n in ebb.nodes()] == [NodeState.UP])
            shown = ebb.get(job.id)
            assert (shown.state, shown.run) == (JobState.RUNNING, 1)
            go.touch()
            ended = ebb.wait(job, timeout=LIMIT)
            assert (ended.state, ended.run) == (JobState.SUCCEEDED, 1)


def test_a_scheduler_whose_database_died_ends_and_can_be_started_again(folder: Path) -> None:
    with quick_cluster(folder) as cluster:
        cluster.start_scheduler()
        with Client(cluster.address) as ebb:
            job = ebb.submit(["true"])
            scheduler = cluster.processes["scheduler"]
            (server,) = [p for p in psutil.Process(scheduler.pid).children() if "postgres" in p.name()]
            server.kill()
            assert scheduler.wait(LIMIT) == 1
            assert "PostgreSQL" in cluster.tail("scheduler")
            cluster.start_scheduler()
            assert ebb.get(job.id).state is JobState.QUEUED


@pytest.mark.long
def test_a_database_that_hangs_ends_the_leadership_and_does_not_keep_the_scheduler(folder: Path) -> None:
    with quick_cluster(folder, ("--lease", "1")) as cluster:
        cluster.start_scheduler()
        scheduler = cluster.processes["scheduler"]
        (server,) = [p for p in psutil.Process(scheduler.pid).children() if "postgres" in p.name()]
        backends = [server, *server.children()]
        for process in backends:
            process.suspend()
        try:
            until("it does not lead any more", lambda: not (folder / "address").exists())
            scheduler.terminate()
            assert scheduler.wait(LIMIT) == 1  # by force, and it says so
            assert "the database does not answer" in cluster.tail("scheduler")
        finally:  # the scheduler gave up on it, and left it to whoever starts next
            for process in backends:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(backends, LIMIT)
