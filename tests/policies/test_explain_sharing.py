"""Why a running job holds its devices as it does, as its story tells it."""

import pytest

from scheduler_service.core.model import EventKind, Job, JobEvent, JobSpec, JobState, Reason
from scheduler_service.core.model.values import Vector
from scheduler_service.policies.explain.launch import joined_by, why_it_holds_devices_so
from tests.policies.introspected import Introspected

JOB = Job(1, JobSpec(("true",), Vector(0, 0, 1)), "ann", "", 0, JobState.RUNNING)
TURNS = (EventKind.PLACED, "time-sliced: overload, no server has 1 idle; takes turns with job 2 on device 0 of n1 (2 rows)")
MOVES = (EventKind.MIGRATING, "to n2, which makes itself ready: it takes turns on n1, and has devices of n2 to itself")


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ([(EventKind.PLACED, "")], ""),
        ([TURNS], f"overload: {TURNS[1]}"),
        ([TURNS, (EventKind.PROBED, "packing is kept: so")], "introspection (packing): packing is kept: so"),
        ([TURNS, MOVES], f"introspection (moves): {MOVES[1]}"),
        ([TURNS, MOVES, (EventKind.MIGRATION_FAILED, "n2 was not ready")], f"overload: {TURNS[1]}"),
        ([TURNS, (EventKind.MIGRATING, "to n2, which makes itself ready")], ""),
        ([(EventKind.MIGRATING, "to n2: job 7 outranks it, and takes its place")],
         "overload: to n2: job 7 outranks it, and takes its place"),
        ([TURNS, (EventKind.PLACED, "")], ""),
    ],
)  # fmt: skip
def test_the_last_decision_is_told_with_its_stage(told: list[tuple[EventKind, str]], why: str) -> None:
    story = [JobEvent(1, at, kind, text=text) for at, (kind, text) in enumerate(told)]
    assert why_it_holds_devices_so(JOB, story) == why


def test_the_start_at_the_destination_of_a_move_is_no_other_decision() -> None:
    placed = JobEvent(1, 9, EventKind.PLACED, reason=Reason.MIGRATED, text="it saved its work, and begins there")
    assert why_it_holds_devices_so(JOB, [JobEvent(1, 1, *MOVES[:1], text=MOVES[1]), placed]).endswith(MOVES[1])


def test_those_who_came_later_are_told_until_they_leave() -> None:
    d = Introspected("n1", packing=0, migration=0)
    a, b, other = d.begin(2), d.begin(2), d.begin(2)
    stays = next(job for job in (a, b) if d.run(job).devices != d.run(other).devices)
    joined = a if stays == b else b
    assert joined_by(d.state, d.job(joined)) == f"overload: job {other} came to take turns with it"
    assert joined_by(d.state, d.job(stays)) == "", "it has its devices alone"
    wide = d.begin(4)
    assert joined_by(d.state, d.job(joined)) == f"overload: jobs {other}, {wide} came to take turns with it"
    assert joined_by(d.state, d.job(stays)) == f"overload: job {wide} came to take turns with it"
    for job in (wide, other):
        d.leaves(job)
    assert joined_by(d.state, d.job(joined)) == ""


def test_nothing_is_told_of_a_job_that_does_not_run() -> None:
    queued = Job(1, JOB.spec, "ann", "", 0, JobState.QUEUED)
    assert why_it_holds_devices_so(queued, [JobEvent(1, 1, *TURNS[:1], text=TURNS[1])]) == ""
