"""What each event means, as a table of outcomes."""

from dataclasses import replace

import pytest

from scheduler_service.core.errors import AlreadyExists, FailedPrecondition, NotFound
from scheduler_service.core.messages import (
    Accepted,
    Acknowledged,
    CancelRequested,
    Joined,
    Launch,
    NodeSeen,
    NodeSilent,
    Order,
    RunExited,
    RunStarted,
    Stopped,
    Submitted,
)
from scheduler_service.core.model import EventKind, JobState, NodeState, Reason, RunKey, RunPhase, StopReason
from scheduler_service.core.model.inventory import Inventory
from scheduler_service.core.model.values import SECOND, ZERO, Vector
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import NODE, Driver, inventory, kinds, orders_to_start, orders_to_stop, spec
from tests.policies.made import fitgpp

SMALL = Vector(4_000, 8_192, 1)
"""A node for one job at a time."""


def running(d: Driver, **wants: int) -> int:
    job = d.submit(**wants)
    d.start(job)
    return job


def preempted() -> tuple[Driver, int, int]:
    """A best-effort job that was told to leave for a trial."""
    d = Driver(fitgpp(PreemptionSettings()))
    d.join(capacity=SMALL)
    job = running(d)
    return d, job, d.trial()


# ---- submit ------------------------------------------------------------------------------------------------------------


def test_a_job_is_placed_in_the_step_of_its_submit() -> None:
    d = Driver()
    d.join()
    step = d.step(Submitted("ann", "", spec(2)))
    assert step.replies == (Accepted(1),)
    assert kinds(step, 1) == [EventKind.SUBMITTED, EventKind.PLACED]
    assert orders_to_start(step) == [RunKey(1, 1)]
    assert d.run(1).devices == (0, 1)
    assert d.free() == Vector(31_000, 64_512, 6)


def test_a_request_id_gives_the_same_job() -> None:
    d = Driver()
    job = d.submit(request_id="r")
    assert d.submit(request_id="r") == job
    assert d.submit(request_id="s") != job
    assert d.reply(Submitted("bob", "r", spec(2))) == Accepted(3), "another user's request_id is another"


def test_a_request_id_with_another_spec_is_refused() -> None:
    d = Driver()
    job = d.submit(request_id="r")
    refused = d.reply(Submitted("ann", "r", spec(2)))
    assert isinstance(refused, AlreadyExists)
    assert (refused.reason, refused.metadata) == ("REQUEST_ID_REUSED", {"job_id": str(job)})


def test_what_fits_no_node_is_refused_but_waits_where_there_are_none() -> None:
    d = Driver()
    early = d.submit(devices=9)
    d.join()
    refused = d.reply(Submitted("ann", "", spec(9)))
    assert isinstance(refused, FailedPrecondition)
    assert refused.reason == "NO_NODE_LARGE_ENOUGH"
    assert "9 devices, 1 CPUs and 1024 MiB" in str(refused)
    assert d.job(early).reason is Reason.TOO_LARGE


# ---- cancel ------------------------------------------------------------------------------------------------------------


def test_cancel_of_a_queued_job_ends_it() -> None:
    d = Driver()
    job = d.submit()
    step = d.cancel(job)
    assert (d.job(job).state, d.job(job).reason) == (JobState.CANCELLED, Reason.CANCELLED)
    assert kinds(step, job) == [EventKind.CANCEL_REQUESTED, EventKind.ENDED]
    assert not step.orders


@pytest.mark.parametrize("begun", [False, True])
def test_cancel_of_a_run_stops_it(begun: bool) -> None:
    d = Driver()
    d.join()
    job = d.submit(grace=7)
    if begun:
        d.start(job)
    step = d.cancel(job)
    assert step.orders == (Order(1, RunKey(job, 1), 2, Stopped(7 * SECOND, StopReason.CANCELLED)),)
    assert (d.job(job).state, d.job(job).reason) == (JobState.STOPPING, Reason.CANCELLED)
    again = d.cancel(job)
    assert again.replies == (Accepted(job),)
    assert not again.orders
    assert not again.log
    d.exit(job, exit_signal=15)
    ended = d.job(job)
    assert (ended.state, ended.reason, ended.exit_signal) == (JobState.CANCELLED, Reason.CANCELLED, 15)


def test_cancel_of_a_preempted_job_ends_it_when_it_has_left() -> None:
    d, job, trial = preempted()
    step = d.cancel(job)
    assert not step.orders, "it was told to leave before"
    assert d.run(job).stop_reason is StopReason.CANCELLED
    d.exit(job, yielded=True)
    assert d.states(job, trial) == [JobState.CANCELLED, JobState.STARTING]


def test_cancel_of_an_unreachable_job_waits_for_its_node() -> None:
    d = Driver()
    d.join()
    job = running(d)
    d.silence()
    d.cancel(job)
    assert (d.job(job).state, d.job(job).reason) == (JobState.UNREACHABLE, Reason.NODE_SILENT)
    reply = d.join().replies[0]
    assert isinstance(reply, Joined)
    assert reply.orders == (Order(1, RunKey(job, 1), 2, Stopped(10 * SECOND, StopReason.CANCELLED)),)
    assert (d.job(job).state, d.job(job).reason) == (JobState.STOPPING, Reason.CANCELLED)


def test_cancel_of_what_is_not_live_is_refused() -> None:
    refused = Driver().reply(CancelRequested(7))
    assert isinstance(refused, NotFound)
    assert refused.metadata == {"job_id": "7"}


# ---- the end of a run ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "state", "reason"),
    [
        ({}, JobState.SUCCEEDED, Reason.EXITED),
        ({"exit_code": 3}, JobState.FAILED, Reason.EXITED),
        ({"exit_signal": 9}, JobState.FAILED, Reason.SIGNALLED),
        ({"unknown": True}, JobState.FAILED, Reason.EXIT_UNKNOWN),
        ({"launch_error": "no such file"}, JobState.FAILED, Reason.LAUNCH_FAILED),
    ],
)
def test_a_run_that_was_left_alone_ends_its_job(outcome: dict[str, int | bool | str], state: JobState, reason: Reason) -> None:
    d = Driver()
    d.join()
    job = running(d)
    step = d.exit(job, **outcome)
    ended = d.job(job)
    assert (ended.state, ended.reason) == (state, reason)
    assert (ended.exit_code, ended.exit_signal) == (outcome.get("exit_code", 0), outcome.get("exit_signal", 0))
    assert kinds(step, job) == [EventKind.ENDED]
    assert d.free() == NODE
    assert "no such file" in ended.detail or "launch_error" not in outcome


@pytest.mark.parametrize(
    "outcome", [{"yielded": True}, {"yielded": True, "exit_code": 75}, {"unknown": True}, {"exit_code": 1}, {"exit_signal": 9}]
)
def test_a_preempted_run_returns_to_the_top_of_its_queue(outcome: dict[str, int | bool | str]) -> None:
    d, job, trial = preempted()
    younger = d.submit()
    step = d.exit(job, **outcome)
    back = d.job(job)
    assert (back.state, back.reason, back.cause_job, back.preempted_for_trial) == (JobState.QUEUED, Reason.PREEMPTED, trial, 1)
    assert kinds(step, job) == [EventKind.VACATED, EventKind.REQUEUED]
    assert d.job(trial).state is JobState.STARTING
    d.exit(trial)
    assert d.states(job, younger) == [JobState.STARTING, JobState.QUEUED]
    assert d.job(job).run == 2


@pytest.mark.parametrize(
    ("outcome", "reason", "text"),
    [
        ({"yielded": True}, Reason.NONE, "saved its work and left"),
        ({"yielded": True, "exit_code": 143}, Reason.NONE, "saved its work and left"),
        ({"yielded": True, "unknown": True}, Reason.EXIT_UNKNOWN, "saved its work and left"),
        ({"unknown": True}, Reason.EXIT_UNKNOWN, "is gone; nobody knows how it ended"),
    ],
)
def test_that_a_run_left_is_told_with_its_exit_code_if_that_is_known(
    outcome: dict[str, int | bool], reason: Reason, text: str
) -> None:
    d, job, trial = preempted()
    left = next(event for event in d.exit(job, **outcome).log if event.kind is EventKind.VACATED)
    assert (left.reason, left.text, left.cause_job, left.exit_code) == (reason, text, trial, outcome.get("exit_code", 0))


@pytest.mark.parametrize("outcome", [{"exit_signal": 15}, {"yielded": True}])
def test_a_run_that_was_told_to_leave_before_it_began_was_ended_by_nothing(outcome: dict[str, int | bool]) -> None:
    """Its agent, which had it not yet, has only words of processes for that."""
    d = Driver(fitgpp(PreemptionSettings()))
    d.join(capacity=SMALL)
    job = d.submit()
    d.trial()
    (left,) = [event for event in d.exit(job, **outcome).log if event.kind is EventKind.VACATED]
    assert left.text == "left before it began"


def test_a_preempted_run_that_finishes_has_succeeded() -> None:
    d, job, trial = preempted()
    d.exit(job, exit_code=0, told=True, done=True)
    assert d.states(job, trial) == [JobState.SUCCEEDED, JobState.STARTING]


def test_a_preempted_run_that_could_not_be_launched_has_failed() -> None:
    d, job, _ = preempted()
    d.exit(job, launch_error="no such file")
    assert d.job(job).reason is Reason.LAUNCH_FAILED


def test_a_run_that_yields_unasked_returns_to_the_top() -> None:
    d = Driver()
    d.join(capacity=SMALL)
    job = running(d)
    waiting = d.submit()
    d.now += 2 * SECOND
    step = d.exit(job, yielded=True)
    assert EventKind.REQUEUED in kinds(step, job)
    assert d.states(job, waiting) == [JobState.STARTING, JobState.QUEUED]
    assert d.job(job).preempted_for_trial == 0


def test_a_run_that_ends_before_its_start_was_reported() -> None:
    d = Driver()
    d.join()
    job = d.submit()
    d.exit(job, exit_code=2)
    assert (d.job(job).state, d.job(job).started_us) == (JobState.FAILED, None)


def test_a_start_while_stopping_is_noted_and_goes_on_stopping() -> None:
    d = Driver()
    d.join()
    job = d.submit()
    d.cancel(job)
    d.start(job)
    assert (d.job(job).state, d.run(job).phase, d.run(job).started_us) == (JobState.STOPPING, RunPhase.STOPPING, d.now)


def test_the_first_start_counts_as_the_job_s() -> None:
    d = Driver()
    d.join()
    job = running(d)
    first = d.now
    d.step(after=5)
    d.exit(job, yielded=True)
    d.start(job)
    assert (d.job(job).started_us, d.run(job).started_us) == (first, first + 5 * SECOND)
    assert d.run(job).log_path == f"/logs/{job}.2"


# ---- reports -------------------------------------------------------------------------------------------------------------


def test_an_agent_that_connects_again_as_it_was_changes_nothing_by_that() -> None:
    cluster = Driver()
    cluster.join()
    job = cluster.submit()
    cluster.start(job)
    seen = replace(cluster.seen("n1"), address="ipv4:10.0.0.1:4711")
    cluster.step(seen)
    again = cluster.step(seen)
    assert {change.table for change in again.changes} <= {"cluster"}
    cluster.step(replace(seen, address="ipv4:10.0.0.1:4712"))
    assert cluster.node("n1").address == "ipv4:10.0.0.1:4712"


def test_a_report_counts_once() -> None:
    d = Driver()
    d.join()
    job = d.submit()
    started = d.started(job)
    assert d.reply(started) == Acknowledged("n1", 1)
    assert d.node().sequence == 1
    again = d.step(started, after=1)
    assert again.replies == (Acknowledged("n1", 1),)
    assert not again.log
    assert d.run(job).started_us == d.now - SECOND


def test_the_story_says_what_became_of_a_dump() -> None:
    d = Driver()
    d.join()
    job = d.submit()
    step = d.step(replace(d.started(job), restored="CRIU restored run 1"))
    assert [line.text for line in step.log if line.kind is EventKind.STARTED] == ["CRIU restored run 1"]


def test_a_report_of_another_boot_is_stale() -> None:
    d = Driver()
    d.join(boot="b")
    job = d.submit()
    assert d.reply(RunExited("n1", "a", 1, RunKey(job, 1))) == Acknowledged("n1", 1, stale=True)
    assert d.reply(RunExited("nowhere", "a", 1, RunKey(job, 1))) == Acknowledged("nowhere", 1, stale=True)
    assert d.job(job).state is JobState.STARTING


def test_a_gap_between_reports_is_refused() -> None:
    d = Driver()
    d.join()
    job = d.submit()
    refused = d.reply(RunStarted("n1", "a", 2, RunKey(job, 1)))
    assert isinstance(refused, FailedPrecondition)
    assert refused.reason == "REPORT_GAP"
    assert d.node().sequence == 0


def test_a_report_about_a_run_that_is_over_or_elsewhere_is_counted_and_no_more() -> None:
    d = Driver()
    d.join("n1")
    d.join("n2")
    job = running(d)
    assert d.reply(RunExited("n2", "a", 1, RunKey(job, 1))) == Acknowledged("n2", 1)
    assert d.reply(RunExited("n2", "a", 2, RunKey(99, 1))) == Acknowledged("n2", 2)
    assert d.job(job).state is JobState.RUNNING
    d.now += 2 * SECOND
    d.exit(job, yielded=True)
    assert d.reply(RunExited("n1", "a", 3, RunKey(job, 1))) == Acknowledged("n1", 3)
    assert d.job(job).state is JobState.STARTING
    assert d.job(job).run == 2


# ---- nodes ---------------------------------------------------------------------------------------------------------------


def test_a_silent_node_s_runs_are_unreachable_and_keep_what_they_hold() -> None:
    d = Driver(fitgpp(PreemptionSettings()))
    d.join(capacity=Vector(4_000, 8_192, 4))
    starting, run, leaving = d.submit(), running(d), running(d, devices=2)
    d.cancel(leaving)
    before = d.states(starting, run, leaving)
    free = d.free()
    step = d.silence()
    assert d.states(starting, run, leaving) == [JobState.UNREACHABLE] * 3
    assert {d.job(job).reason for job in (starting, run, leaving)} == {Reason.NODE_SILENT}
    assert kinds(step, run) == [EventKind.NODE_SILENT]
    assert d.free() == free
    waiting = d.submit()
    assert d.job(waiting).state is JobState.QUEUED
    assert not d.silence().log, "it is silent already"
    step = d.join(capacity=Vector(4_000, 8_192, 4))
    assert d.states(starting, run, leaving) == before
    assert [d.job(job).reason for job in (starting, run, leaving)] == [Reason.NONE, Reason.NONE, Reason.CANCELLED]
    assert kinds(step, run) == [EventKind.NODE_RETURNED]


def test_a_return_shows_who_was_preempted_and_for_whom() -> None:
    d, job, trial = preempted()
    d.silence()
    d.join(capacity=SMALL)
    assert (d.job(job).state, d.job(job).reason, d.job(job).cause_job) == (JobState.STOPPING, Reason.PREEMPTED, trial)


def test_reports_of_a_silent_node_count() -> None:
    d = Driver()
    d.join()
    job, other = d.submit(), running(d)
    d.silence()
    d.start(job)
    assert (d.job(job).state, d.run(job).phase) == (JobState.UNREACHABLE, RunPhase.RUNNING)
    d.exit(other)
    assert d.job(other).state is JobState.SUCCEEDED


def test_silence_of_an_unknown_node_is_nothing() -> None:
    assert Driver().step(NodeSilent("n9")).replies == (None,)


def test_a_reboot_requeues_everything() -> None:
    d = Driver()
    d.join()
    starting, run, leaving = d.submit(), running(d), running(d)
    d.cancel(leaving)
    waiting = d.submit(devices=8)
    step = d.join(boot="b", known=())
    assert d.states(starting, run, leaving, waiting) == [
        JobState.STARTING,
        JobState.STARTING,
        JobState.CANCELLED,
        JobState.QUEUED,
    ]
    assert [event.reason for event in step.log if event.kind is EventKind.REQUEUED] == [Reason.NODE_LOST] * 2
    assert orders_to_start(step) == [RunKey(starting, 2), RunKey(run, 2)]
    assert d.node().sequence == 0


def test_a_run_that_its_agent_lost_is_requeued_and_one_never_started_is_ordered_again() -> None:
    d = Driver()
    d.join()
    starting, lost, kept = d.submit(), running(d), running(d)
    reply = d.join(known=(RunKey(kept, 1),)).replies[0]
    assert isinstance(reply, Joined)
    assert reply.acknowledged == 2
    assert [order.key for order in reply.orders if isinstance(order.desired, Launch)] == [RunKey(starting, 1)]
    assert d.states(starting, lost, kept) == [JobState.STARTING, JobState.STARTING, JobState.RUNNING]
    assert d.job(lost).run == 2


def test_an_agent_is_told_to_kill_what_nobody_claims() -> None:
    """Within a grace period it could save its work, over what the same job has saved elsewhere since."""
    d = Driver()
    reply = d.join(known=(RunKey(5, 2),)).replies[0]
    assert isinstance(reply, Joined)
    assert reply.orders == (Order(1, RunKey(5, 2), 1, Stopped(0, StopReason.UNCLAIMED)),)


def test_a_stop_is_repeated_to_an_agent_that_comes_back() -> None:
    d, job, trial = preempted()
    step = d.join(capacity=SMALL)
    reply = step.replies[0]
    assert isinstance(reply, Joined)
    assert reply.orders == (Order(1, RunKey(job, 1), 2, Stopped(10 * SECOND, StopReason.PREEMPTED, trial)),)
    assert not orders_to_stop(step), "it is no news"


@pytest.mark.parametrize("change", ["capacity", "fewer", "model"])
def test_another_inventory_is_refused_while_something_runs(change: str) -> None:
    changed = {
        "capacity": inventory(Vector(64_000, 65_536, 8)),
        "fewer": inventory(Vector(32_000, 65_536, 4)),
        "model": inventory(NODE, "H200"),
    }[change]
    d = Driver()
    d.join()
    job = running(d)
    before = d.state.snapshot()
    refused = d.reply(NodeSeen("n1", "a", changed, d.seen("n1").runs))
    assert isinstance(refused, FailedPrecondition)
    assert refused.reason == "INVENTORY_CHANGED"
    assert d.state.snapshot() == before
    assert d.job(job).state is JobState.RUNNING
    d.exit(job)
    assert isinstance(d.reply(NodeSeen("n1", "a", changed)), Joined)
    assert d.free() == changed.capacity
    assert len(d.state.devices.rows) == changed.capacity.devices


def test_what_a_refused_agent_undid_is_told_to_nobody_again() -> None:
    """A run that its agent does not know is lost before the inventory is refused, and then it is as it was: told to leave."""
    d = Driver()
    d.join()
    leaves, stays = running(d), running(d)
    d.cancel(leaves)
    gone = NodeSeen("n1", "a", inventory(NODE, "H200"), d.seen("n1", known=(d.run(stays).key,)).runs)
    step = d.step(gone)
    assert isinstance(step.replies[0], FailedPrecondition)
    assert d.job(leaves).state is JobState.STOPPING
    assert not step.orders


def test_another_inventory_after_a_reboot_is_taken() -> None:
    d = Driver()
    d.join()
    job = running(d, devices=8)
    d.join(capacity=Vector(32_000, 65_536, 4), boot="b", known=())
    assert (d.job(job).state, d.job(job).reason) == (JobState.QUEUED, Reason.TOO_LARGE), "no node has 8 any more"
    d.join("n2")
    assert d.job(job).state is JobState.STARTING


@pytest.mark.parametrize("indices", [(), (0,), (0, 0), (1, 2), (0, 1, 2)])
def test_an_inventory_that_contradicts_itself_is_refused(indices: tuple[int, ...]) -> None:
    device = inventory(Vector(1, 1, 1)).devices[0]
    devices = tuple(type(device)(i, f"GPU-{i}", "A100", 1) for i in indices)
    refused = Driver().reply(NodeSeen("n1", "a", Inventory(Vector(1_000, 1_024, 2), (), devices)))
    assert isinstance(refused, FailedPrecondition)
    assert refused.reason == "INVENTORY_INVALID"


def test_a_node_may_have_no_devices() -> None:
    d = Driver()
    d.join(capacity=Vector(4_000, 4_096, 0))
    job = running(d, devices=0)
    assert d.run(job).devices == ()
    assert d.node().state is NodeState.UP
    assert d.submit(what=spec(0, cpu=0, memory=0)) == 2
    assert d.run(2).demand == ZERO
