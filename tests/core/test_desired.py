"""What is desired of a run, and its generation."""

import pytest

from scheduler_service.core.allocation.transitions import shorten_grace
from scheduler_service.core.lifecycle.desired import desired_order, generation_of
from scheduler_service.core.messages import (
    Joined,
    KnownRun,
    NodeSeen,
    Order,
    Prepared,
    Running,
    Stopped,
    Submitted,
    SuspendRequested,
)
from scheduler_service.core.model import JobSpec, RunKey, RunPhase, StopReason, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector
from tests.core.driver import Driver, inventory

ONE = Vector(1000, 64, 1)
PAIR = JobSpec(("true",), Vector(2000, 128, 2), grace_us=60 * SECOND, gang=(TaskGroup(2, ONE),))
ALONE = JobSpec(("true",), ONE)


def running(d: Driver) -> int:
    job = d.submit(ALONE)
    d.start(job)
    return job


def order(spec: JobSpec, phase: RunPhase, rendezvous: str = "", generation: int = 1) -> Order | None:
    """Of the last task of a job of this spec."""
    d = Driver()
    d.join()
    job_id = d.submit(spec)
    job, run = with_changes(d.job(job_id), rendezvous=rendezvous), d.state.runs_of(job_id)[-1]
    stop = {"stop_reason": StopReason.PREEMPTED, "stop_grace_us": 7, "stop_for": 9, "stop_us": 1}
    facts = stop if phase is RunPhase.STOPPING else {}
    return desired_order(job, with_changes(run, phase=phase, generation=generation, **facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "phase", "rendezvous", "state", "generation"),
    [
        (ALONE, RunPhase.STARTING, "", Running, 1),
        (PAIR, RunPhase.STARTING, "", Prepared, 1),
        (PAIR, RunPhase.READY, "", Prepared, 1),
        (PAIR, RunPhase.READY, "n1:1", Running, 2),
        (ALONE, RunPhase.STOPPING, "", Stopped, 1),
        (PAIR, RunPhase.STOPPING, "n1:1", Stopped, 2),
    ],
)
def test_what_a_node_is_told(spec: JobSpec, phase: RunPhase, rendezvous: str, state: type, generation: int) -> None:
    told = order(spec, phase, rendezvous)
    assert told is not None
    assert (type(told.desired), told.generation, told.node) == (state, generation, 1)
    if isinstance(told.desired, Stopped):
        assert told.desired == Stopped(7, StopReason.PREEMPTED, 9)
    else:
        assert told.desired.run.key == told.key
        assert (told.desired.gang is None) == (spec is ALONE)


@pytest.mark.parametrize("phase", [RunPhase.RUNNING, RunPhase.ENDED])
def test_of_what_runs_or_is_over_a_node_need_not_hear(phase: RunPhase) -> None:
    assert order(ALONE, phase) is None


def test_each_change_of_what_is_desired_is_a_generation() -> None:
    d = Driver()
    d.join()
    submitted = d.submit(PAIR)
    generations = [generation_of(d.job(submitted), d.run(submitted))]
    for event in (d.ready(submitted, 0), d.ready(submitted, 1), d.started(submitted, 0), d.started(submitted, 1)):
        told = d.step(event).orders
        generations.append(generation_of(d.job(submitted), d.run(submitted)))
        assert bool(told) == (generations[-1] > generations[-2])
    assert generations == [1, 1, 2, 2, 2]
    (stop, _) = d.step(SuspendRequested(submitted)).orders
    assert (stop.generation, stop.desired) == (3, Stopped(60 * SECOND, StopReason.SUSPENDED))
    for most, generation in ((60 * SECOND, 3), (20 * SECOND, 4), (50 * SECOND, 4), (10 * SECOND, 5)):
        shorten_grace(d.state, d.now, d.run(submitted), most)
        assert generation_of(d.job(submitted), d.run(submitted)) == generation


def test_another_reason_for_the_same_stop_is_no_change_for_the_node() -> None:
    d = Driver()
    d.join()
    stopping = running(d)
    d.step(SuspendRequested(stopping))
    assert not d.cancel(stopping).orders
    assert (d.run(stopping).stop_reason, d.run(stopping).generation) == (StopReason.CANCELLED, 2)


def back(d: Driver, *known: KnownRun) -> tuple[Order, ...]:
    """What an agent is told that comes back with these runs."""
    reply = d.reply(NodeSeen("n1", "a", inventory(), known))
    assert isinstance(reply, Joined)
    return reply.orders


def test_an_agent_that_comes_back_is_told_what_the_engine_told_it() -> None:
    d = Driver()
    d.join()
    told = [order for spec in (ALONE, PAIR) for order in d.step(Submitted("ann", "", spec)).orders]
    first = back(d)
    assert list(first) == told
    assert [(order.key, type(order.desired)) for order in first] == [
        (RunKey(1, 1), Running),
        (RunKey(2, 1, 0), Prepared),
        (RunKey(2, 1, 1), Prepared),
    ]
    knows = tuple(KnownRun(order.key, RunPhase.STARTING, order.generation) for order in first)
    assert back(d, *knows) == first, "a repeat is harmless, and what the agent knows is no part of what is desired"


def test_a_run_that_nobody_claims_is_stopped_whatever_its_node_has_heard_of_it() -> None:
    d = Driver()
    d.join()
    (told,) = back(d, KnownRun(RunKey(7, 1), RunPhase.STOPPING, 41))
    assert told == Order(1, RunKey(7, 1), 42, Stopped(0, StopReason.UNCLAIMED))


def test_a_database_that_has_lost_changes_is_still_obeyed() -> None:
    """It was restored from a backup: the node has heard of generations that the rows do not have."""
    d = Driver()
    d.join()
    starting, begun = d.submit(ALONE), running(d)
    (told,) = back(d, KnownRun(RunKey(starting, 1), RunPhase.STOPPING, 5), KnownRun(RunKey(begun, 1), RunPhase.STOPPING, 8))
    assert (told.key, told.generation) == (RunKey(starting, 1), 6)
    assert [d.run(job).generation for job in (starting, begun)] == [6, 9]
    (stop,) = d.cancel(begun).orders
    assert stop.generation == 10
    known = (KnownRun(RunKey(starting, 1), RunPhase.STARTING, 6), KnownRun(RunKey(begun, 1), RunPhase.STOPPING, 10))
    assert [order.generation for order in back(d, *known)] == [6, 10], "nothing is raised that is not behind"
