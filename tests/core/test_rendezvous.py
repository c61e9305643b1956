"""Where a gang meets: the last word of rank 0 before the tasks are told to begin."""

from dataclasses import replace

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import NodeSeen, Running
from scheduler_service.core.model import JobSpec, RunPhase, TaskGroup
from scheduler_service.core.model.values import Vector
from tests.core.driver import Driver, inventory

ONE = Vector(1000, 64, 1)
PAIR = JobSpec(("true",), Vector(2000, 128, 2), gang=(TaskGroup(2, ONE),))


def test_rank_0_may_say_again_where_it_is_until_all_are_ready() -> None:
    driver = Driver()
    driver.join()
    job = driver.submit(PAIR)
    driver.step(driver.ready(job, 0))
    driver.step(replace(driver.ready(job, 0), port=30_000))  # its agent was restarted
    assert [run.phase for run in driver.state.runs_of(job)] == [RunPhase.READY, RunPhase.STARTING]
    told = driver.step(driver.ready(job, 1))
    assert driver.job(job).rendezvous == "n1:30000"
    assert [order.desired.job.rendezvous for order in told.orders if isinstance(order.desired, Running)] == ["n1:30000"] * 2
    driver.step(replace(driver.ready(job, 0), port=40_000))
    assert driver.job(job).rendezvous == "n1:30000"


def test_a_refused_agent_has_nobody_told_to_begin_again() -> None:
    """It does not know the gang, which is lost, and back in its queue, before the agent is refused for its inventory."""
    driver = Driver()
    driver.join()
    driver.submit()
    driver.start(1)
    job = driver.submit(PAIR)
    driver.step(driver.ready(job, 0))
    driver.step(driver.ready(job, 1))
    known = driver.seen("n1", known=(driver.run(1).key,)).runs
    step = driver.step(NodeSeen("n1", "a", inventory(model="H200"), known))
    assert isinstance(step.replies[0], FailedPrecondition)
    assert [run.phase for run in driver.state.runs_of(job)] == [RunPhase.READY] * 2
    assert not step.orders
