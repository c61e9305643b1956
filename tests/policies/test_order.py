"""The order of a queue: priorities, those that have run, the order of submits, and what waiting is worth."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.model import JobSpec, JobState
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.fifo import fifo
from tests.core.driver import Driver, spec

ONE = Vector(1000, 1024, 1)
SUBMITS = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 40)), min_size=1, max_size=8)
"""(priority, seconds since the one before)"""


def one_by_one(submits: list[tuple[int, int]], aging: int) -> tuple[Driver, list[int]]:
    """A node for one job, which the first submit finds taken; the order in which they start."""
    d = Driver(fifo, Settings(aging_us=aging * SECOND))
    d.join(capacity=ONE)
    running = d.submit()
    for priority, later in submits:
        d.step(after=later)
        d.submit(with_changes(spec(), priority=priority))
    order = []
    for _ in submits:
        d.exit(running)
        (run,) = d.state.runs.rows.values()
        running = run.job_id
        order.append(running)
    return d, order


@given(SUBMITS)
def test_by_priority_and_then_as_submitted(submits: list[tuple[int, int]]) -> None:
    _, order = one_by_one(submits, aging=0)
    jobs = range(2, len(submits) + 2)
    assert order == sorted(jobs, key=lambda job: (-submits[job - 2][0], job))


@given(SUBMITS, st.integers(1, 30))
def test_a_step_of_priority_is_worth_so_much_waiting(submits: list[tuple[int, int]], aging: int) -> None:
    """At any moment the one that starts has the highest priority plus waiting / aging: that of what it has waited so far."""
    d, order = one_by_one(submits, aging)
    at, now = {}, 0
    for job, (_, later) in enumerate(submits, 2):
        now += later
        at[job] = now
    worth = {job: submits[job - 2][0] * aging - at[job] for job in at}  # waiting adds the same to all
    assert order == sorted(at, key=lambda job: (-worth[job], job))
    assert d.states(*order)[-1] in (JobState.STARTING, JobState.SUCCEEDED)


def test_a_job_that_has_run_stands_before_those_of_its_priority_that_have_not() -> None:
    d = Driver()
    d.join(capacity=ONE)
    first = d.submit()
    same, higher = d.submit(), d.submit(with_changes(spec(), priority=1))
    d.start(first)
    d.now += 5 * SECOND
    d.exit(first, yielded=True)
    assert d.states(first, same, higher) == [JobState.QUEUED, JobState.QUEUED, JobState.STARTING]
    d.exit(higher)
    assert d.states(first, same) == [JobState.STARTING, JobState.QUEUED]


def test_a_higher_priority_of_the_other_class_goes_first_where_there_is_one_queue() -> None:
    d = Driver()
    d.join(capacity=ONE)
    running, trial = d.submit(), d.trial()
    best_effort: JobSpec = with_changes(spec(), priority=1)
    job = d.submit(best_effort)
    d.exit(running)
    assert d.states(trial, job) == [JobState.QUEUED, JobState.STARTING]
