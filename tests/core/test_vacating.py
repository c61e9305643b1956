"""A vacate and a resize are rows that follow the job, whatever happens to it, and hold up nothing."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from scheduler_service.core.errors import Broken
from scheduler_service.core.invariants import check
from scheduler_service.core.lifecycle.exits import RESIZED
from scheduler_service.core.messages import (
    CancelRequested,
    RequeueRequested,
    ResizeRequested,
    ResumeRequested,
    SuspendRequested,
)
from scheduler_service.core.model import EventKind, JobState, OperationKind, OperationPhase, RunKey, StopReason
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.state.load_check import contradictions
from tests.core.driver import Driver, spec
from tests.core.test_resize import begin, cluster, elastic, leave

SAVING, WAITING, STARTING = OperationPhase.SAVING, OperationPhase.WAITING, OperationPhase.STARTING
VACATE, RESIZE = OperationKind.VACATE, OperationKind.RESIZE


def operation(d: Driver, job: int) -> Operation | None:
    number = d.state.vacating_of.get(job)
    return None if number is None else d.state.operations.rows[number]


def stands(d: Driver, job: int) -> tuple[OperationKind, OperationPhase] | None:
    row = operation(d, job)
    return None if row is None else (row.kind, row.phase)


def took(d: Driver, key: RunKey) -> list[tuple[str, str, float, str]]:
    """What the row of a run says of operations, with the seconds that each phase took."""
    return [(one.kind.name, one.phase.name, one.took_us / 1e6, one.text) for one in d.runs[key].phases]


def said(d: Driver, kind: EventKind, steps: list[Any]) -> list[str]:
    return [event.text for step in steps for event in step.log if event.kind is kind]


def test_a_suspension_is_a_vacate_until_the_last_run_has_ended() -> None:
    d = cluster()
    job = d.submit(spec())
    d.step(d.started(job))
    assert stands(d, job) is None
    d.step(SuspendRequested(job))
    assert stands(d, job) == (VACATE, SAVING)
    d.step(after=3)
    left = d.step(d.exited(job, yielded=True), after=1)
    assert (stands(d, job), d.job(job).state) == (None, JobState.SUSPENDED)
    assert said(d, EventKind.SUSPENDED, [left]) == ["saved its work and left; it took 4.00 s to stop"]
    assert took(d, RunKey(job, 1)) == [("VACATE", "SAVING", 4.0, "")]


def test_each_task_of_a_gang_says_how_long_it_took() -> None:
    d = cluster()
    job = d.submit(elastic(2))
    begin(d, job)
    d.step(SuspendRequested(job))
    d.step(d.exited(job, 1, yielded=True), after=2)
    assert stands(d, job) == (VACATE, SAVING)
    d.step(d.exited(job, 0, yielded=True), after=3)
    assert [took(d, RunKey(job, 1, task))[0][2] for task in (0, 1)] == [5.0, 2.0]


def test_a_resize_tells_how_long_it_stopped_waited_and_started() -> None:
    d = cluster(4)
    other, job = d.submit(spec()), d.submit(elastic(2))
    d.step(d.started(other))
    begin(d, job)
    d.step(ResizeRequested(job, 4))
    assert stands(d, job) == (RESIZE, SAVING)
    d.step(after=2)
    leave(d, job)
    assert (stands(d, job), d.job(job).state) == ((RESIZE, WAITING), JobState.QUEUED)
    d.step(after=7)
    d.exit(other)
    assert (stands(d, job), d.job(job).run) == ((RESIZE, STARTING), 2)
    steps = [d.step(d.ready(job, task), after=1) for task in range(4)]
    steps += [d.step(d.started(job, task)) for task in range(3)]
    assert (stands(d, job), said(d, EventKind.RESIZED, steps)) == ((RESIZE, STARTING), [])
    last = d.step(d.started(job, 3), after=1)
    assert said(d, EventKind.RESIZED, [last]) == [
        "it has 4 tasks now: stopped in 2.00 s, queued for 7.00 s, started in 5.00 s",
    ]
    assert stands(d, job) is None
    for task in range(2):
        assert took(d, RunKey(job, 1, task)) == [("RESIZE", "SAVING", 2.0, "")]
    for task in range(4):
        row = d.state.runs.rows[RunKey(job, 2, task)]
        assert [(one.phase, one.took_us / 1e6) for one in row.phases] == [(WAITING, 7.0), (STARTING, 5.0)]


def test_a_job_that_is_never_suspended_or_resized_has_no_operation() -> None:
    d = cluster(2)
    job, other = d.submit(spec()), d.submit(spec(devices=2))
    d.step(d.started(job))
    d.step(RequeueRequested(job))
    d.exit(job, yielded=True)
    d.cancel(other)
    d.step(d.started(job))
    d.exit(job)
    assert d.ended[job].state is JobState.SUCCEEDED
    assert d.state.cluster.next_operation == 1, "no number was given"
    assert not [run for run in d.runs.values() if run.phases]


def test_a_vacate_forbids_no_resize_and_a_resize_no_suspension() -> None:
    d = cluster(4)
    job = d.submit(elastic(2))
    begin(d, job)
    d.step(ResizeRequested(job, 4))
    d.step(SuspendRequested(job), after=1)
    assert stands(d, job) == (VACATE, SAVING)
    assert took(d, RunKey(job, 1)) == [("RESIZE", "SAVING", 1.0, "stopped for another reason: SUSPENDED")]
    d.step(ResizeRequested(job, 3))
    d.step(ResumeRequested(job))
    assert stands(d, job) == (VACATE, SAVING), "it has to stop all the same"
    d.step(SuspendRequested(job), after=1)
    leave(d, job, 143)
    assert (stands(d, job), d.job(job).state) == (None, JobState.SUSPENDED)
    assert took(d, RunKey(job, 1))[-1] == ("VACATE", "SAVING", 1.0, ""), "since it was suspended first"
    d.step(ResumeRequested(job))
    assert (d.job(job).state, len(d.state.runs_of(job)), stands(d, job)) == (JobState.STARTING, 3, None)


def resized(phase: OperationPhase) -> tuple[Driver, int]:
    """A job that is resized, in this phase: there is room for the new size once another job has ended."""
    d = cluster(4)
    other, job = d.submit(spec()), d.submit(elastic(2))
    d.step(d.started(other))
    begin(d, job)
    d.step(ResizeRequested(job, 4))
    if phase is not SAVING:
        leave(d, job)
    if phase is STARTING:
        d.exit(other)
    assert stands(d, job) == (RESIZE, phase)
    return d, job


@pytest.mark.parametrize("phase", [SAVING, WAITING, STARTING])
@pytest.mark.parametrize("what", ["cancel", "suspend", "requeue", "killed node", "failure"])
def test_whatever_ends_a_resize_in_any_phase_leaves_no_row(phase: OperationPhase, what: str) -> None:
    d, job = resized(phase)
    d.state = d.state.rebuild()  # a new leader goes on from the phase that it finds
    assert stands(d, job) == (RESIZE, phase)
    match what:
        case "cancel":
            d.step(CancelRequested(job))
        case "suspend":
            d.reply(SuspendRequested(job))
        case "requeue":
            d.reply(RequeueRequested(job))
        case "killed node":
            for node in list(d.state.nodes.rows.values()):
                d.join(node.name, node.capacity, boot=f"b{d.taken}", known=())
        case _:
            if runs := d.state.runs_of(job):
                d.step(d.exited(job, runs[0].task, exit_code=1))
    for _ in range(20):
        if not (runs := d.state.runs_of(job)):
            break
        run = runs[0]
        code = RESIZED if run.stop_reason is StopReason.RESIZED else 143
        d.step(d.exited(job, run.task, exit_code=code))
    row = d.state.jobs.rows.get(job)
    if row is None or row.state is JobState.SUSPENDED:
        assert stands(d, job) is None
    else:  # it is queued, and the resize goes on if that is why
        assert stands(d, job) in (None, (RESIZE, WAITING))
        d.step(CancelRequested(job))
        assert d.ended[job].state is JobState.CANCELLED
    assert not d.state.operations.rows
    assert not d.state.vacating_of


def test_a_launch_that_does_not_start_says_so_and_its_tasks_that_did_say_nothing() -> None:
    d, job = resized(STARTING)
    for task in range(4):
        d.step(d.ready(job, task))
    d.step(d.started(job, 0))
    d.step(d.exited(job, 1, exit_code=1), after=2)
    assert stands(d, job) is None, "the others are stopped"
    for task in (0, 2, 3):
        d.step(d.exited(job, task, exit_code=143))
    waited = ("RESIZE", "WAITING", 0.0, "")
    assert took(d, RunKey(job, 2, 1)) == [waited, ("RESIZE", "STARTING", 2.0, "it did not start")]
    assert took(d, RunKey(job, 2, 0)) == [waited, ("RESIZE", "STARTING", 2.0, "stopped for another reason: GANG")]
    assert d.ended[job].state is JobState.FAILED


def test_a_task_that_is_over_before_the_others_start_ends_no_resize() -> None:
    d, job = resized(STARTING)
    for task in range(4):
        d.step(d.ready(job, task))
    d.step(d.started(job, 0))
    d.step(d.exited(job, 0))
    assert (stands(d, job), took(d, RunKey(job, 2, 0))) == ((RESIZE, STARTING), [("RESIZE", "WAITING", 0.0, "")])
    steps = [d.step(d.started(job, task)) for task in (1, 2, 3)]
    assert (stands(d, job), len(said(d, EventKind.RESIZED, steps))) == (None, 1)


def test_invariants_know_where_a_vacate_and_a_resize_stand() -> None:
    d, job = resized(SAVING)
    row = operation(d, job)
    assert row is not None
    wrong = [
        (replace(row, kind=VACATE), "is SAVING, and run"),
        (replace(row, phase=WAITING), "waits, and job"),
        (replace(row, phase=STARTING), "is STARTING, and job"),
        (replace(row, phase=OperationPhase.PARKED), "is PARKED"),
        (replace(row, deadline_us=d.now + 1), "has a destination or a deadline"),
    ]
    for bad, text in wrong:
        before = d.state.savepoint()
        d.state.put(d.state.operations, row.id, bad)
        with pytest.raises(Broken, match=text):
            check(d.state)
        d.state.undo(before)
    check(d.state)


@pytest.mark.parametrize("phase", [WAITING, STARTING])
def test_a_database_whose_resize_is_elsewhere_than_its_job_is_refused(phase: OperationPhase) -> None:
    d, job = resized(phase)
    rows = {(table.name, key): row for table in d.state.tables() for key, row in table.rows.items()}
    assert not list(contradictions((table, key, row) for (table, key), row in rows.items()))
    other, number = STARTING if phase is WAITING else WAITING, d.state.vacating_of[job]
    rows["operation", number] = replace(rows["operation", number], phase=other)
    (text,) = contradictions((table, key, row) for (table, key), row in rows.items())
    assert text.startswith(f"operation {number} is {other.name}, and job {job} is ")


@pytest.mark.parametrize("seed", range(4))
def test_suspensions_and_resizes_in_any_order_leave_rows_that_hold(seed: int) -> None:
    """The driver checks the invariants and what is loaded after each step."""
    random, d = Random(seed), cluster(3, 2)
    job = d.submit(elastic(2, most=5))
    seen = set()
    for _ in range(120):
        runs = d.state.runs_of(job)
        match random.choice(("resize", "suspend", "resume", "leader", "task", "task", "task", "task")):
            case "resize":
                d.reply(ResizeRequested(job, random.randrange(1, 6)))
            case "suspend":
                d.reply(SuspendRequested(job))
            case "resume":
                d.reply(ResumeRequested(job))
            case "leader":
                d.state = d.state.rebuild()
            case _ if runs:
                run = random.choice(sorted(runs, key=lambda run: run.task))
                if run.stop_reason is not None:
                    d.step(d.exited(job, run.task, exit_code=random.choice((RESIZED, 143))), after=1)
                elif run.started_us is None and not d.job(job).rendezvous:
                    d.step(d.ready(job, run.task), after=1)
                elif run.started_us is None:
                    d.step(d.started(job, run.task), after=1)
        seen.add(stands(d, job))
    assert {(VACATE, SAVING), (RESIZE, SAVING)} <= seen
