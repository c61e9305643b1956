"""How jobs end, or are tried again: time limits, retries, want of memory, and which nodes are to blame."""

from typing import Any

import pytest

from scheduler_service.core.messages import (
    Accepted,
    NodeDeleteRequested,
    NodeSilent,
    Order,
    Stopped,
    Submitted,
    SuspendRequested,
    UndrainRequested,
)
from scheduler_service.core.model import EventKind, JobSpec, JobState, Reason, Retry, RunKey, StopReason
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver, kinds, spec
from tests.policies.made import fitgpp

SMALL = Vector(4_000, 8_192, 1)


def cluster(nodes: int = 1, settings: Settings = Settings()) -> Driver:  # noqa: B008 (immutable)
    d = Driver(fitgpp(PreemptionSettings()), settings)
    for number in range(nodes):
        d.join(f"n{number + 1}", SMALL)
    return d


def retried(limit: int = 2, codes: tuple[int, ...] = (), signals: tuple[int, ...] = ()) -> JobSpec:
    return with_changes(spec(), retry=Retry(limit, codes, signals))


# ---- the time limit ------------------------------------------------------------------------------------------------------


def test_a_run_is_told_to_leave_when_its_time_is_over_and_not_before() -> None:
    d = cluster()
    job = d.submit(with_changes(spec(), time_limit_us=60 * SECOND))
    d.step(after=300)  # waiting to begin is not running
    d.start(job)
    assert not d.step(after=59).orders
    told = d.step(after=1)
    assert told.orders == (Order(1, RunKey(job, 1), 2, Stopped(10 * SECOND, StopReason.TIME_LIMIT)),)
    assert kinds(told, job) == [EventKind.TIME_LIMIT]
    assert (d.job(job).state, d.job(job).reason) == (JobState.STOPPING, Reason.TIME_LIMIT)
    d.now += 3 * SECOND
    d.exit(job, yielded=True)
    assert (d.job(job).state, d.job(job).detail) == (JobState.TIMED_OUT, "it ran for 63 s; its time limit is 60 s")


def test_the_limit_is_over_all_runs() -> None:
    d = cluster()
    job = d.submit(with_changes(spec(), time_limit_us=60 * SECOND))
    d.start(job)
    d.now += 40 * SECOND
    d.exit(job, yielded=True)
    assert d.job(job).ran_us == 40 * SECOND
    d.start(job)
    assert not d.step(after=19).orders
    assert d.step(after=1).orders


def test_a_run_that_finishes_within_its_grace_period_has_succeeded() -> None:
    d = cluster()
    job = d.submit(with_changes(spec(), time_limit_us=SECOND))
    d.start(job)
    d.step(after=1)
    d.exit(job, exit_code=0)
    assert d.job(job).state is JobState.SUCCEEDED


def test_a_preempted_run_has_no_limit_while_it_leaves() -> None:
    d = cluster()
    job = d.submit(with_changes(spec(grace=100), time_limit_us=60 * SECOND))
    d.start(job)
    d.trial()
    d.step(after=90)
    assert d.run(job).stop_reason is StopReason.PREEMPTED
    d.exit(job, yielded=True)
    assert d.job(job).limit_us is None


@pytest.mark.parametrize("outcome", [{"yielded": True}, {"exit_code": 143}])
def test_a_preempted_job_whose_time_is_over_when_it_has_left_ends(outcome: dict[str, Any]) -> None:
    """It would be started to be told to leave, and others leave for that."""
    d = cluster()
    job = d.submit(with_changes(spec(grace=100), time_limit_us=60 * SECOND))
    d.start(job)
    d.step(after=30)
    d.trial()
    d.now += 30 * SECOND
    d.exit(job, **outcome)
    assert (d.job(job).state, d.job(job).reason) == (JobState.TIMED_OUT, Reason.TIME_LIMIT)
    assert d.job(job).detail == "it ran for 60 s; its time limit is 60 s"


def test_a_job_with_no_time_left_is_not_tried_again() -> None:
    d = cluster()
    job = d.submit(with_changes(retried(), time_limit_us=60 * SECOND))
    d.start(job)
    d.step(after=60)
    d.exit(job, launch_error="no such file")
    assert d.job(job).state is JobState.TIMED_OUT


# ---- retries -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "outcome", "again"),
    [
        (retried(), {"exit_code": 1}, True),
        (retried(), {"exit_signal": 9}, True),
        (retried(), {"unknown": True}, True),
        (retried(), {"launch_error": "no such file"}, True),
        (retried(), {"exit_signal": 9, "out_of_memory": True}, True),
        (retried(codes=(1, 75)), {"exit_code": 75}, True),
        (retried(codes=(1, 75)), {"exit_code": 2}, False),
        (retried(codes=(1,)), {"exit_signal": 9}, False),
        (retried(signals=(9,)), {"exit_signal": 9}, True),
        (retried(signals=(9,)), {"exit_code": 9}, False),
        (retried(signals=(9,)), {"unknown": True}, False),
        (retried(limit=0), {"exit_code": 1}, False),
    ],
)
def test_which_failures_are_followed_by_another_run(spec: JobSpec, outcome: dict[str, int], again: bool) -> None:
    d = cluster()
    job = d.submit(spec)
    d.start(job)
    d.exit(job, **outcome)
    assert d.job(job).state is (JobState.QUEUED if again else JobState.FAILED)
    assert d.job(job).retries == int(again)


def test_each_pause_is_twice_as_long_and_then_it_has_failed() -> None:
    d = cluster(settings=Settings(blame_nodes=0))
    job = d.submit(retried(limit=10))
    pauses = []
    for _ in range(10):
        d.start(job)
        d.exit(job, exit_code=1)
        eligible = d.job(job).eligible_us
        assert eligible is not None
        assert (d.job(job).state, d.job(job).reason) == (JobState.QUEUED, Reason.RETRYING)
        pauses.append((eligible - d.now) // SECOND)
        d.now = eligible - 1
        d.step()
        assert d.job(job).state is JobState.QUEUED
        d.now = eligible
        d.step()
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    d.start(job)
    d.exit(job, exit_code=3)
    assert (d.job(job).state, d.job(job).reason, d.job(job).exit_code) == (JobState.FAILED, Reason.EXITED, 3)


def test_a_job_in_its_pause_blocks_nobody() -> None:
    d = cluster()
    job, other = d.submit(retried()), d.submit()
    d.start(job)
    d.exit(job, exit_code=1)
    assert d.states(job, other) == [JobState.QUEUED, JobState.STARTING]
    assert d.job(job).detail == "run 1 left with exit code 1; retry 1 of 2"


def test_what_is_no_failure_is_not_counted() -> None:
    d = cluster()
    job = d.submit(retried(limit=1))
    d.start(job)
    d.trial()
    d.exit(job, exit_code=1)  # it was told to leave
    assert (d.job(job).retries, d.job(job).reason) == (0, Reason.PREEMPTED)


def test_want_of_memory_is_said() -> None:
    d = cluster()
    job = d.submit()
    d.start(job)
    d.exit(job, exit_signal=9, out_of_memory=True)
    assert (d.job(job).state, d.job(job).reason) == (JobState.FAILED, Reason.OUT_OF_MEMORY)
    again = d.submit(retried())
    d.start(again)
    d.exit(again, exit_signal=9, out_of_memory=True)
    assert d.job(again).detail == "run 1 was killed for want of memory; retry 1 of 2"


def test_out_of_device_memory_is_said_with_how_much_of_which_device() -> None:
    d = cluster()
    job = d.submit()
    d.start(job)
    why = "it uses 16000 MiB of device 0, which it shares, and may use 10000 MiB"
    told = d.exit(job, exit_signal=9, out_of_memory=True, out_of_device_memory=why)
    assert (d.job(job).state, d.job(job).reason, d.job(job).detail) == (JobState.FAILED, Reason.OUT_OF_DEVICE_MEMORY, why)
    (line,) = [event for event in told.log if event.kind is EventKind.ENDED]
    assert (line.reason, line.text) == (Reason.OUT_OF_DEVICE_MEMORY, why)
    again = d.submit(retried())
    d.start(again)
    where = d.where(again).id
    d.exit(again, exit_signal=9, out_of_memory=True, out_of_device_memory=why)
    assert d.job(again).detail == f"run 1 was killed: out of device memory ({why}); retry 1 of 2"
    assert d.job(again).avoid == (where,), "as after any other failure"


# ---- who is to blame -----------------------------------------------------------------------------------------------------


def submit(d: Driver, user: str) -> int:
    answer = d.reply(Submitted(user, "", retried()))
    assert isinstance(answer, Accepted), answer
    return answer.job_id


def fail_and_wait(d: Driver, job: int) -> str:
    """The node on which it failed."""
    d.start(job)
    where = d.where(job).name
    d.exit(job, exit_code=1)
    d.step(after=300)
    return where


def test_a_retry_goes_to_another_node_and_a_job_that_fails_everywhere_is_to_blame_itself() -> None:
    d = cluster(nodes=4)
    job = d.submit(retried(limit=10))
    assert [fail_and_wait(d, job) for _ in range(2)] == ["n1", "n2"]
    d.start(job)
    assert d.where(job).name == "n1", "it avoids the node on which it failed last"
    d.exit(job, exit_code=1)
    d.step(after=300)
    assert d.job(job).failed_on == (1, 2)
    d.step(d.seen("n1", SMALL, "b", ()))
    blocker = d.submit()
    assert d.states(job, blocker) == [JobState.STARTING] * 2
    assert fail_and_wait(d, job) == "n2"
    assert d.where(blocker).name == "n1"
    assert fail_and_wait(d, job) == "n3"
    assert (d.job(job).state, d.job(job).reason) == (JobState.FAILED, Reason.FAILED_ON_SEVERAL_NODES)
    assert d.job(job).detail == "it failed on 3 nodes; the last time it left with exit code 1"


def test_a_job_is_retried_on_the_node_that_it_avoids_where_there_is_no_other() -> None:
    d = cluster()
    job = d.submit(retried(limit=9))
    assert {fail_and_wait(d, job) for _ in range(4)} == {"n1"}
    assert d.job(job).state is JobState.STARTING


def test_a_node_on_which_jobs_failed_that_went_well_elsewhere_is_drained() -> None:
    d = cluster(nodes=2, settings=Settings(bad_node_strikes=2))
    for strikes, user in enumerate(("ann", "bob"), 1):
        job = submit(d, user)
        assert fail_and_wait(d, job) == "n1"
        d.start(job)
        assert d.where(job).name == "n2"
        d.exit(job)
        assert d.node("n1").strikes == strikes
    assert d.node("n1").drained_us == d.now
    assert (d.node("n1").drain_user, d.node("n2").drained_us) == ("", None)
    failed = "failed here and succeeded elsewhere"
    assert d.node("n1").drain_reason == f"2 strikes: job 1 of ann {failed}; job 2 of bob {failed}"
    d.step(UndrainRequested("n1"))
    assert (d.node("n1").drained_us, d.node("n1").strikes, d.node("n1").strike_causes) == (None, 0, ())


def test_a_node_that_was_deleted_meanwhile_is_not() -> None:
    d = cluster(nodes=2, settings=Settings(bad_node_strikes=1))
    job = d.submit(retried())
    assert fail_and_wait(d, job) == "n1"
    d.start(job)
    d.step(NodeSilent("n1"), NodeDeleteRequested("n1"))
    d.exit(job)
    deleted = d.state.nodes.rows[1]
    assert (d.job(job).state, deleted.strikes, deleted.drained_us) == (JobState.SUCCEEDED, 0, None)


def test_a_run_that_vanished_is_tried_again_without_retries_of_its_own() -> None:
    """Its launcher or its node is to blame: so is a job of default settings. But not for ever: it may kill its launcher."""
    d = cluster(nodes=2, settings=Settings(fault_retries=2, blame_nodes=0, bad_node_strikes=0))
    job = d.submit()
    for retry in (1, 2):
        d.start(job)
        step = d.exit(job, unknown=True)
        queued = next(event for event in step.log if event.kind is EventKind.REQUEUED)
        assert queued.reason is Reason.RETRYING
        assert f"is gone; nobody knows how it ended; retry {retry} of 2" in queued.text
        d.step(after=300)
    d.start(job)
    d.exit(job, unknown=True)
    assert (d.job(job).state, d.job(job).reason) == (JobState.FAILED, Reason.EXIT_UNKNOWN)


@pytest.mark.parametrize("outcome", [{"exit_code": 1}, {"exit_signal": 9}, {"launch_error": "no such file"}])
def test_what_a_job_did_itself_is_not_tried_again_without_retries(outcome: dict[str, Any]) -> None:
    d = cluster(settings=Settings(fault_retries=2))
    job = d.submit()
    d.start(job)
    d.exit(job, **outcome)
    assert d.job(job).state is JobState.FAILED


def test_a_job_with_more_retries_of_its_own_has_these_when_it_vanishes() -> None:
    for own, state in ((retried(limit=3, signals=(9,)), JobState.FAILED), (retried(limit=3), JobState.STARTING)):
        d = cluster(settings=Settings(fault_retries=1, bad_node_strikes=0))
        job = d.submit(own)
        for _ in range(2):
            d.start(job)
            d.exit(job, unknown=True)
            d.step(after=300)
        assert d.job(job).state is state, "vanishing is no signal 9: the first has the site's retry only"


def test_a_run_that_vanished_is_a_strike_and_one_that_goes_well_forgives_it() -> None:
    d = cluster()
    job, good = d.submit(), d.submit()
    d.start(job)
    d.exit(job, unknown=True)
    assert (d.job(job).reason, d.node().strikes) == (Reason.EXIT_UNKNOWN, 1)
    d.start(good)
    d.exit(good)
    assert d.node().strikes == 0


def test_a_strike_by_a_run_that_is_lost_with_its_boot_is_kept() -> None:
    """The node's row is changed twice in that step: by what it lost, and by its return."""
    d = cluster(settings=Settings(bad_node_strikes=1))
    job = d.submit()
    d.start(job)
    d.step(d.exited(job, unknown=True), d.seen("n1", SMALL, "b", ()))
    assert (d.node().boot_id, d.node().strikes) == ("b", 1)
    assert d.node().drained_us is not None


# ---- the guaranteed time -------------------------------------------------------------------------------------------------


def test_a_run_is_not_preempted_before_it_has_run_for_its_guaranteed_time() -> None:
    d = cluster(settings=Settings(min_run_us=60 * SECOND))
    job = d.submit()
    d.start(job)
    trial = d.trial()
    assert (d.job(job).state, d.job(trial).reason) == (JobState.RUNNING, Reason.NOTHING_TO_PREEMPT)
    assert not d.step(after=59).orders
    assert d.step(after=1).orders
    assert d.job(job).state is JobState.STOPPING


def test_users_may_end_a_run_within_its_guaranteed_time() -> None:
    d = cluster(settings=Settings(min_run_us=60 * SECOND))
    job = d.submit()
    d.start(job)
    d.step(SuspendRequested(job))
    assert (d.run(job).guarded_us, d.job(job).state) == (None, JobState.STOPPING)
