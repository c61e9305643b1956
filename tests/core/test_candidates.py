"""The columns of preemptible runs."""

from math import sqrt
from random import Random

import pytest

from scheduler_service.core.engine import step
from scheduler_service.core.messages import Event, NodeSeen, RunExited, RunStarted, Submitted
from scheduler_service.core.model import Cluster, Job, JobSpec, JobState, Run, RunKey, RunPhase
from scheduler_service.core.model.values import SECOND, ZERO, Vector
from scheduler_service.core.state.resources.candidates import Candidates, size_of
from scheduler_service.core.state.state import State
from scheduler_service.policies.fifo import fifo
from tests.core.driver import NODE, Driver, inventory


def test_size_is_the_length_of_the_share() -> None:
    assert size_of(Vector(8_000, 32_768, 8), NODE) == pytest.approx(sqrt(0.25**2 + 0.5**2 + 1), abs=1e-15)


def test_a_resource_that_the_node_lacks_adds_nothing() -> None:
    assert size_of(Vector(3, 4, 0), Vector(10, 10, 0)) == pytest.approx(0.5)
    assert size_of(ZERO, ZERO) == 0.0


def test_slots_are_used_again_and_columns_grow() -> None:
    def put(i: int, count: int) -> None:
        demand = Vector(i, i, i)
        job = Job(i, JobSpec(("true",), demand, grace_us=i), "ann", "", 0, preempted_for_trial=count, priority=-i)
        candidates.put(RunKey(i, 1), Run(i, 1, i, (), demand, RunPhase.RUNNING, 0), job, NODE)

    candidates = Candidates()
    for i in range(1, 41):
        put(i, 0)
    for i in range(1, 31):
        candidates.drop(RunKey(i, 1))
    for i in range(41, 61):
        put(i, 2)
    assert candidates.used == 40
    assert len(candidates) == 30
    live = {int(j) for j in candidates.job[: candidates.used] if j}
    assert live == set(range(31, 61))
    assert candidates.snapshot()[RunKey(45, 1)] == ((45, 45, 45), size_of(Vector(45, 45, 45), NODE), 45, 45, 2, -45, 1)


def test_dropping_what_is_none_changes_nothing() -> None:
    candidates = Candidates()
    candidates.drop(RunKey(1, 1))
    assert candidates.used == 0


def test_who_is_a_candidate() -> None:
    """Best-effort runs, starting or running; not trials, nor those that leave or are queued."""
    d = Driver()
    d.join()
    starting, running, trial, leaving = d.submit(), d.submit(), d.trial(), d.submit()
    queued = d.submit(devices=8)
    d.start(running, trial, leaving)
    d.cancel(leaving)
    assert d.job(queued).state is JobState.QUEUED
    assert {key.job_id for key in d.state.candidates.snapshot()} == {starting, running}
    grace, node, count = d.state.candidates.snapshot()[RunKey(running, 1)][2:5]
    assert (grace, node, count) == (10 * SECOND, 1, 0)


def test_a_run_costs_a_slot_only_if_somebody_asks_while_it_is_there() -> None:
    """The driver asks at every step; here nobody does until the end."""

    def take(*events: Event, adopt: bool = True) -> None:
        step(state, events, 0, Random(1), fifo)
        if adopt:
            state.adopt()

    state = State(Cluster("c", 1))
    spec = JobSpec(("train",), Vector(1000, 1024, 1))
    first, second = RunKey(1, 1), RunKey(2, 1)
    take(NodeSeen("n", "b", inventory()), Submitted("ann", "", spec))
    take(RunStarted("n", "b", 1, first))
    take(RunExited("n", "b", 2, first))
    assert state.candidates.used == 0
    take(Submitted("ann", "", spec))
    take(RunExited("n", "b", 3, second), adopt=False)
    state.undo()
    assert state.candidates.snapshot().keys() == {second}
    take(RunExited("n", "b", 3, second), adopt=False)
    assert state.candidates.snapshot() == {}
    state.undo()
    assert state.candidates.snapshot() == state.rebuild().candidates.snapshot() != {}
