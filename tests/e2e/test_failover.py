"""Two schedulers on one database: the leader is killed or stopped, the database dies, a connection is lost at COMMIT.

Both reach PostgreSQL through a relay in this process. The tests share one cluster, whichever of the two leads it by then.
"""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from ebb.v1 import scheduler_pb2_grpc

from client_sdk import Client, DeadlineExceeded, JobEventKind, JobState, NodeState, Unavailable
from scheduler_service.store.embedded.server import Embedded
from tests.harness import LIMIT, WHOLE_NODE, Load, Site, alive, leftovers
from tests.rpc.server import failure, submit_request
from tests.store.fixtures import short_dir
from tests.store.proxy import Proxy
from tests.store.waiting import wait_for

pytestmark = pytest.mark.timeout(400)

FLAGS = ("--lease", "3")
WRITER = "ebb writer"


class Two:
    """A site with two schedulers and what is under it."""

    def __init__(self, folder: Path) -> None:
        self.postgres = Embedded(folder / "pg", state_dir=folder / "state")
        self.proxy = Proxy(self.postgres.start()).__enter__()
        try:
            self.site = Site(folder / "site", FLAGS, database=self.proxy.url).__enter__()
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        self.proxy.__exit__(None, None, None)
        self.postgres.stop()

    def close(self) -> None:
        try:
            self.site.__exit__()
            assert not leftovers(self.site.folder)
        finally:
            self._end()

    # ---- who leads -----------------------------------------------------------------------------------------------------

    def names(self) -> tuple[str, str]:
        """The leader, and the other."""
        leader = wait_for(lambda: (name := self.site.leader()) and self.site.leads(name) and name, LIMIT)  # it may change hands
        return leader, "standby" if leader == "scheduler" else "scheduler"

    def address(self, name: str) -> str:
        return {"scheduler": self.site.cluster.listen, **self.site.cluster.standbys}[name]

    def epoch(self) -> int:
        (row,) = self.site.database.ask("SELECT epoch FROM leader")
        return int(row["epoch"])

    def agents(self) -> list[int]:
        return [self.site.cluster.processes[node].pid for node in self.site.nodes]

    def processes(self) -> list[int]:
        return [process.pid for process in self.site.cluster.processes.values()]

    def submit_once(self, name: str, request_id: str) -> Any:
        """A submit to this scheduler, sent once and no more."""
        with grpc.insecure_channel(self.address(name)) as channel:
            stub: Any = scheduler_pb2_grpc.SchedulerStub(channel)
            return stub.Submit(submit_request(request_id), timeout=2 * LIMIT).job


class Shared:
    """Holds the two that are up, if any."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: list[Two | None] = []

    def take(self) -> Two:
        if not self._made or self._made[-1] is None:
            self._made.append(Two(self._folder / str(len(self._made))))
        two = self._made[-1]
        assert two is not None
        return two

    def drop(self) -> None:
        if self._made and (two := self._made[-1]) is not None:
            self._made[-1] = None
            two.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    with short_dir() as folder:
        made = Shared(folder)
        yield made
        made.drop()


@pytest.fixture
def two(shared: Shared) -> Iterator[Two]:
    """Afterwards every job has ended, and both schedulers and all agents are there."""
    made = shared.take()
    try:
        yield made
        made.site.check_all_ended()
        made.names()
        made.site.wait_connected()
        assert all(map(alive, made.processes()))
    except BaseException:
        shared.drop()
        raise


# ---- the leader is gone ------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_kill_9_of_the_leader_under_load(two: Two) -> None:
    """What runs goes on; agents and clients follow without a restart, also back again."""
    site = two.site
    agents, processes = two.agents(), two.processes()
    release = site.file("release-over-failovers")
    long = site.until(site.held(release), JobState.RUNNING)
    with ThreadPoolExecutor(1) as pool, Load(site, seed=1) as load:
        waiting = pool.submit(site.client.wait, long, 3 * LIMIT)
        for _ in range(2):
            leader, other = two.names()
            load.wait_for_progress()
            epoch = two.epoch()
            site.cluster.kill(leader)
            site.database.check()  # what the dead one left is whole
            site.wait_leader(other)
            assert two.epoch() > epoch
            load.wait_for_progress()
            site.check_now()
            site.cluster.start_standby(leader)
        assert not waiting.done()
        release.touch()
        ended = waiting.result(LIMIT)
    assert (ended.state, ended.run) == (JobState.SUCCEEDED, 1)
    assert [line["run"] for line in site.evidence.lines(long, "start")] == [1]
    site.check_all_ended()
    load.check()
    assert two.agents() == agents
    assert all(map(alive, agents))
    assert two.processes() != processes, "the schedulers are others"


def test_kill_9_of_the_leader_inside_a_grace_period(two: Two) -> None:
    """The next leader knows who was told to leave, and for whom: the victim is told once, and both get what they want."""
    site = two.site
    release = site.file("release-grace-of-two")
    leader, other = two.names()
    with site.room_for_one():
        victim = site.trainer("--steps", "5", "--hold", "asked", "--until", release, devices=WHOLE_NODE, grace=90)
        site.until(victim, JobState.RUNNING)
        site.evidence.wait(victim, "start")
        trial = site.short(job_class="trial", devices=WHOLE_NODE)
        asked = site.evidence.wait(victim, "asked")
        site.cluster.kill(leader)
        site.wait_leader(other)
        stopping = site.client.get(victim.id)
        assert (stopping.state, stopping.cause_job_id, stopping.preempted_for_trial) == (JobState.STOPPING, trial.id, 1)
        release.touch()
        site.succeeded(trial, victim)
        site.cluster.start_standby(leader)
    assert [line["run"] for line in site.evidence.lines(victim, "asked")] == [1]
    assert [(line["run"], line["step"]) for line in site.evidence.lines(victim, "start")] == [(1, 0), (2, asked["step"])]
    (vacated,) = [event for event in site.client.story(victim.id) if event.kind is JobEventKind.VACATED]
    assert vacated.cause_job_id == trial.id


# ---- the leader stands still -------------------------------------------------------------------------------------------


def test_a_leader_that_was_stopped_cannot_write_when_it_wakes(two: Two) -> None:
    """It stops with a commit on its way, which reaches the database after another has taken the lease."""
    site = two.site
    release = site.file("release-over-a-stop")
    leader, other = two.names()
    epoch = two.epoch()
    long = site.until(site.held(release), JobState.RUNNING)
    with ThreadPoolExecutor(1) as pool:
        two.proxy.hold(WRITER)
        late = pool.submit(two.submit_once, leader, "late")
        two.proxy.wait_until_held(LIMIT)
        site.cluster.kill(leader, signal.SIGSTOP)
        try:
            site.wait_leader(other)
            meanwhile = site.short(request_id="meanwhile")  # the client follows
            site.succeeded(meanwhile)  # so do the agents
            assert site.client.get(long.id).run == 1
            two.proxy.release()
        finally:
            two.proxy.release()
            site.cluster.kill(leader, signal.SIGCONT)
        with pytest.raises(grpc.RpcError) as answer:  # it may also have given its old connections up
            late.result(LIMIT)
    assert answer.value.code() is grpc.StatusCode.UNAVAILABLE
    wait_for(lambda: f"epoch {epoch} is over, so nothing was committed" in site.log(leader), LIMIT)
    wait_for(lambda: f"standing by: {two.address(other)} leads" in site.log(leader), LIMIT)
    assert site.database.requests("late") == []
    with Client(two.address(leader), standby_reads=True) as standby:
        assert standby.get(meanwhile.id).state is JobState.SUCCEEDED
        assert sorted(node.name for node in standby.nodes()) == site.nodes
        assert standby.story(long.id)
    refused = failure(lambda: two.submit_once(leader, "later"))
    assert (refused.reason, refused.info.metadata["leader"]) == ("NOT_LEADING", two.address(other))
    release.touch()
    site.succeeded(long)
    assert [line["run"] for line in site.evidence.lines(long, "start")] == [1]
    assert two.names() == (other, leader)


# ---- the database ------------------------------------------------------------------------------------------------------


def test_kill_9_of_postgresql_under_load(two: Two) -> None:
    """Both schedulers outlive it, and one of them leads again when it is back. Nothing that was accepted is lost."""
    site = two.site
    processes = two.processes()
    release = site.file("release-over-the-database")
    long = site.until(site.held(release), JobState.RUNNING)
    with Load(site, seed=3) as load:
        load.wait_for_progress()
        server = psutil.Process(int((two.postgres.place / "postgres/data/postmaster.pid").read_text().split()[0]))
        for process in (server, *server.children()):
            process.kill()
        two.postgres.stop()
        with Client(site.cluster.address, timeout=1) as client, pytest.raises((Unavailable, DeadlineExceeded)):
            client.submit(["true"], request_id="while-it-is-gone")
        two.postgres.start()
        load.wait_for_progress()
        release.touch()
        site.succeeded(long)
    site.check_all_ended()
    load.check()
    assert two.processes() == processes
    assert all(map(alive, processes))
    assert [line["run"] for line in site.evidence.lines(long, "start")] == [1]


def lost_at_commit(two: Two, request_id: str, after: bool, gone: bool = False) -> Any:
    """A submit, sent once, whose commit loses its connection."""
    leader, _ = two.names()
    two.proxy.cut_at_commit(after=after, times=1, session=WRITER, gone=gone)
    cuts = two.proxy.cuts
    try:
        return two.submit_once(leader, request_id)
    finally:
        assert two.proxy.cuts == cuts + 1


def check_one_job(two: Two, request_id: str, job_id: int) -> None:
    """It is there once, and the same request finds it again."""
    assert two.site.database.requests(request_id) == [job_id]
    leader, _ = two.names()
    assert two.submit_once(leader, request_id).id == job_id
    with Client(two.site.cluster.address, timeout=LIMIT) as client:
        assert client.wait(job_id, LIMIT).state is JobState.SUCCEEDED
    assert two.site.database.requests(request_id) == [job_id]


def test_a_connection_lost_after_the_commit_took_place(two: Two) -> None:
    """The scheduler finds that out, and answers that the job is accepted; it does not even step down."""
    epoch = two.epoch()
    job = lost_at_commit(two, "cut-after", after=True)
    check_one_job(two, "cut-after", job.id)
    assert two.epoch() == epoch


def test_a_connection_lost_before_the_commit_took_place(two: Two) -> None:
    """The scheduler undoes the step, and says so; the same submit again is a first one."""
    epoch = two.epoch()
    said = failure(lambda: lost_at_commit(two, "cut-before", after=False))
    assert (said.code, said.reason) == (grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE")
    assert two.site.database.requests("cut-before") == []
    job = two.submit_once(two.names()[0], "cut-before")
    check_one_job(two, "cut-before", job.id)
    assert two.epoch() == epoch


@pytest.mark.parametrize("after", [True, False])
def test_a_connection_lost_at_commit_and_nobody_to_ask(two: Two, after: bool) -> None:
    """The scheduler cannot know: it drops its state and leads again, or another does, from what the database then says."""
    request = f"cut-and-gone-{after}"
    epoch = two.epoch()
    said = failure(lambda: lost_at_commit(two, request, after=after, gone=True))
    assert said.code is grpc.StatusCode.UNAVAILABLE
    assert said.reason in ("DATABASE_UNAVAILABLE", "NOT_LEADING")  # it may still know who led a moment ago
    two.proxy.mend()
    leader, _ = two.names()
    assert two.epoch() > epoch
    assert len(two.site.database.requests(request)) == int(after)
    job = two.submit_once(leader, request)
    check_one_job(two, request, job.id)


def test_a_standby_leads_when_the_leader_is_stopped_in_order(two: Two) -> None:
    """SIGTERM gives the lease back: nobody waits for it to run out."""
    leader, other = two.names()
    process = two.site.cluster.processes[leader]
    process.terminate()
    assert process.wait(LIMIT) == 0
    (row,) = two.site.database.ask("SELECT holder FROM leader WHERE address <> %s", two.address(leader)) or [{"holder": ""}]
    two.site.wait_leader(other)
    assert row["holder"] == "" or two.site.leader() == other
    two.site.cluster.start_standby(leader)
    wait_for(lambda: all(node.state is NodeState.UP for node in two.site.client.nodes()), LIMIT)
