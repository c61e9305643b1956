"""Runs that were told to stop and do not end: their nodes are told again, and people hear of it."""

from scheduler_service.core.allocation.overdue_stops import OVERDUE_US
from scheduler_service.core.messages import CancelRequested, NodeSilent, Step, Stopped
from scheduler_service.core.model import EventKind, JobState, RunPhase
from scheduler_service.core.model.values import SECOND
from tests.core.driver import Driver, spec

GRACE = 10
MINUTE = OVERDUE_US // SECOND


def stopping() -> tuple[Driver, int]:
    d = Driver()
    d.join("n1")
    job = d.submit(spec(grace=GRACE))
    d.start(job)
    d.step(CancelRequested(job))
    return d, job


def told(taken: Step) -> list[str]:
    return [line.text for line in taken.log if line.kind is EventKind.STOP_OVERDUE]


def orders(taken: Step) -> list[Stopped]:
    return [order.desired for order in taken.orders if isinstance(order.desired, Stopped)]


def test_a_run_that_is_stopping_for_too_long_is_asked_for_again() -> None:
    d, job = stopping()
    (run,) = d.state.runs_of(job)
    assert told(d.step(after=GRACE + MINUTE - 1)) == []
    taken = d.step(after=1)
    (text,) = told(taken)
    assert text == (
        "the run should have ended 60 s ago, after its grace period of 10 s; node n1 is told again, and once more in 60 s. "
        "If that does not help, restart its agent"
    )
    assert len(orders(taken)) == 1
    (again,) = d.state.runs_of(job)
    assert again.generation == run.generation + 1, "its node takes the order for a new one"
    assert again.phase is RunPhase.STOPPING


def test_it_is_asked_for_ever_more_rarely() -> None:
    d, job = stopping()
    d.step(after=GRACE)
    asked = [minute for minute in range(1, 140) if told(d.step(after=60))]
    assert asked == [1, 2, 4, 8, 16, 32, 64, 128]
    d.exit(job)
    assert d.ended[job].state is JobState.CANCELLED
    assert not d.state.deadlines


def test_a_silent_node_is_asked_for_nothing_and_has_its_time_again_when_it_returns() -> None:
    d, _ = stopping()
    d.step(NodeSilent("n1"), after=GRACE + 1)
    assert told(d.step(after=24 * 3600)) == []
    d.join("n1")
    assert told(d.step(after=MINUTE - 1)) == []
    assert len(told(d.step(after=1))) == 1


def test_a_run_that_ends_in_time_is_asked_for_once() -> None:
    d, job = stopping()
    d.exit(job)
    assert told(d.step(after=24 * 3600)) == []
    assert not d.state.deadlines
