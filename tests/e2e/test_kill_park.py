"""kill -9 of the scheduler in every phase of a park. The scheduler and its database are real; the agent is its end of the link,
so that each report comes at the moment that a test wants it to."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb

from client_sdk import Job, JobReason, JobState, OperationPhase
from tests.harness import LIMIT, Site
from tests.rpc.server import Agent
from tests.store.waiting import wait_for

DEVICES = 2


class Node:
    """A node's agent: what it knows outlives its connections to the scheduler."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.sequence = self.acknowledged = 0
        self.spool: list[link_pb.Report] = []
        self.runs: dict[int, list[int]] = {}
        """Job -> its phase, and the last generation that was taken."""
        self.agent: Agent | None = None

    def connect(self) -> list[Any]:
        """Connects to the scheduler that leads now, sends again what is not acknowledged, and returns what it is told."""
        self.leave()
        runs = [link_pb.RunStatus(job_id=job, run=1, phase=p, generation=g) for job, (p, g) in self.runs.items()]  # type: ignore[arg-type]
        hello = {"runs": runs, "acknowledged": self.acknowledged}
        self.agent = Agent(SimpleNamespace(address=self.site.cluster.listen), devices=DEVICES, **hello)  # type: ignore[arg-type]
        self.acknowledged = self.agent.connect().acknowledged
        self.spool = [report for report in self.spool if report.sequence > self.acknowledged]
        orders = self.take(self.agent.orders()) if runs else []
        for report in self.spool:
            self.agent.send_report(report)
        return orders

    def leave(self) -> None:
        if self.agent is not None:
            self.agent.__exit__()
            self.agent = None

    close = leave

    def orders(self) -> list[Any]:
        """The next that it is told; acknowledgements on the way are taken."""
        assert self.agent is not None
        while (message := next(self.agent.call)).WhichOneof("message") != "desired_runs":
            if message.WhichOneof("message") == "acknowledgement":
                self.acknowledged = message.acknowledgement.sequence
        return self.take(list(message.desired_runs.runs))

    def take(self, orders: list[Any]) -> list[Any]:
        for order in orders:
            known = self.runs.setdefault(order.job_id, [link_pb.RUN_PHASE_STARTING, 0])
            known[1] = max(known[1], order.generation)
        return orders

    def report(self, job: Job, phase: "link_pb.RunPhase", **event: Any) -> None:
        self.sequence += 1
        self.spool.append(link_pb.Report(sequence=self.sequence, job_id=job.id, run=1, **event))
        self.runs[job.id][0] = phase
        if phase == link_pb.RUN_PHASE_ENDED:
            del self.runs[job.id]
        assert self.agent is not None
        self.agent.send_report(self.spool[-1])

    def parked(self, job: Job) -> None:
        self.report(job, link_pb.RUN_PHASE_PARKED, parked=link_pb.RunParked(rung="driver", bytes=64 << 20))

    def resumed(self, job: Job) -> None:
        self.report(job, link_pb.RUN_PHASE_RUNNING, resumed=link_pb.RunResumed(rung="driver"))

    def ended(self, job: Job) -> None:
        self.report(job, link_pb.RUN_PHASE_ENDED, exited=link_pb.RunExited(done=True))


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[Site, Node]]:
    with Site(folder, nodes=()) as site, closing(Node(site)) as node:
        node.connect()
        yield site, node


def begun(site: Site, node: Node) -> Job:
    job = site.submit(["train"], devices=DEVICES)
    (order,) = node.orders()
    assert order.job_id == job.id
    node.report(job, link_pb.RUN_PHASE_RUNNING, started=link_pb.RunStarted(pid=1))
    return site.until(job, JobState.RUNNING)


def killed(site: Site, node: Node) -> list[Any]:
    """The scheduler dies, and another leads; the agent connects to it, and is told what is desired."""
    site.cluster.kill("scheduler")
    site.database.check()
    site.restart_scheduler()
    return node.connect()


def phase(site: Site, job: Job) -> OperationPhase | None:
    operation = site.client.get(job.id).operation
    return None if operation is None else operation.phase


def test_in_every_phase(folder: Path) -> None:
    with cluster(folder) as (site, node):
        job = begun(site, node)
        told = site.client.suspend(job, park=True)
        assert (told.state, told.reason) == (JobState.STOPPING, JobReason.PARKED)
        (order,) = killed(site, node)
        assert (order.WhichOneof("state"), order.generation, list(order.parked.launch.devices)) == ("parked", 2, [0, 1])
        assert phase(site, job) is OperationPhase.PARKING

        with site.database.commits_kept_out():
            node.parked(job)
            site.database.wait_until_kept_out()  # by the report
            site.cluster.kill("scheduler")
        assert site.database.ask("SELECT phase FROM run") == [{"phase": 6}], "it was not committed"
        site.restart_scheduler()
        (order,) = node.connect()
        assert order.WhichOneof("state") == "parked"
        assert site.until(job, JobState.SUSPENDED).parked

        (order,) = killed(site, node)
        assert (order.WhichOneof("state"), phase(site, job)) == ("parked", OperationPhase.PARKED)
        other = begun(site, node)
        assert other.devices == (0, 1), "a parked run holds no device, whoever leads"

        assert site.client.resume(job).operation is not None
        orders = killed(site, node)
        assert [(order.job_id, order.WhichOneof("state")) for order in orders] == [(job.id, "parked")]
        assert phase(site, job) is OperationPhase.WAITING
        node.ended(other)
        (order,) = node.orders()
        assert (order.job_id, order.WhichOneof("state"), order.generation) == (job.id, "running", 3)

        (order,) = killed(site, node)
        assert (order.WhichOneof("state"), order.generation, phase(site, job)) == ("running", 3, OperationPhase.RESUMING)
        with site.database.answers_withheld():
            node.resumed(job)
            site.database.wait_until_withheld()  # the report is durable, and not acknowledged
            site.cluster.kill("scheduler")
        site.restart_scheduler()
        node.connect()
        back = site.client.get(job.id)
        assert (back.state, back.operation, back.parked, back.run) == (JobState.RUNNING, None, False, 1)
        node.ended(job)
        assert site.client.wait(job).state is JobState.SUCCEEDED
        (run,) = site.client.runs(job)
        assert [each.phase.name for each in run.operations] == ["PARKING", "PARKED", "WAITING", "RESUMING"]
        site.check_all_ended()


@pytest.mark.parametrize("durable", [True, False])
def test_before_and_after_the_commit_of_a_request(folder: Path, durable: bool) -> None:
    """The client sends a request again whose answer it did not get; it does what it says once."""
    with cluster(folder) as (site, node):
        job = begun(site, node)
        for ask in (lambda client: client.suspend(job, park=True), lambda client: client.resume(job)):
            held = site.database.answers_withheld if durable else site.database.commits_kept_out
            waited = site.database.wait_until_withheld if durable else site.database.wait_until_kept_out
            with ThreadPoolExecutor(1) as pool:
                with held():
                    answer = pool.submit(ask, site.client)
                    waited()
                    site.cluster.kill("scheduler")
                site.restart_scheduler()
                told = answer.result(LIMIT)
            node.connect()
            if told.state is JobState.STOPPING:
                node.parked(job)
                site.until(job, JobState.SUSPENDED)
        assert phase(site, job) is OperationPhase.RESUMING
        node.resumed(job)
        wait_for(lambda: phase(site, job) is None)
        node.ended(job)
        site.check_all_ended()


def test_inside_a_park_that_is_refused(folder: Path) -> None:
    with cluster(folder) as (site, node):
        job = begun(site, node)
        site.client.suspend(job, park_only=True)
        node.orders()
        with site.database.answers_withheld():
            refused = link_pb.RunParkRefused(reason="a step takes too long")
            node.report(job, link_pb.RUN_PHASE_RUNNING, park_refused=refused)
            site.database.wait_until_withheld()
            site.cluster.kill("scheduler")
        site.restart_scheduler()
        (order,) = node.connect()
        assert (order.WhichOneof("state"), order.generation) == ("running", 3)
        assert (site.client.get(job.id).state, phase(site, job)) == (JobState.RUNNING, None)
        node.ended(job)
        site.check_all_ended()
