"""Nodes on which nothing new is placed, nodes that are declared dead, and nodes that are deleted."""

import pytest

from scheduler_service.core.errors import FailedPrecondition, NotFound
from scheduler_service.core.messages import (
    Accepted,
    DrainRequested,
    FenceRequested,
    Joined,
    KnownRun,
    NodeChanged,
    NodeDeleteRequested,
    NodeRequest,
    NodeSeen,
    NodeSilent,
    Order,
    Reply,
    RunExited,
    Stopped,
    Submitted,
    UndrainRequested,
)
from scheduler_service.core.model import EventKind, JobState, NodeState, Reason, RunKey, RunPhase, StopReason
from scheduler_service.core.model.configurations import NodeSelector
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver, inventory, kinds, orders_to_stop, spec, stopped
from tests.core.test_gangs import begun
from tests.policies.made import fitgpp

SMALL = Vector(4_000, 8_192, 2)


def cluster(nodes: int = 1) -> Driver:
    d = Driver(fitgpp(PreemptionSettings()))
    for number in range(nodes):
        d.join(f"n{number + 1}", SMALL)
    return d


def drain(name: str = "n1", evict: bool = False) -> DrainRequested:
    return DrainRequested(name, "a fan is loud", "op", evict)


def test_nothing_new_is_placed_on_a_drained_node_and_its_runs_go_on() -> None:
    d = cluster()
    job = d.submit()
    d.start(job)
    assert d.reply(drain()) == NodeChanged(1)
    assert (d.node().drained_us, d.node().drain_reason, d.node().drain_user) == (d.now, "a fan is loud", "op")
    waiting = d.submit()
    assert d.states(job, waiting) == [JobState.RUNNING, JobState.QUEUED]
    d.exit(job)
    assert d.states(job, waiting) == [JobState.SUCCEEDED, JobState.QUEUED]
    assert d.reply(UndrainRequested("n1")) == NodeChanged(1)
    assert d.job(waiting).state is JobState.STARTING


def test_drain_is_safe_to_repeat() -> None:
    d = cluster()
    d.step(drain())
    since = d.node().drained_us
    d.step(drain(), after=60)
    assert d.node().drained_us == since


def test_a_drained_node_stays_so_over_a_reboot() -> None:
    d = cluster()
    d.step(drain())
    d.join("n1", SMALL, boot="b")
    assert d.node().drained_us is not None


def test_evicted_runs_leave_and_queue_again_elsewhere() -> None:
    d = cluster()
    running, starting = d.submit(), d.submit()
    d.start(running)
    told = d.step(drain(evict=True))
    assert {(key.job_id, why) for key, why in stopped(told.orders)} == {
        (running, StopReason.DRAINED),
        (starting, StopReason.DRAINED),
    }
    assert [(e.job_id, e.kind, e.run, e.node, e.reason, e.text) for e in told.log] == [
        (job, EventKind.REQUEUE_REQUESTED, 1, 1, Reason.NODE_DRAINED, "a fan is loud") for job in (running, starting)
    ]
    assert (d.job(running).state, d.job(running).reason) == (JobState.STOPPING, Reason.NODE_DRAINED)
    d.join("n2", SMALL)
    left = d.exit(running, yielded=True)
    assert [event.reason for event in left.log if event.kind is EventKind.REQUEUED] == [Reason.NODE_DRAINED]
    assert (d.where(running).name, d.job(running).preempted_for_trial) == ("n2", 0)


def test_a_gang_with_one_task_on_the_node_is_evicted_whole() -> None:
    d = cluster(nodes=2)
    job = begun(d)
    assert orders_to_stop(d.step(drain("n2", evict=True))) == [RunKey(job, 1, task) for task in range(3)]


def test_runs_of_a_silent_node_are_evicted_when_it_is_back() -> None:
    d = cluster()
    job = d.submit()
    d.start(job)
    d.silence()
    d.step(drain(evict=True))
    assert d.job(job).state is JobState.UNREACHABLE
    reply = d.join("n1", SMALL).replies[0]
    assert isinstance(reply, Joined)
    assert reply.orders == (Order(1, RunKey(job, 1), 2, Stopped(10 * SECOND, StopReason.DRAINED)),)


def test_a_run_that_leaves_already_leaves_for_the_same_reason_when_its_node_is_drained() -> None:
    d = cluster()
    job = d.submit()
    d.start(job)
    d.cancel(job)
    assert not orders_to_stop(d.step(drain(evict=True)))
    assert d.run(job).stop_reason is StopReason.CANCELLED


def test_trials_do_not_wait_for_a_drained_node_and_nobody_is_preempted_there() -> None:
    d = cluster(nodes=2)
    jobs = [d.submit() for _ in range(4)]
    d.start(*jobs)
    trial = d.trial()
    earmark = d.earmark(trial)
    assert earmark is not None
    node, other = (f"n{n}" for n in (earmark.node, 3 - earmark.node))
    dropped = d.step(drain(node))
    assert EventKind.EARMARK_DROPPED in kinds(dropped, trial)
    again = d.earmark(trial)
    assert again is not None
    assert again.node == d.state.node_ids[other], "it has another victim, where it can start"
    second = d.step(drain(other))
    assert not orders_to_stop(second)
    assert d.job(trial).reason is Reason.NO_ROOM, "no node is open"


@pytest.mark.parametrize("event", [drain("n9"), UndrainRequested("n9"), FenceRequested("n9", "op"), NodeDeleteRequested("n9")])
def test_an_unknown_node_is_said(event: NodeRequest) -> None:
    reply = cluster().reply(event)
    assert isinstance(reply, NotFound)
    assert (reply.reason, reply.metadata) == ("NO_SUCH_NODE", {"node": "n9"})


# ---- fence ---------------------------------------------------------------------------------------------------------------


def test_only_a_silent_node_can_be_declared_dead() -> None:
    d = cluster()
    refused = d.reply(FenceRequested("n1", "op"))
    assert isinstance(refused, FailedPrecondition)
    assert refused.reason == "NODE_UP"


def test_what_ran_on_a_dead_node_queues_again_and_is_stopped_should_it_come_back() -> None:
    d = cluster(nodes=2)
    job, cancelled = d.submit(), d.submit()
    d.start(job, cancelled)
    d.cancel(cancelled)
    d.silence("n1")
    assert d.states(job, cancelled) == [JobState.UNREACHABLE] * 2
    assert d.reply(FenceRequested("n1", "op")) == NodeChanged(1)
    assert d.states(job, cancelled) == [JobState.STARTING, JobState.CANCELLED]
    assert (d.where(job).name, d.job(job).run, d.node("n1").state) == ("n2", 2, NodeState.SILENT)
    # It was not dead after all: a report of the old run changes nothing, and the agent is told to stop it.
    d.step(RunExited("n1", "a", d.node("n1").sequence + 1, RunKey(job, 1), exit_code=1))
    assert d.job(job).state is JobState.STARTING
    runs = tuple(KnownRun(RunKey(number, 1), RunPhase.RUNNING) for number in (job, cancelled))
    reply = d.reply(NodeSeen("n1", "a", inventory(SMALL), runs))
    assert isinstance(reply, Joined)
    assert set(stopped(reply.orders)) == {
        (RunKey(job, 1), StopReason.UNCLAIMED),
        (RunKey(cancelled, 1), StopReason.UNCLAIMED),
    }


def test_a_gang_with_one_node_dead_leaves_the_others_and_queues_again() -> None:
    d = cluster(nodes=2)
    job = begun(d)
    d.silence("n2")
    told = d.step(FenceRequested("n2", "op"))
    assert orders_to_stop(told) == [RunKey(job, 1, 0), RunKey(job, 1, 1)]
    for task in (0, 1):
        d.step(d.exited(job, task, yielded=True))
    assert (d.job(job).state, d.job(job).reason) == (JobState.QUEUED, Reason.NODES_CLOSED)


# ---- delete --------------------------------------------------------------------------------------------------------------


def test_only_a_silent_node_without_runs_can_be_deleted() -> None:
    d = cluster()
    job = d.submit()
    d.start(job)
    before = d.state.snapshot()
    assert said(d.reply(NodeDeleteRequested("n1"))) == "NODE_UP"
    assert d.state.snapshot() == before
    d.silence("n1")
    before = d.state.snapshot()
    assert said(d.reply(NodeDeleteRequested("n1"))) == "NODE_IN_USE"
    assert d.state.snapshot() == before
    d.step(FenceRequested("n1", "op"))
    assert d.reply(NodeDeleteRequested("n1")) == NodeChanged(1)
    assert d.reply(NodeDeleteRequested("n1")) == NodeChanged(1), "a retry is safe"
    assert not d.state.node_ids
    assert not d.state.devices.rows
    for event in (drain(), UndrainRequested("n1"), FenceRequested("n1", "op")):
        assert said(d.reply(event)) == "NO_SUCH_NODE"
    d.step(NodeSilent("n1"))
    assert d.state.nodes.rows[1].state is NodeState.DELETED


def test_a_deleted_node_is_among_no_nodes_that_a_job_may_run_on() -> None:
    """Also if it has the highest id: what is known by id of nodes stays as long as it was."""
    d = cluster(2)
    d.silence("n2")
    waiting = d.reply(Submitted("ann", "", with_changes(spec(devices=2), nodes=NodeSelector(names=("n2",)))))
    assert isinstance(waiting, Accepted)
    assert d.job(waiting.job_id).reason is Reason.NODES_CLOSED
    d.step(NodeDeleteRequested("n2"))
    assert d.job(waiting.job_id).reason is Reason.TOO_LARGE
    d.join("n3", SMALL)


def test_a_deleted_node_counts_for_nothing() -> None:
    d = cluster()
    large = Vector(32_000, 65_536, 8)
    d.join("n2", large)
    d.silence("n2")
    waiting = d.submit(devices=8)
    assert d.job(waiting).reason is Reason.NODES_CLOSED
    d.step(NodeDeleteRequested("n2"))
    assert d.job(waiting).reason is Reason.TOO_LARGE
    again = Submitted("ann", "", spec(devices=8))
    assert said(d.reply(again)) == "NO_NODE_LARGE_ENOUGH"
    d.step(NodeSilent("n1"), NodeDeleteRequested("n1"))
    assert isinstance(d.reply(again), Accepted), "with no nodes nobody knows"


@pytest.mark.parametrize("boot", ["a", "b"])
def test_a_deleted_node_joins_as_a_new_one(boot: str) -> None:
    d = cluster()
    job = d.submit()
    d.start(job)
    d.step(drain())
    d.silence("n1")
    d.step(FenceRequested("n1", "op"), NodeDeleteRequested("n1"))
    sequence = d.state.nodes.rows[1].sequence
    reply = d.reply(NodeSeen("n1", boot, inventory(SMALL), (KnownRun(RunKey(job, 1), RunPhase.RUNNING),)), after=60)
    assert isinstance(reply, Joined)
    assert (reply.node, reply.acknowledged) == (1, sequence if boot == "a" else 0), "reports go on where they were"
    assert stopped(reply.orders) == [(RunKey(job, 1), StopReason.UNCLAIMED)]
    node = d.node()
    assert (node.state, node.since_us, node.drained_us, node.strikes) == (NodeState.UP, d.now, None, 0)
    assert (d.job(job).state, d.job(job).run) == (JobState.STARTING, 2)


def said(reply: Reply | Exception) -> str:
    assert isinstance(reply, FailedPrecondition | NotFound)
    return reply.reason
