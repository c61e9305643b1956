"""Following a job's output through kill -9 of what it comes through, and reading it slowly."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import psutil
import pytest
from ebb.v1 import scheduler_pb2, scheduler_pb2_grpc

from client_sdk import Job, JobState
from client_sdk._transport.channels import OPTIONS
from tests.harness import LIMIT, WHOLE_NODE, Site
from tests.store.waiting import wait_for

LAST = "no newline: é".encode()
WRITES = """
i=0
until [ -e "$1" ]; do i=$((i + 1)); printf "%d: één regel, 三 🎉\\n" $i; sleep 0.005; done
printf "no newline: é"
"""
LEAVES = """
trap 'echo last words; touch $EBB_YIELD_FILE; exit 143' TERM
echo run $EBB_RUN
[ $EBB_RUN = 2 ] || while :; do sleep 0.02; done
"""
MIB = 2**20


class Follower:
    """Follows a job's output in a thread of its own, by a client of its own."""

    def __init__(self, site: Site, job: Job, pool: ThreadPoolExecutor) -> None:
        self.text = ""
        self._more = threading.Condition()
        self._client = site.client.another()
        self._done = pool.submit(self._follow, job.id)

    def _follow(self, job_id: int) -> None:
        with self._client:
            for piece in self._client.logs(job_id, follow=True):
                with self._more:
                    self.text += piece
                    self._more.notify_all()

    def begun(self) -> None:
        """Waits until something has come."""
        self._longer_than(0)

    def more(self) -> None:
        """Waits until something new has come, of a job that keeps writing."""
        self._longer_than(len(self.text))

    def _longer_than(self, length: int) -> None:
        with self._more:
            assert self._more.wait_for(lambda: len(self.text) > length or self._done.done(), LIMIT)
            assert not self._done.done(), self._done.result()

    def whole(self) -> bytes:
        self._done.result(LIMIT)
        return self.text.encode()


def written(site: Site, job: Job) -> bytes:
    return Path(site.client.get(job.id).log_path or "").read_bytes()


@pytest.mark.long
def test_two_followers_over_the_deaths_of_agent_and_scheduler(site: Site) -> None:
    release = site.file("release-followed")
    job = site.submit(["sh", "-c", WRITES, "sh", release])
    with ThreadPoolExecutor(2) as pool:
        early = Follower(site, job, pool)
        job = site.until(job, JobState.RUNNING)
        early.more()
        late = Follower(site, job, pool)
        followers = (early, late)
        for _ in range(2):
            for follower in followers:
                follower.more()
            before = [site.node(job.node or "")]
            site.cluster.kill(job.node or "")
            site.cluster.restart_agent(job.node or "")
            site.wait_connected(since=before)
            for follower in followers:
                follower.more()
            site.cluster.kill("scheduler")
            site.restart_scheduler()
        for follower in followers:
            follower.more()
        release.touch()
        whole = [follower.whole() for follower in followers]
    site.succeeded(job)
    assert whole == [written(site, job)] * 2
    assert whole[0].endswith(LAST)
    assert "".join(site.client.logs(job.id)).encode() == whole[0]
    assert site.client.get(job.id).run == 1


def test_the_end_comes_while_the_agent_is_dead(site: Site) -> None:
    release = site.file("release-unseen")
    job = site.until(site.submit(["sh", "-c", WRITES, "sh", release]), JobState.RUNNING)
    with ThreadPoolExecutor(1) as pool:
        follower = Follower(site, job, pool)
        follower.more()
        site.cluster.kill(job.node or "")
        release.touch()
        wait_for(lambda: written(site, job).endswith(LAST), LIMIT)
        site.cluster.restart_agent(job.node or "")
        assert follower.whole() == written(site, job)
    site.succeeded(job)


def test_followed_over_a_preemption(site: Site) -> None:
    """The output of both runs, the first one's last words included, and each again by its number."""
    with ThreadPoolExecutor(1) as pool, site.room_for_one():
        job = site.until(site.submit(["sh", "-c", LEAVES], devices=WHOLE_NODE, grace=60), JobState.RUNNING)
        first = Path(job.log_path or "")
        follower = Follower(site, job, pool)
        follower.begun()
        site.succeeded(site.short(job_class="trial", devices=WHOLE_NODE))
        site.succeeded(job)
        assert follower.whole() == first.read_bytes() + written(site, job)
    assert written(site, job) == b"run 2\n"
    one, two = ("".join(site.client.logs(job.id, run=run)) for run in (1, 2))
    assert (one.splitlines()[0], one.splitlines()[-1], two) == ("run 1", "last words", "run 2\n")
    assert "".join(site.client.logs(job.id)) == two


def test_a_reader_that_stops_reading(site: Site) -> None:
    """A log of 200 MB stays where it is: on the node. What is not read is neither in the agent nor in the scheduler."""
    job = site.submit(["sh", "-c", "yes 'all work and no play makes jack a dull boy' | head -c 200000000"])
    site.succeeded(job)
    job = site.client.get(job.id)
    agent = psutil.Process(site.cluster.processes[job.node or ""].pid)
    scheduler = psutil.Process(site.cluster.processes["scheduler"].pid)
    memory = {process: process.memory_info().rss for process in (agent, scheduler)}
    with grpc.insecure_channel(site.cluster.address, OPTIONS) as channel:
        stub = scheduler_pb2_grpc.SchedulerStub(channel)
        stream = stub.Logs(scheduler_pb2.LogsRequest(job_id=job.id), timeout=LIMIT)
        assert next(stream).data == b""
        read = wait_for(lambda: standstill(site, agent, job), LIMIT)
        grown = [(process.memory_info().rss - memory[process]) / MIB for process in (agent, scheduler)]
        assert read < 4 * MIB, "so much of it was read that nobody wants"
        assert max(grown) < 16, grown
        site.succeeded(site.short())  # it keeps nothing else back
        sha = hashlib.sha256()
        count = 0
        for piece in stream:
            assert piece.offset == count
            sha.update(piece.data)
            count += len(piece.data)
    assert count == 200_000_000
    assert sha.digest() == hashlib.sha256(written(site, job)).digest()
    wait_for(lambda: position(agent, job) is None, LIMIT)

    with grpc.insecure_channel(site.cluster.address, OPTIONS) as channel:
        stub = scheduler_pb2_grpc.SchedulerStub(channel)
        stream = stub.Logs(scheduler_pb2.LogsRequest(job_id=job.id, follow=True), timeout=LIMIT)
        next(stream)
        wait_for(lambda: position(agent, job), LIMIT)
        stream.cancel()  # the agent is told, although it could not send
        wait_for(lambda: position(agent, job) is None, LIMIT)


def position(agent: psutil.Process, job: Job) -> int | None:
    """How far the agent has read the job's log; None where it has not opened it."""
    for file in agent.open_files():
        if file.path == job.log_path:
            return int(file.position)
    return None


def standstill(site: Site, agent: psutil.Process, job: Job) -> int:
    """How far the agent has read, once it reads no more while other calls come and go; else 0."""
    before = position(agent, job)
    for _ in range(100):
        site.client.nodes()
    return before or 0 if position(agent, job) == before else 0
