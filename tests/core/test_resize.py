"""Elastic jobs: a resize is a stop and another launch, and nothing is lost in between."""

from random import Random
from typing import Any

import pytest

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.lifecycle.exits import RESIZED
from scheduler_service.core.messages import (
    Accepted,
    CancelRequested,
    Order,
    ResizeRequested,
    ResumeRequested,
    Stopped,
    Submitted,
    SuspendRequested,
)
from scheduler_service.core.model import Job, JobSpec, JobState, Reason, Retry, StopReason, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Vector
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.store.mapping import sparse_fields
from tests.core.driver import Driver, spec
from tests.policies.made import fitgpp

TASK = Vector(1_000, 1_024, 1)


def elastic(tasks: int = 2, least: int = 1, most: int = 4, **more: Any) -> JobSpec:
    total = Vector(*(tasks * part for part in TASK))
    return with_changes(spec(), gang=(TaskGroup(tasks, TASK),), demand=total, min_tasks=least, max_tasks=most, **more)


def cluster(*devices: int) -> Driver:
    d = Driver()
    for number, count in enumerate(devices or (4,)):
        d.join(f"n{number + 1}", Vector(8_000, 16_384, count))
    return d


def begin(d: Driver, job: int) -> None:
    """Every task of the job's launch is ready, and runs."""
    tasks = range(len(d.job(job).launch_spec.tasks()))
    for task in tasks:
        d.step(d.ready(job, task))
    for task in tasks:
        d.step(d.started(job, task))
    assert d.job(job).state is JobState.RUNNING


def leave(d: Driver, job: int, code: int = RESIZED) -> None:
    """Every task of the job's launch exits."""
    for run in d.state.runs_of(job):
        d.step(d.exited(job, run.task, exit_code=code))


def size(job: Job) -> tuple[int, int]:
    return len(job.spec.tasks()), job.spec.demand.devices


def stops(orders: tuple[Order, ...]) -> list[Stopped]:
    return [order.desired for order in orders if isinstance(order.desired, Stopped)]


def test_a_running_job_is_stopped_and_starts_again_with_another_number_of_tasks() -> None:
    d = cluster(2, 2)
    job = d.submit(elastic(2))
    begin(d, job)
    told = d.step(ResizeRequested(job, 4))
    assert (d.job(job).state, d.job(job).reason, d.job(job).resize_to) == (JobState.STOPPING, Reason.RESIZED, 4)
    assert [(stop.reason, stop.resize_to) for stop in stops(told.orders)] == [(StopReason.RESIZED, 4)] * 2
    assert size(d.job(job)) == (2, 2), "the launch that is stopped keeps its size"
    leave(d, job)
    now = d.job(job)
    assert (now.state, now.run, size(now), now.resize_to, now.retries) == (JobState.STARTING, 2, (4, 4), 0, 0)
    begin(d, job)
    d.step(ResizeRequested(job, 1))
    leave(d, job, 143)
    assert size(d.job(job)) == (1, 1)
    assert len(d.state.runs_of(job)) == 1


def test_a_queued_job_changes_its_size_at_once_and_starts_if_it_fits() -> None:
    d = cluster(4)
    d.step(d.started(d.submit(spec(devices=2))))
    job = d.submit(elastic(4))
    assert d.job(job).state is JobState.QUEUED
    d.step(ResizeRequested(job, 2))
    assert (d.job(job).state, size(d.job(job))) == (JobState.STARTING, (2, 2))


def test_a_job_that_became_too_large_queues_again_with_a_size_that_fits() -> None:
    d = cluster(4)
    other = d.submit(spec(devices=2))
    job = d.submit(elastic(4))
    d.cancel(other)
    d.join("n1", Vector(8_000, 16_384, 3), boot="b")
    assert d.job(job).reason is Reason.TOO_LARGE
    d.step(ResizeRequested(job, 3))
    assert (d.job(job).state, size(d.job(job))) == (JobState.STARTING, (3, 3))


def test_a_larger_size_that_does_not_fit_waits_and_the_old_size_undoes_it() -> None:
    d = cluster(4)
    other = d.submit(spec(devices=2))
    d.step(d.started(other))
    job = d.submit(elastic(2))
    begin(d, job)
    d.step(ResizeRequested(job, 4))
    leave(d, job)
    assert (d.job(job).state, d.job(job).reason, size(d.job(job))) == (JobState.QUEUED, Reason.RESIZED, (4, 4))
    d.step(ResizeRequested(job, 2))
    assert (d.job(job).state, size(d.job(job))) == (JobState.STARTING, (2, 2))


def test_a_second_resize_while_the_job_stops_changes_the_target() -> None:
    d = cluster(4)
    job = d.submit(elastic(2))
    begin(d, job)
    d.step(ResizeRequested(job, 4))
    again = d.step(ResizeRequested(job, 3))
    assert not stops(again.orders), "its tasks are being stopped already"
    assert d.job(job).resize_to == 3
    d.step(ResizeRequested(job, 2))
    assert d.job(job).resize_to == 0
    leave(d, job)
    assert (d.job(job).run, size(d.job(job))) == (2, (2, 2))


def test_what_cannot_be_is_refused_and_names_the_bounds() -> None:
    d = cluster(4)
    fixed, job = d.submit(spec()), d.submit(elastic(2, most=8))
    refused = d.reply(ResizeRequested(fixed, 2))
    assert isinstance(refused, FailedPrecondition)
    assert refused.reason == "NOT_ELASTIC"
    refused = d.reply(ResizeRequested(job, 9))
    assert isinstance(refused, FailedPrecondition)
    assert (refused.reason, refused.metadata["min_tasks"], refused.metadata["max_tasks"]) == ("TASKS_OUT_OF_BOUNDS", "1", "8")
    assert "1 to 8 tasks, and not 9" in str(refused)
    refused = d.reply(ResizeRequested(job, 8))
    assert isinstance(refused, FailedPrecondition)
    assert refused.reason == "CLUSTER_TOO_SMALL"
    d.step(CancelRequested(job))
    assert d.job(job).state in (JobState.STOPPING, JobState.CANCELLED)


def test_a_task_that_fails_by_itself_is_a_failure_with_or_without_a_resize() -> None:
    d = cluster(4)
    job = d.submit(elastic(2))
    begin(d, job)
    d.step(d.exited(job, 1, exit_code=1))
    d.step(ResizeRequested(job, 4))
    leave(d, job, 143)
    assert (d.ended[job].state, d.ended[job].exit_code) == (JobState.FAILED, 1)


def test_the_exit_code_of_a_resize_is_no_failure_of_an_elastic_job_and_one_of_another_job() -> None:
    d = cluster(4)
    job, other = d.submit(elastic(1)), d.submit(spec())
    begin(d, job)
    d.step(d.started(other))
    d.step(d.exited(job, exit_code=RESIZED))
    assert (d.job(job).reason, d.job(job).state) == (Reason.YIELDED, JobState.QUEUED)
    d.step(d.exited(other, exit_code=RESIZED))
    assert d.ended[other].state is JobState.FAILED


def test_a_suspended_job_resumes_with_the_size_that_it_was_given() -> None:
    d = cluster(4)
    job = d.submit(elastic(2))
    begin(d, job)
    d.step(SuspendRequested(job))
    d.step(ResizeRequested(job, 3))
    leave(d, job, 143)
    assert (d.job(job).state, size(d.job(job))) == (JobState.SUSPENDED, (3, 3))
    d.step(ResizeRequested(job, 4))
    d.step(ResumeRequested(job))
    assert (d.job(job).state, size(d.job(job))) == (JobState.STARTING, (4, 4))


def test_a_repeated_submit_is_the_same_job_after_a_resize() -> None:
    d = cluster(4)
    asked = Submitted("ann", "once", elastic(2))
    first = d.reply(asked)
    assert isinstance(first, Accepted)
    begin(d, first.job_id)
    d.step(ResizeRequested(first.job_id, 4))
    leave(d, first.job_id)
    assert d.reply(asked) == first


def test_what_is_stored_gives_the_row_again() -> None:
    d = cluster(4)
    job = d.submit(elastic(2))
    begin(d, job)
    d.step(ResizeRequested(job, 4))
    leave(d, job)
    kept = sparse_fields.to_job(sparse_fields.of_job(d.job(job)))
    assert (kept["tasks"], kept["submitted_tasks"]) == (4, 2)
    submitted = d.job(job).as_submitted()
    assert submitted == elastic(2)
    assert submitted.with_tasks(kept["tasks"]) == d.job(job).spec


@pytest.mark.parametrize("seed", range(6))
def test_resizes_stops_and_ends_in_any_order_leave_one_launch_or_a_queued_job(seed: int) -> None:
    """The driver checks every invariant after each step: never two launches, and never none of a job that is active."""
    random, d = Random(seed), cluster(2, 2)
    job = d.submit(elastic(2, most=4))
    for _ in range(60):
        row = d.state.jobs.rows.get(job)
        assert row is not None
        runs = d.state.runs_of(job)
        told = random.choice(("resize", "resize", "task", "task", "task", "suspend", "resume"))
        if told == "resize":
            d.reply(ResizeRequested(job, random.randrange(1, 5)))
        elif told == "suspend":
            d.reply(SuspendRequested(job))
        elif told == "resume":
            d.reply(ResumeRequested(job))
        elif told == "task" and runs:
            run = random.choice(sorted(runs, key=lambda run: run.task))
            if run.stop_reason is not None:
                d.step(d.exited(job, run.task, exit_code=random.choice((RESIZED, 143))))
            elif run.started_us is None and not row.rendezvous:
                d.step(d.ready(job, run.task))
            elif run.started_us is None:
                d.step(d.started(job, run.task))
        if (row := d.state.jobs.rows.get(job)) is not None:
            assert 1 <= size(row)[0] <= 4


@pytest.mark.parametrize("point", range(9))
@pytest.mark.parametrize("what", ["killed node", "trial", "cancel", "new leader"])
def test_whatever_happens_at_any_point_of_a_resize_the_job_runs_once_and_to_its_end(what: str, point: int) -> None:
    """2 tasks become 3: 4 reports of the first launch, the resize, 2 ends, and 2 reports of the next launch."""
    d = Driver(fitgpp(PreemptionSettings()))
    d.join("n1", Vector(8_000, 16_384, 4))
    job = d.submit(elastic(2, retry=Retry(9)))
    for number in range(9):
        if number == point:
            _happens(d, job, what)
        if number == 4:
            d.reply(ResizeRequested(job, 3))
        else:
            _next_report(d, job, ends=number in (5, 6))
    for _ in range(40):
        if job in d.ended:
            break
        if not d.state.runs_of(job):
            d.step(after=400)  # the pause before a retry is over
        _next_report(d, job, ends=True)
    assert d.ended[job].state is (JobState.CANCELLED if what == "cancel" else JobState.SUCCEEDED)
    launches = [run.key for run in d.runs.values() if run.job_id == job and run.run == d.ended[job].run]
    assert len(launches) == len(d.ended[job].spec.tasks()), "the last launch was whole"
    assert not d.state.runs_of(job)


def _next_report(d: Driver, job: int, ends: bool) -> None:
    """What the node says next of the job: a task is ready, has started, has left, or has done its work."""
    for each in [job, *(other for other in sorted(d.state.jobs.rows) if other != job)]:
        row = d.state.jobs.rows.get(each)
        for run in sorted(d.state.runs_of(each), key=lambda run: run.key) if row is not None else ():
            if run.stop_reason is not None:
                d.step(d.exited(each, run.task, exit_code=RESIZED))
            elif run.started_us is None and row is not None and row.launch_spec.gang and not row.rendezvous:
                if run.ready_at:
                    continue
                d.step(d.ready(each, run.task))
            elif run.started_us is None:
                d.step(d.started(each, run.task))
            elif ends and (each != job or d.job(job).resize_to == 0):
                d.step(d.exited(each, run.task, done=True))
            else:
                continue
            return


def _happens(d: Driver, job: int, what: str) -> None:
    if what == "killed node":  # and its agent comes back, without the runs
        d.silence()
        d.join("n1", Vector(8_000, 16_384, 4), boot=f"b{d.taken}", known=())
    elif what == "trial":
        d.trial(devices=3)
    elif what == "cancel":
        d.cancel(job)
    else:  # which begins with what is durable
        d.state = d.state.rebuild()
