"""Backfill: jobs start behind a head that does not fit, and never delay it."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler_service.core.engine import Policy
from scheduler_service.core.messages import Submitted
from scheduler_service.core.model import JobSpec, JobState, RunPhase, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Micros, Vector
from scheduler_service.core.state.queue_keys import Lane
from scheduler_service.core.state.resources.packing import pack
from scheduler_service.policies.fifo import fifo
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.placing.first_fit import offered_to
from scheduler_service.policies.queueing.backfill import backfill, reserve
from scheduler_service.policies.remaining_time import remaining
from tests.core.driver import EPOCH, Driver, spec
from tests.core.specs import gang_of
from tests.policies.made import fitgpp

CAPACITIES = st.builds(Vector, st.integers(2, 6), st.integers(2, 6), st.integers(0, 4)).map(
    lambda v: Vector(v.cpu_milli * 1000, v.memory_mib * 1000, v.devices)
)
JOBS = st.builds(
    lambda cpu, memory, devices, length, priority: JobSpec(
        ("true",),
        Vector(cpu * 1000, memory * 1000, devices),
        time_limit_us=length * SECOND,
        priority=priority,
    ),
    st.integers(1, 5),
    st.integers(0, 5),
    st.integers(0, 3),
    st.integers(1, 9),
    st.sampled_from((0, 0, 0, 1)),
)


class Timed:
    """Every run begins as soon as it is placed, and takes its time limit to the microsecond."""

    def __init__(self, policy: Policy, nodes: Sequence[Vector], jobs: Sequence[JobSpec]) -> None:
        self.d = Driver(policy)
        self.d.settles = policy is fifo
        for i, node in enumerate(nodes):
            self.d.join(f"n{i}", node)
        self.started: dict[int, Micros] = {}
        self.reserved: dict[int, Micros] = {}
        """What each job was promised when it was first of its queue and did not fit."""
        self.d.step(*(Submitted("ann", "", job) for job in jobs))
        self._begin()

    def _begin(self) -> None:
        for run in [run for run in self.d.state.runs.rows.values() if run.phase is RunPhase.STARTING]:
            self.started[run.job_id] = self.d.now
            self.d.start(run.job_id)
        first = self.d.state.queue("", Lane.BEST_EFFORT).first
        if first is not None and (head := first[-1]) not in self.reserved:
            reservation = reserve(self.d.state, self.d.job(head))
            assert reservation is not None, "every length is known"
            self.reserved[head] = reservation.at

    def run(self, until: Callable[["Timed"], bool] = lambda _: False) -> None:
        """Until nothing runs, or `until` holds."""
        while self.d.state.runs.rows and not until(self):
            ends = {job: self.started[job] + self.d.job(job).time_limit_us for job in self.d.state.active}
            self.d.now = min(ends.values())
            self.d.step(*(self.d.exited(job) for job, end in sorted(ends.items()) if end == self.d.now))
            self._begin()


@given(st.lists(CAPACITIES, min_size=1, max_size=3), st.lists(JOBS, min_size=2, max_size=9))
def test_the_head_starts_no_later_than_it_was_promised(nodes: list[Vector], jobs: list[JobSpec]) -> None:
    timed = Timed(backfill, nodes, jobs)
    timed.run()
    for job, promised in timed.reserved.items():
        assert timed.started[job] <= promised, (
            f"job {job} was promised {promised - EPOCH} and began at {timed.started[job] - EPOCH}"
        )
    assert all(job.state is JobState.SUCCEEDED for job in timed.d.ended.values())
    assert not timed.d.state.jobs.rows


@given(st.lists(CAPACITIES, min_size=1, max_size=3), st.lists(JOBS, min_size=2, max_size=9))
def test_the_first_head_starts_when_it_does_without_backfill(nodes: list[Vector], jobs: list[JobSpec]) -> None:
    """Both begin alike; the head that blocks the queue at first must not be later for what passes it by."""
    plain, filled = Timed(fifo, nodes, jobs), Timed(backfill, nodes, jobs)
    first = plain.d.state.queue("", Lane.BEST_EFFORT).first
    if first is None:
        return
    head = first[-1]
    assert set(plain.started) <= set(filled.started)
    plain.run(lambda timed: head in timed.started)
    filled.run(lambda timed: head in timed.started)
    assert filled.started[head] <= plain.started[head]


# ---- one by one ----------------------------------------------------------------------------------------------------------


def limited(devices: int, seconds: int, **more: Any) -> JobSpec:
    return with_changes(spec(devices=devices, grace=0), time_limit_us=seconds * SECOND, **more)


def busy(head: int) -> tuple[Driver, int, int]:
    """6 of 8 devices for 100 seconds, and a head that needs more than the other 2."""
    d = Driver(backfill)
    d.settles = False
    d.join()
    running = d.submit(limited(6, 100))
    d.start(running)
    return d, running, d.submit(limited(head, 50))


def test_a_job_that_is_over_by_then_passes_the_head() -> None:
    d, _, head = busy(7)
    longer, just = d.submit(limited(2, 101)), d.submit(limited(2, 100))
    assert d.states(head, longer, just) == [JobState.QUEUED, JobState.QUEUED, JobState.STARTING]


def test_a_job_that_leaves_the_head_its_room_passes_it_whatever_it_takes() -> None:
    d, _, head = busy(4)
    beside = d.submit(spec(devices=2))
    assert d.states(head, beside) == [JobState.QUEUED, JobState.STARTING], "8 - 4 remain then"
    one_more = d.submit(spec(devices=1))
    assert d.job(one_more).state is JobState.QUEUED, "there is no room now"


def test_the_grace_period_counts_as_time_that_it_takes() -> None:
    d, _, _ = busy(7)
    late, just = (
        d.submit(with_changes(limited(2, 91), grace_us=10 * SECOND)),
        d.submit(with_changes(limited(2, 90), grace_us=10 * SECOND)),
    )
    assert d.states(late, just) == [JobState.QUEUED, JobState.STARTING]


def test_nothing_is_backfilled_where_nobody_knows_when_the_head_starts() -> None:
    d = Driver(backfill)
    d.join()
    d.start(d.submit(spec(devices=6)))
    head, small = d.submit(spec(devices=4)), d.submit(limited(1, 1))
    assert d.states(head, small) == [JobState.QUEUED] * 2


def test_an_estimate_is_no_promise_of_the_job_that_is_backfilled() -> None:
    d, _, _ = busy(7)
    job = d.submit(with_changes(spec(devices=2, grace=0), estimate_us=SECOND))
    assert d.job(job).state is JobState.QUEUED


def test_a_run_that_was_told_to_leave_is_gone_at_the_end_of_its_grace_period() -> None:
    """Else what is backfilled would delay the head until the run's limit."""
    d = Driver(backfill)
    d.settles = False
    d.join()
    leaving, other = d.submit(with_changes(limited(4, 1000), grace_us=10 * SECOND)), d.submit(limited(3, 1000))
    d.start(leaving, other)
    d.cancel(leaving)
    head = d.submit(limited(5, 50))
    small = d.submit(limited(1, 20))
    reservation = reserve(d.state, d.job(head))
    assert reservation is not None
    assert reservation.at == d.now + 10 * SECOND
    assert d.states(head, small) == [JobState.QUEUED] * 2


def test_what_is_promised_to_a_trial_is_not_reserved_for_a_head() -> None:
    d = Driver(fitgpp(PreemptionSettings()))
    d.join()
    running = d.submit(limited(8, 100))
    d.start(running)
    trial = d.trial(6)
    assert d.job(running).state is JobState.STOPPING
    assert d.earmark(trial) is not None
    assert reserve(d.state, d.job(d.submit(limited(4, 10)))) is None


def test_trials_too_are_passed_where_nobody_is_preempted() -> None:
    d, _, _ = busy(7)
    trial = d.submit(with_changes(limited(2, 60), job_class=spec(trial=True).job_class))
    assert d.job(trial).state is JobState.STARTING


SIZES = st.builds(lambda cpu, devices: Vector(cpu * 1000, 1024, devices), st.integers(0, 16), st.integers(1, 8))
RUNNING = st.lists(st.tuples(SIZES, st.integers(1, 99)), min_size=5, max_size=24)
GROUPS = st.lists(st.tuples(SIZES, st.integers(1, 2)), max_size=2)


def gang_of_sizes(*sizes: tuple[Vector, int]) -> JobSpec:
    groups, demand = gang_of([TaskGroup(count, need) for need, count in sizes])
    return with_changes(spec(), gang=groups, demand=demand)


@given(RUNNING, GROUPS)
def test_a_gang_is_reserved_the_soonest_time_at_which_it_is_packed(
    running: list[tuple[Vector, int]], groups: list[tuple[Vector, int]]
) -> None:
    """As it would be found by looking after each end."""
    d = Driver(fifo)
    for i in range(7):
        d.join(f"n{i}")
    for demand, seconds in running:
        job = d.submit(JobSpec(("true",), demand, estimate_us=seconds * SECOND))
        if d.job(job).state is JobState.STARTING:
            d.start(job)
    head = d.job(d.submit(gang_of_sizes((Vector(1000, 1024, 6), 3), *groups)))
    assume(head.state is JobState.QUEUED)
    ends = {job: remaining(d.state, d.job(job), d.state.cluster.clock_us) for job in d.state.active}
    offered = offered_to(d.state, head)
    soonest = None
    for job, left in sorted(ends.items(), key=lambda end: (end[1], end[0])):
        assert left is not None
        for run in d.state.runs_of(job):
            offered[:, run.node] += run.demand
        if soonest is None and pack(head.spec.tasks(), offered.copy()) is not None:
            soonest = d.state.cluster.clock_us + left
    found = reserve(d.state, head)
    assert (found and found.at) == soonest


def test_a_gang_is_packed_once_however_many_runs_end_before(monkeypatch: pytest.MonkeyPatch) -> None:
    d = Driver(fifo)
    for i in range(16):
        d.join(f"n{i}")
    for i in range(128):
        d.start(d.submit(JobSpec(("true",), Vector(1000, 1024, 1), estimate_us=(i + 1) * SECOND)))
    head = d.job(d.submit(gang_of_sizes((Vector(1000, 1024, 8), 16))))
    packed = []
    monkeypatch.setattr(
        "scheduler_service.policies.queueing.backfill.pack", lambda *given: packed.append(given) or pack(*given)
    )
    reservation = reserve(d.state, head)
    assert reservation is not None
    assert reservation.nodes == frozenset(range(1, 17))
    assert len(packed) == 1
