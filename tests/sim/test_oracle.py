"""The engine against a scheduler in plain loops: on small random clusters the same starts, the same victims, the same ends."""

from copy import deepcopy
from functools import partial
from math import ceil
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Preempt, Rng
from scheduler_service.core.model import JobClass, JobSpec
from scheduler_service.core.model.inventory import Device, Inventory
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.world import Site, World
from tests.sim.building import Listed
from tests.sim.oracle import Amount, Job, Oracle, Rules
from tests.thorough import LONG, examples


class Small(NamedTuple):
    """A cluster and its jobs. Times are in microseconds: both sides count in whole ones."""

    nodes: list[Amount]
    jobs: list[Job]
    rules: Rules


AMOUNT = st.integers(2, 6)
NODE = st.tuples(AMOUNT, AMOUNT, AMOUNT) | st.tuples(AMOUNT, AMOUNT, st.just(0)) | st.tuples(st.just(0), st.just(0), AMOUNT)
"""With few of each, scores are often equal, and what is left of a node is often just enough."""
LARGE = st.tuples(*[st.sampled_from([1.0, 0.75, 0.5, 0.0])] * 3)
SMALL = st.tuples(*[st.sampled_from([0.25, 0.5, 0.0, 1.0])] * 3)
"""Of each resource of a node."""


@st.composite
def jobs(draw: st.DrawFn, nodes: list[Amount], trial: bool) -> Job:
    """One that fits on some node. Those that are no trials are smaller and come first, so that trials find the nodes full."""
    of = draw(st.sampled_from(nodes))
    shares = draw(LARGE if trial else SMALL)
    demand = tuple(ceil(share * amount) for share, amount in zip(shares, of, strict=True))
    submit = draw(st.integers(2, 20) if trial else st.integers(0, 8))
    work = draw(st.integers(1, 6) if trial else st.integers(3, 25))
    return Job(0, submit, trial, demand, draw(st.integers(0, 5)), work)  # type: ignore[arg-type]


@st.composite
def small(draw: st.DrawFn, trials: bool) -> Small:
    nodes = draw(st.lists(NODE, min_size=1, max_size=2))
    made = draw(st.lists(jobs(nodes, False), min_size=8, max_size=14))
    made += draw(st.lists(jobs(nodes, trials), min_size=4, max_size=7))
    made.sort(key=lambda job: job.submit)
    for number, job in enumerate(made, 1):  # as the engine counts them
        job.number = number
    rules = Rules(
        trials,
        s=draw(st.sampled_from([4.0, 1.0, 0.0])),
        cap=draw(st.integers(1, 2)),
        in_flight=draw(st.sampled_from([None, 1, 2])),
        decide_every=draw(st.sampled_from([0, 4])),
    )
    return Small(nodes, made, rules)


class Recorded(NamedTuple):
    starts: list[tuple[int, int, int]]
    told: list[tuple[int, int, int]]
    """(time, victim, trial)"""
    ends: dict[int, int | None]


def recorded(small: Small) -> Recorded:
    """What the engine does with it."""
    rules = small.rules
    parameters = PreemptionSettings(rules.s, rules.cap, rules.in_flight)
    told: list[tuple[int, int, int]] = []
    policy = listening(stages("fitgpp" if rules.trials else "fifo", parameters).policy, told)
    nodes = tuple(Inventory(Vector(*n), (), tuple(Device(i, f"{i}", "", 0) for i in range(n[2]))) for n in small.nodes)
    world = World(Site(nodes, policy, decide_every_us=rules.decide_every), Listed(map(as_submitted, small.jobs)))
    world.run()
    assert not world.state.jobs.rows
    launches = [(launch, life.id) for life in world.lives.values() for launch in life.launches]
    starts = [(launch.placed_us, number, launch.nodes[0] - 1) for launch, number in launches]
    assert sorted(at for at, _, _ in told) == sorted(la.signalled_us for la, _ in launches if la.signalled_us is not None)
    return Recorded(sorted(starts), sorted(told), {life.id: life.end_us for life in world.lives.values()})


def as_submitted(job: Job) -> SimJob:
    job_class = JobClass.TRIAL if job.trial else JobClass.BEST_EFFORT
    return SimJob(JobSpec(("x",), Vector(*job.demand), job_class, job.grace), job.work, job.submit)


def listening(policy: Policy, told: list[tuple[int, int, int]]) -> Policy:
    def listens(state: State, rng: Rng) -> Proposals:
        proposals = policy(state, rng)
        plan = next(proposals, None)
        while plan is not None:
            refused = yield plan
            assert refused is None
            told.extend((state.cluster.clock_us, a.job_id, a.for_job) for a in plan if isinstance(a, Preempt))
            try:
                plan = proposals.send(refused)
            except StopIteration:
                return

    return listens


def compare(small: Small) -> None:
    engine = recorded(small)

    def draw(trial: Job, possible: set[frozenset[int]]) -> frozenset[int]:
        event("victims drawn at random")
        return frozenset(victim for at, victim, by in engine.told if by == trial.number and at == oracle.now)

    oracle = Oracle(small.nodes, deepcopy(small.jobs), small.rules, draw)
    oracle.run()
    event(f"preempted: {min(len(oracle.told), 3)}")
    assert engine.starts == sorted(oracle.starts)
    assert engine.told == sorted(oracle.told)
    assert engine.ends == {job.number: job.over for job in oracle.jobs}


patiently = partial(settings, suppress_health_check=[HealthCheck.too_slow])
pytestmark = pytest.mark.timeout(0 if LONG else 400)  # what fails is made small first


@patiently(max_examples=examples(20))
@given(small(trials=False))
def test_first_come_first_served_is_what_it_says(small: Small) -> None:
    compare(small)


def asked_again() -> Small:
    """Trial 5 waits for job 1, trial 6 for job 2. When 4 is over 6 starts there, and what was kept for it is just what 5 lacks
    beside what 3 has left."""
    nodes = [(0, 1, 2), (1, 1, 3), (1, 0, 2)]
    jobs = [
        Job(1, 0, False, (0, 1, 2), grace=10, work=100),
        Job(2, 0, False, (1, 0, 1), grace=30, work=100),
        Job(3, 0, False, (0, 0, 1), grace=40, work=4),
        Job(4, 0, False, (1, 0, 2), grace=40, work=5),
        Job(5, 1, True, (0, 1, 2), grace=0, work=1),
        Job(6, 2, True, (1, 0, 2), grace=0, work=1),
    ]
    return Small(nodes, jobs, Rules(trials=True))


def at_its_cap() -> Small:
    """Job 1 was preempted, and may not be again: yet it is in J (Eqn 3), and by its grace period 4 is the one to go, not 3."""
    jobs = [
        Job(1, 0, False, (1, 0, 1), grace=10, work=60),
        Job(2, 1, True, (1, 0, 1), grace=0, work=1),
        Job(3, 15, False, (0, 0, 3), grace=1, work=60),
        Job(4, 15, False, (0, 0, 1), grace=4, work=60),
        Job(5, 20, True, (0, 0, 1), grace=0, work=1),
    ]
    return Small([(1, 0, 1), (0, 0, 4)], jobs, Rules(trials=True, s=1.0))


@patiently(max_examples=examples(40))
@given(small(trials=True))
@example(asked_again())
@example(at_its_cap())
def test_fitgpp_is_what_the_paper_says(small: Small) -> None:
    compare(small)
