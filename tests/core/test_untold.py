"""Runs that were placed on a node whose agent was gone already, and that it never heard of."""

from scheduler_service.core.messages import Joined, NodeSilent
from scheduler_service.core.model import EventKind, JobState, Reason, RunKey, RunPhase, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Vector
from tests.core.driver import Driver, orders_to_stop, spec

PAIR = with_changes(spec(), gang=(TaskGroup(2, Vector(1000, 512, 1)),), demand=Vector(2000, 1024, 2))


def test_they_begin_elsewhere() -> None:
    """Whatever they are: nobody has to say that the node is dead for it."""
    d = Driver()
    d.join("n1")
    told, untold, leaving = d.submit(), d.submit(), d.submit()
    d.start(told)
    d.cancel(leaving)
    d.join("n2")
    step = d.step(NodeSilent("n1", (RunKey(untold, 1), RunKey(leaving, 1))))
    assert d.states(told, untold, leaving) == [JobState.UNREACHABLE, JobState.STARTING, JobState.CANCELLED]
    assert (d.where(untold).name, d.job(untold).run) == ("n2", 2)
    texts = [event.text for event in step.log if event.job_id == untold and event.kind is EventKind.REQUEUED]
    assert texts == ["node n1 fell silent before it was told of the run"]
    returned = d.reply(d.seen("n1"))
    assert isinstance(returned, Joined)
    assert returned.orders == ()


def test_of_what_has_begun_is_over_or_is_another_node_s_nothing_is_taken() -> None:
    d = Driver()
    d.join("n1")
    begun, over = d.submit(), d.submit()
    d.start(begun, over)
    d.exit(over)
    d.join("n2")
    other = d.submit(devices=8)
    d.step(NodeSilent("n1", (RunKey(begun, 1), RunKey(over, 1), RunKey(other, 1), RunKey(99, 1))))
    assert d.states(begun, over, other) == [JobState.UNREACHABLE, JobState.SUCCEEDED, JobState.STARTING]


def test_a_ready_task_of_a_gang_is_told_twice_and_knows_of_itself() -> None:
    """The second word, that all are ready, may be what did not reach it."""
    d = Driver()
    d.join("n1")
    gang = d.submit(PAIR)
    d.step(d.ready(gang, 0))
    d.step(NodeSilent("n1", (RunKey(gang, 1, 0),)))
    assert (d.job(gang).state, d.run(gang, 0).phase) == (JobState.UNREACHABLE, RunPhase.READY)


def test_a_gang_of_which_one_task_was_never_told_leaves_and_queues_again() -> None:
    d = Driver()
    d.join("n1", Vector(1000, 1024, 1))
    d.join("n2", Vector(1000, 1024, 1))
    gang = d.submit(PAIR)
    told = d.step(NodeSilent("n2", (RunKey(gang, 1, 1),)))
    assert orders_to_stop(told) == [RunKey(gang, 1, 0)]
    d.step(d.exited(gang, 0, yielded=True))
    assert (d.job(gang).state, d.job(gang).reason) == (JobState.QUEUED, Reason.NODES_CLOSED)


def test_a_run_whose_agent_was_told_to_end_it_goes_on_later() -> None:
    """It is no failure, whatever the job's retries are; a cancelled one is cancelled."""
    d = Driver()
    d.join("n1")
    job, cancelled = d.submit(), d.submit()
    d.start(job, cancelled)
    d.cancel(cancelled)
    step = d.step(d.exited(job, exit_signal=9, node_stopped=True))
    d.step(d.exited(cancelled, exit_signal=9, node_stopped=True))
    assert (d.job(job).run, d.job(job).retries) == (2, 0)
    assert d.job(cancelled).state is JobState.CANCELLED
    (queued,) = (event for event in step.log if event.kind is EventKind.REQUEUED)
    assert (queued.reason, queued.text) == (Reason.NODE_LOST, "the agent of its node was stopped, and its runs with it")
