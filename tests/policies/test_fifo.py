"""FIFO against a loop over the queue and the nodes; who waits for whom, and who is asked first."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Plan, Rng, Submitted
from scheduler_service.core.model import JobClass, JobSpec, JobState, Reason
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.state.state import State
from scheduler_service.policies.fifo import fifo
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver
from tests.policies.made import fitgpp

CAPACITIES = st.builds(Vector, st.integers(0, 6), st.integers(0, 6), st.integers(0, 4))
JOBS = st.builds(JobSpec, st.just(("true",)), CAPACITIES, st.sampled_from(JobClass))


def expected(jobs: list[JobSpec], nodes: list[Vector]) -> dict[int, int]:
    """Job -> node, both counted from 1."""
    free, placed = [list(node) for node in nodes], {}
    waiting: list[Vector] = []
    for i, job in enumerate(jobs, 1):
        if not any(all(d <= c for d, c in zip(job.demand, node, strict=True)) for node in nodes):
            continue  # no node is large enough: it blocks nobody
        room = {}
        for n, (size, there) in enumerate(zip(nodes, free, strict=True), 1):
            before = [head for head in waiting if all(h <= c for h, c in zip(head, size, strict=True))]
            left = [r - d for r, d in zip(there, job.demand, strict=True)]
            if min(left) >= 0 and all(
                not d or rest >= h for head in before for d, rest, h in zip(job.demand, left, head, strict=True)
            ):
                breaks_up = there[2] == size[2] > job.demand[2]
                room[n] = (breaks_up, there[2], n) if job.demand[2] else (False, 0, n)
        if room:
            placed[i] = n = min(room, key=room.__getitem__)
            free[n - 1] = [r - d for r, d in zip(free[n - 1], job.demand, strict=True)]
        else:
            waiting.append(job.demand)
    return placed


@given(st.lists(JOBS, max_size=12), st.lists(CAPACITIES.filter(any), min_size=1, max_size=4))
def test_first_come_first_served_on_the_node_that_fits_best(jobs: list[JobSpec], nodes: list[Vector]) -> None:
    d = Driver()
    d.step(*[Submitted("ann", "", job) for job in jobs], *[d.seen(f"n{i}", node) for i, node in enumerate(nodes)])
    assert {run.job_id: run.node for run in d.state.runs.rows.values()} == expected(jobs, nodes)


@given(st.lists(JOBS, max_size=12), st.lists(CAPACITIES.filter(any), min_size=1, max_size=4))
def test_fitgpp_serves_trials_first_where_nothing_can_be_preempted(jobs: list[JobSpec], nodes: list[Vector]) -> None:
    d = Driver(fitgpp(PreemptionSettings(cap=0)))
    d.step(*[Submitted("ann", "", job) for job in jobs], *[d.seen(f"n{i}", node) for i, node in enumerate(nodes)])
    order = sorted(range(len(jobs)), key=lambda i: jobs[i].job_class)
    placed = expected([jobs[i] for i in order], nodes)
    assert {run.job_id: run.node for run in d.state.runs.rows.values()} == {order[i - 1] + 1: n for i, n in placed.items()}


@given(st.lists(JOBS, max_size=12), st.lists(CAPACITIES.filter(any), min_size=1, max_size=4))
def test_it_makes_no_difference_that_jobs_come_one_by_one(jobs: list[JobSpec], nodes: list[Vector]) -> None:
    d = Driver()
    d.step(*[d.seen(f"n{i}", node) for i, node in enumerate(nodes)])
    jobs = [job for job in jobs if any(all(a <= b for a, b in zip(job.demand, node, strict=True)) for node in nodes)]
    for job in jobs:
        d.submit(job)
    assert {run.job_id: run.node for run in d.state.runs.rows.values()} == expected(jobs, nodes)


def test_nothing_is_proposed_where_a_job_comes_behind_one_that_waits() -> None:
    proposed: dict[int, list[Plan]] = {}

    def policy(state: State, rng: Rng) -> Proposals:
        if state.pending.policies:  # which the driver says after each step
            yield from fifo(state, rng)
        else:
            proposed[len(state.jobs.rows)] = list(fifo(state, rng))

    d = Driver(policy)
    d.join(capacity=Vector(4, 4, 4))
    for cpus in (3, 2, 1, 1):
        d.submit(JobSpec(("true",), Vector(cpus, 1, 0)))
    assert [job.reason for job in d.state.jobs.rows.values()] == [Reason.NONE, Reason.NO_ROOM, Reason.NONE, Reason.NONE]
    assert proposed == {3: [], 4: []}


def test_the_first_blocks_those_behind_it_that_would_take_what_it_lacks() -> None:
    d = Driver()
    d.join()
    running, head, small = d.submit(devices=5), d.submit(devices=4), d.submit(devices=1)
    assert d.states(running, head, small) == [JobState.STARTING, JobState.QUEUED, JobState.QUEUED]
    assert d.job(head).reason is Reason.NO_ROOM
    d.exit(running)
    assert d.states(head, small) == [JobState.STARTING] * 2


def test_trials_have_no_queue_of_their_own_here() -> None:
    d = Driver()
    d.join()
    d.submit(devices=8)
    best_effort, trial = d.submit(devices=8), d.trial(8)
    d.exit(1)
    assert d.states(best_effort, trial) == [JobState.STARTING, JobState.QUEUED]


def test_those_that_have_run_stand_first_in_the_order_of_their_submit() -> None:
    d = Driver()
    d.join(capacity=Vector(8_000, 8_192, 3))
    first, second, third = d.submit(), d.submit(), d.submit()
    waiting = d.submit(devices=3)
    d.start(first, second, third)
    d.now += 2 * SECOND
    d.step(d.exited(third, yielded=True), d.exited(second, yielded=True), d.exited(first, yielded=True))
    assert d.states(first, second, third, waiting) == [JobState.STARTING] * 3 + [JobState.QUEUED]
    assert [d.run(job).devices for job in (first, second, third)] == [(0,), (1,), (2,)]


def test_a_job_too_large_for_any_node_blocks_nobody_and_starts_when_one_comes() -> None:
    d = Driver()
    large, small = d.submit(devices=9), d.submit()
    d.join()
    assert d.states(large, small) == [JobState.QUEUED, JobState.STARTING]
    assert d.job(large).reason is Reason.TOO_LARGE
    d.join("n2", Vector(64_000, 65_536, 16))
    assert d.where(large).name == "n2"


def test_a_job_that_fits_a_silent_node_alone_waits_for_it() -> None:
    d = Driver()
    d.join("n1", Vector(64_000, 65_536, 16))
    d.join("n2")
    d.silence("n1")
    large = d.submit(devices=9)
    assert (d.job(large).reason, d.job(large).detail) == (Reason.NODES_CLOSED, "waits for node n1, which is silent")
    d.join("n1", Vector(64_000, 65_536, 16))
    assert d.job(large).state is JobState.STARTING


def test_nobody_is_preempted() -> None:
    d = Driver()
    d.join()
    running, trial = d.submit(devices=8), d.trial(8)
    assert d.states(running, trial) == [JobState.STARTING, JobState.QUEUED]
    assert not d.state.earmarks.rows
