"""Least attained service: who has received little is served before who has received much."""

from random import Random

import pytest

from scheduler_service.core.messages import ResumeRequested, SuspendRequested, VcRequested
from scheduler_service.core.model import JobState, Reason, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import DEFAULTS, Settings
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.stages import Stages
from tests.core.driver import Driver, orders_to_stop, spec
from tests.policies.tenants import Tenants

QUEUED, RUNNING, STARTING, STOPPING = JobState.QUEUED, JobState.RUNNING, JobState.STARTING, JobState.STOPPING


def las(**own: float) -> Stages:
    return stages("las", PreemptionSettings(), own=own)


def driver(settings: Settings = DEFAULTS, **own: float) -> Driver:
    """A node of 8 devices, under a threshold of 800 device-seconds unless another is given."""
    made = las(**{"threshold": 800, **own})
    d = Driver(made.policy, settings, order=order_of(made))
    d.join()
    return d


def run(d: Driver, devices: int = 8, trial: bool = False) -> int:
    job = d.submit(devices=devices, trial=trial)
    d.start(job)
    return job


def queue_of(d: Driver, job: int) -> int:
    return int(d.state.memos.rows["las", f"job/{job}"].value[0])


def test_a_new_job_preempts_one_that_has_received_the_threshold() -> None:
    d = driver()
    long = run(d)
    d.step(after=100)
    new = d.submit(devices=8)
    assert d.states(long, new) == [STOPPING, QUEUED]
    assert d.job(new).reason is Reason.WAITING_FOR_VICTIMS
    assert d.job(long).preempted_for_trial == 0, "that counts preemptions by trials"
    d.exit(long, yielded=True)
    assert d.states(long, new) == [QUEUED, STARTING]


def test_before_the_threshold_it_waits_and_is_served_when_the_threshold_is_reached() -> None:
    d = driver()
    long = run(d)
    new = d.submit(devices=8)
    assert d.states(long, new) == [RUNNING, QUEUED]
    d.step(after=99)
    assert d.states(long, new) == [RUNNING, QUEUED]
    taken = d.step(after=1)
    assert orders_to_stop(taken) == [d.run(long).key], "nothing happened but that time passed"
    assert d.states(long, new) == [STOPPING, QUEUED]


def test_a_job_that_nobody_waits_for_goes_on() -> None:
    d = driver()
    long = run(d)
    d.step(after=1000)
    assert d.states(long) == [RUNNING]
    assert queue_of(d, long) == 1


def test_in_the_same_queue_who_runs_goes_on() -> None:
    d = driver()
    first = run(d)
    d.step(after=100)
    second = d.submit(devices=8)
    d.exit(first, yielded=True)
    d.start(second)
    d.step(after=100)
    d.step()
    assert (queue_of(d, first), queue_of(d, second)) == (1, 1)
    assert d.states(first, second) == [QUEUED, STOPPING], "who came to the queue later gives way to who waits there"
    d.exit(second, yielded=True)
    d.start(first)
    d.step(after=500)
    assert d.states(first, second) == [RUNNING, QUEUED], "and from then on who runs goes on"


def test_service_is_devices_times_time() -> None:
    d = driver()
    wide, narrow = run(d, 4), run(d, 1)
    d.step(after=200)
    assert (queue_of(d, wide), queue_of(d, narrow)) == (1, 0)
    d.step(after=600)
    assert queue_of(d, narrow) == 1


def test_service_of_earlier_runs_counts() -> None:
    d = driver()
    job = run(d)
    d.step(after=60)
    d.exit(job, yielded=True)
    d.start(job)
    d.step(after=39)
    assert queue_of(d, job) == 0
    d.step(after=1)
    assert queue_of(d, job) == 1


def test_the_last_in_the_order_is_preempted_and_no_more_than_needed() -> None:
    d = driver()
    jobs = [run(d, 2) for _ in range(4)]
    d.step(after=400)
    d.step()
    new = d.submit(devices=2)
    assert d.states(*jobs, new) == [RUNNING, RUNNING, RUNNING, STOPPING, QUEUED]


def test_a_small_job_overtakes_a_large_one_that_does_not_fit() -> None:
    d = driver()
    run(d, 4)
    large, small = d.submit(devices=8), d.submit(devices=4)
    assert d.states(large, small) == [QUEUED, STARTING]
    assert d.job(large).reason is Reason.NO_ROOM


def test_a_gang_preempts_on_several_nodes() -> None:
    d = driver()
    d.join("n2")
    jobs = [run(d), run(d)]
    d.step(after=100)
    gang = with_changes(spec(), gang=(TaskGroup(2, Vector(1000, 1024, 8)),), demand=Vector(2000, 2048, 16))
    new = d.submit(gang)
    assert d.states(*jobs, new) == [STOPPING, STOPPING, QUEUED]
    for job in jobs:
        d.exit(job, yielded=True)
    assert d.states(new) == [STARTING]


def test_trials_and_runs_within_their_minimum_time_are_spared() -> None:
    d = driver(Settings(min_run_us=1000 * SECOND))
    trial, guarded = run(d, 4, trial=True), run(d, 4)
    d.step(after=500)
    assert (queue_of(d, trial), queue_of(d, guarded)) == (1, 1)
    new = d.submit(devices=4)
    assert d.states(trial, guarded, new) == [RUNNING, RUNNING, QUEUED]
    d.step(after=500)
    assert d.states(trial, guarded, new) == [RUNNING, STOPPING, QUEUED]


def test_priority_comes_before_service() -> None:
    d = driver()
    job = run(d)
    urgent = d.submit(with_changes(spec(8), priority=1))
    assert d.states(job, urgent) == [STOPPING, QUEUED], "it is in the first queue, and behind all the same"


def test_who_has_waited_for_long_goes_back_to_the_first_queue() -> None:
    d = driver(patience=2)
    long = run(d)
    d.step(after=100)
    new = d.submit(devices=8)
    d.exit(long, yielded=True)
    d.start(new)
    assert queue_of(d, long) == 1
    for _ in range(3):  # new jobs are always before it
        d.step(after=50)
        new, old = d.submit(devices=8), new
        d.exit(old)
        d.start(new)
    assert d.states(long) == [QUEUED]
    d.step(after=50)
    assert queue_of(d, long) == 0, "200 s after its run of 100 s ended"
    d.exit(new)
    assert d.states(long) == [STARTING]
    d.start(long)
    d.step(after=99)
    assert queue_of(d, long) == 0, "the service that it had received before does not count any more"
    d.step(after=1)
    assert queue_of(d, long) == 1


def test_without_patience_it_waits() -> None:
    d = driver(patience=0)
    long = run(d)
    d.step(after=100)
    new = d.submit(devices=8)
    d.exit(long, yielded=True)
    d.start(new)
    d.step(after=90)
    assert queue_of(d, long) == 1
    assert d.state.memos.rows["las", f"job/{long}"].due_us is None


def test_the_budget_bounds_how_often_a_job_is_preempted() -> None:
    d = driver(budget=1)
    long = run(d)
    d.step(after=100)
    first = d.submit(devices=8)
    d.exit(long, yielded=True)
    d.start(first)
    d.exit(first)
    d.start(long)
    second = d.submit(devices=8)
    d.step(after=100)
    assert d.states(long, second) == [RUNNING, QUEUED]


def test_a_stop_for_another_reason_does_not_count_in_the_budget() -> None:
    d = driver(budget=1)
    job = run(d)
    d.step(SuspendRequested(job))
    assert d.states(job) == [STOPPING]
    assert d.state.memos.rows["las", f"job/{job}"].value[5] == 0


def test_a_new_leader_goes_on_with_what_was_remembered() -> None:
    d = driver()
    long = run(d)
    d.step(after=60)
    rows = [(t.name, key, row) for t in d.state.tables() for key, row in t.rows.items() if t.name != "cluster"]
    d.state = State(d.state.cluster, d.state.settings, d.state.order_of)
    d.state.restore(iter(rows))
    new = d.submit(devices=8)
    d.step(after=39)
    assert d.states(long, new) == [RUNNING, QUEUED]
    d.step(after=1)
    assert d.states(long, new) == [STOPPING, QUEUED]


def test_explain_says_in_which_queue_a_job_is_and_whom_it_would_preempt() -> None:
    d, made = driver(), las(threshold=800)
    long, short = run(d, 4), run(d, 4)
    d.step(after=150)
    waiting = d.submit(devices=8)
    told = explain(d.state, d.job(waiting), d.now, Random(0), made)
    assert [blocker.reason for blocker in told.blockers] == [Reason.NO_ROOM, Reason.NOTHING_TO_PREEMPT]
    assert "queue 1 of 2 by 0 device-seconds of service" in told.blockers[0].detail
    d.step(after=50)
    assert d.states(long, short) == [STOPPING, STOPPING]


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"threshold": 0}, r"threshold is 0; it must be more than 0"),
        ({"threshold": 10, "second_threshold": 5}, r"second_threshold is 5; it must be more than threshold \(10\), or 0"),
        ({"patience": -1}, r"patience \(-1\)"),
        ({"limit": 1}, r"no setting 'limit'; it has threshold, second_threshold, patience, budget"),
        ({"threshold": float("inf")}, r"threshold is inf; it must be a finite number"),
    ],
)
def test_settings_that_cannot_be_are_refused(own: dict[str, float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        las(**own)


def test_a_job_that_waits_with_service_from_another_policy_is_behind_who_has_none() -> None:
    d = Tenants({"n1": "FOUR"})
    d.vc("a", ("four-2x2", "node", 1))
    old = d.ask("a", 4)
    d.step(after=7200)
    busy = d.ask("a", 4)
    d.step(SuspendRequested(old))
    d.leave(old)
    d.step(ResumeRequested(old))
    new = d.ask("a", 4)
    d.step(VcRequested("a", False, policy=VcPolicy("las")))
    assert d.states(busy, new, old) == [RUNNING, QUEUED, QUEUED]
    d.end(busy)
    assert d.states(new, old) == [RUNNING, QUEUED]
