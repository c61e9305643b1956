"""Jobs that wait for the end of others."""

import pytest

from scheduler_service.core.engine import step
from scheduler_service.core.errors import FailedPrecondition, LookupNeeded, NotFound
from scheduler_service.core.messages import Accepted, CancelRequested, HoldRequested, RunExited, Submitted, UpdateRequested
from scheduler_service.core.model import Array, Dependency, DependencyKind, EventKind, Job, JobState, Reason, Retry
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.state import State
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import EPOCH, Driver, kinds, spec
from tests.policies.cluster import seeded
from tests.policies.made import fitgpp

OK, ANY, FAILED = DependencyKind.AFTER_OK, DependencyKind.AFTER_ANY, DependencyKind.AFTER_FAILED


def after(*pairs: tuple[int, DependencyKind]) -> tuple[Dependency, ...]:
    return tuple(Dependency(*pair) for pair in pairs)


def waiting(d: Driver, *pairs: tuple[int, DependencyKind], trial: bool = False) -> int:
    return d.submit(with_changes(spec(trial=trial), dependencies=after(*pairs)))


@pytest.mark.parametrize(
    ("kind", "outcome", "starts"),
    [
        (OK, {}, True),
        (OK, {"exit_code": 1}, False),
        (ANY, {}, True),
        (ANY, {"exit_code": 1}, True),
        (FAILED, {}, False),
        (FAILED, {"exit_signal": 9}, True),
    ],
)
def test_it_starts_when_the_other_has_ended_as_it_must(kind: DependencyKind, outcome: dict[str, int], starts: bool) -> None:
    d = Driver()
    d.join()
    first = d.submit()
    job = waiting(d, (first, kind))
    assert (d.job(job).state, d.job(job).reason, d.job(job).cause_job) == (JobState.QUEUED, Reason.DEPENDENCY, first)
    d.exit(first, **outcome)
    if starts:
        assert (d.job(job).state, d.job(job).waits_for) == (JobState.STARTING, ())
    else:
        assert (d.job(job).state, d.job(job).reason) == (JobState.CANCELLED, Reason.DEPENDENCY_NEVER)
        assert d.job(job).cause_job == first


def test_a_cancelled_job_has_not_gone_well() -> None:
    d = Driver()
    first = d.submit()
    never, does = waiting(d, (first, OK)), waiting(d, (first, FAILED))
    d.cancel(first)
    assert d.states(never, does) == [JobState.CANCELLED, JobState.QUEUED]
    assert not d.job(does).waits_for


def test_all_must_hold() -> None:
    d = Driver()
    d.join()
    one, two = d.submit(), d.submit()
    job = waiting(d, (one, OK), (two, ANY))
    d.exit(one)
    assert (d.job(job).state, d.job(job).cause_job) == (JobState.QUEUED, two)
    d.exit(two, exit_code=1)
    assert d.job(job).state is JobState.STARTING


def test_a_retry_is_no_end() -> None:
    d = Driver()
    d.join()
    first = d.submit(with_changes(spec(), retry=Retry(1)))
    job = waiting(d, (first, FAILED))
    d.exit(first, exit_code=1)
    assert d.job(job).state is JobState.QUEUED
    d.step(after=1)
    d.exit(first, exit_code=1)
    assert d.job(job).state is JobState.STARTING


def test_a_job_that_waits_blocks_nobody() -> None:
    d = Driver()
    d.join()
    first = d.submit()
    waiting(d, (first, OK))
    assert d.job(d.submit()).state is JobState.STARTING


def test_a_held_job_stays_held_when_what_it_waited_for_has_ended() -> None:
    d = Driver()
    d.join()
    first = d.submit()
    job = waiting(d, (first, OK))
    d.step(HoldRequested(job))
    d.exit(first)
    assert (d.job(job).state, d.job(job).reason, d.job(job).waits_for) == (JobState.QUEUED, Reason.HELD, ())


def test_an_array_is_over_when_all_its_elements_are() -> None:
    d = Driver()
    d.join()
    array = d.submit(with_changes(spec(), array=Array(2)))
    good, bad = waiting(d, (array, OK)), waiting(d, (array, FAILED))
    one, two = sorted(d.state.elements_of[array])
    d.exit(one, exit_code=1)
    assert d.states(good, bad) == [JobState.QUEUED] * 2
    d.exit(two)
    assert d.states(good, bad) == [JobState.CANCELLED, JobState.STARTING]


def test_a_chain_of_five_thousand_ends_without_recursion() -> None:
    """And a second of ones that hold comes to its turn one by one."""
    policy = fitgpp(PreemptionSettings())
    d = Driver(policy)
    state: State = d.state
    first = d.submit()
    rows = [
        with_changes(d.job(first), id=first + n, waits_for=after((first + n - 1, OK)), request_id="") for n in range(1, 5_000)
    ]
    for row in rows:
        state.put(state.jobs, row.id, row)
    state.put(state.cluster_table, 0, with_changes(state.cluster, next_job=first + 5_000))
    state.adopt()
    taken = step(state, [CancelRequested(first)], EPOCH, seeded(), policy)
    assert taken.replies == (Accepted(first),)
    ends: list[Job] = [change.new for change in taken.changes if change.table == "job"]
    assert len(ends) == 5_000
    assert {end.state for end in ends} == {JobState.CANCELLED}
    assert (ends[-1].cause_job, ends[-1].reason) == (first + 4_998, Reason.DEPENDENCY_NEVER)
    state.undo()
    assert len(state.jobs.rows) == 5_000
    end = step(state, [UpdateRequested(first, dependencies=after((first + 4_999, OK)))], EPOCH, seeded(), policy).replies[0]
    assert isinstance(end, FailedPrecondition), "nor is the search for a cycle"
    assert end.reason == "DEPENDENCY_CYCLE"


# ---- at submit -----------------------------------------------------------------------------------------------------------


def test_what_is_not_live_must_be_looked_up_first() -> None:
    d = Driver()
    reply = d.reply(Submitted("ann", "", with_changes(spec(), dependencies=after((7, OK), (8, ANY)))))
    assert isinstance(reply, LookupNeeded)
    assert isinstance(reply, NotFound)
    assert reply.jobs == (7, 8)
    assert d.state.cluster.next_job == 1


@pytest.mark.parametrize(
    ("kind", "end", "taken"),
    [
        (OK, JobState.SUCCEEDED, True),
        (OK, JobState.FAILED, False),
        (OK, JobState.TIMED_OUT, False),
        (ANY, JobState.CANCELLED, True),
        (FAILED, JobState.TIMED_OUT, True),
        (FAILED, JobState.SUCCEEDED, False),
    ],
)
def test_what_has_ended_holds_already_or_never_will(kind: DependencyKind, end: JobState, taken: bool) -> None:
    d = Driver()
    d.join()
    d.exit(d.submit())
    reply = d.reply(Submitted("ann", "", with_changes(spec(), dependencies=after((1, kind))), ends=((1, end),)))
    if taken:
        assert reply == Accepted(2)
        assert d.job(2).state is JobState.STARTING
    else:
        assert isinstance(reply, FailedPrecondition)
        assert (reply.reason, reply.metadata) == ("DEPENDENCY_NEVER", {"job_id": "1"})


def test_what_ends_in_the_same_batch_is_awaited_or_gone() -> None:
    """A submit behind the end of what it waits for must be looked up, and one before it is let go by it."""
    d = Driver()
    d.join()
    first = d.submit()
    ask = Submitted("ann", "", with_changes(spec(), dependencies=after((first, OK))))
    before, _, late = d.step(ask, d.exited(first), ask).replies
    assert before == Accepted(2)
    assert d.job(2).state is JobState.STARTING
    assert isinstance(late, LookupNeeded)


# ---- changed later -------------------------------------------------------------------------------------------------------


def test_dependencies_can_be_changed_until_the_job_has_started() -> None:
    d = Driver()
    d.join(capacity=Vector(4_000, 8_192, 1))
    first, second = d.submit(), d.submit()
    job = waiting(d, (first, OK))
    d.step(UpdateRequested(job, dependencies=after((second, ANY))))
    assert (d.job(job).waits_for, d.job(job).cause_job) == (after((second, ANY)), second)
    d.step(UpdateRequested(job, dependencies=()))
    assert (d.job(job).waits_for, d.job(job).reason) == ((), Reason.NONE)
    d.exit(first)
    d.exit(second)
    assert isinstance(d.reply(UpdateRequested(job, dependencies=())), FailedPrecondition)


def test_a_cycle_is_refused() -> None:
    d = Driver()
    one = d.submit()
    two = waiting(d, (one, OK))
    three = waiting(d, (two, OK))
    for target in (one, two, three):
        refused = d.reply(UpdateRequested(one, dependencies=after((target, OK))))
        assert isinstance(refused, FailedPrecondition)
        assert refused.reason == "DEPENDENCY_CYCLE"
    assert d.reply(UpdateRequested(three, dependencies=after((one, OK)))) == Accepted(three)


def test_a_trial_that_is_made_to_wait_gives_up_what_is_kept_for_it() -> None:
    d = Driver(fitgpp(PreemptionSettings()))
    d.join(capacity=Vector(4_000, 8_192, 2))
    victim, other = d.submit(), d.submit()
    d.start(victim, other)
    trial = d.trial()
    assert d.earmark(trial) is not None
    told = d.step(UpdateRequested(trial, dependencies=after((victim, ANY))))
    assert kinds(told, trial) == [EventKind.EARMARK_DROPPED, EventKind.UPDATED]
    assert not d.state.earmarks.rows
    leaving = next(run.job_id for run in d.state.runs.rows.values() if run.stop_us is not None)
    d.exit(leaving, yielded=True)
    assert d.job(trial).state is JobState.QUEUED
    d.cancel(victim)
    d.step(RunExited("n1", "a", d.node().sequence + 1, d.run(victim).key, yielded=True))
    assert d.job(trial).state is JobState.STARTING
