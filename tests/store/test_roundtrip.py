"""What was committed is what is loaded, exactly."""

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text

from scheduler_service import store
from scheduler_service.core.job import Job, JobEvent, JobState, Reason, Run, RunPhase
from scheduler_service.core.journal import Change
from tests.store import make

# The database is emptied between examples; a fresh one for each would take far longer.
in_one_database = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
_EMPTY = text("TRUNCATE cluster, node, job, run, device, operation, job_event")


def empty(conn: Connection) -> None:
    with conn.begin():
        conn.execute(_EMPTY)


@in_one_database
@given(make.clusters())
def test_new_rows_come_back(writer: Connection, conn: Connection, epoch: int, rows: list[Any]) -> None:
    empty(conn)
    number = store.commit(writer, epoch, make.new(*rows), [])
    assert store.load(conn) == make.loaded(number, rows)
    jobs = {row.id: row for row in rows if isinstance(row, Job)}
    assert {job.id: job for job, _ in store.list_jobs(conn)} == jobs


@in_one_database
@given(st.data())
def test_changed_rows_come_back(writer: Connection, conn: Connection, epoch: int, data: st.DataObject) -> None:
    empty(conn)
    spec = data.draw(make.specs)
    old = [make.CLUSTER, make.NODE, data.draw(make.jobs(1, spec)), data.draw(make.runs(1, 1, 1, alive=True)), make.DEVICE]
    store.commit(writer, epoch, make.new(*old), [])
    job = data.draw(make.jobs(1, spec))
    run = data.draw(make.runs(1, 1, 1, alive=data.draw(st.booleans())))
    kept = {name: getattr(old[3], name) for name in ("devices", "demand", "placed_us")}
    run = Run(**{**{name: getattr(run, name) for name in Run.__dataclass_fields__}, **kept})
    new = [replace(make.CLUSTER, clock_us=data.draw(make.times)), replace(make.NODE, sequence=5), job, run]
    new.append(replace(make.DEVICE, group=(run.key,)))
    changes = [Change(make.TABLES[type(a)], None, a, b) for a, b in zip(old, new, strict=True)]
    number = store.commit(writer, epoch, changes, [])
    assert store.load(conn) == make.loaded(number, new)


@in_one_database
@given(st.lists(make.events, max_size=3), st.lists(make.events, min_size=1, max_size=3))
def test_a_story_comes_back_in_order(
    writer: Connection, conn: Connection, epoch: int, first: list[JobEvent], second: list[JobEvent]
) -> None:
    empty(conn)
    one = store.commit(writer, epoch, make.new(make.job(1)), first)
    two = store.commit(writer, epoch, [], second)
    assert store.story(conn, 1) == [(event, one) for event in first] + [(event, two) for event in second]
    assert store.story(conn, 2) == []


def test_deleted_rows_are_gone_and_may_make_room_for_others(writer: Connection, conn: Connection, epoch: int) -> None:
    job, run = make.job(1), make.run(1)
    operation = make.operation(1, 1)
    store.commit(writer, epoch, make.new(make.CLUSTER, make.NODE, make.DEVICE, job, run, operation), [])
    moved = replace(make.DEVICE, index=3)
    changes = [*make.new(moved), make.deleted(make.DEVICE), make.deleted(operation)]
    number = store.commit(writer, epoch, changes, [])
    assert store.load(conn) == make.loaded(number, [make.CLUSTER, make.NODE, moved, job, run])


def test_devices_may_swap_their_indices(writer: Connection, conn: Connection, epoch: int) -> None:
    other = replace(make.DEVICE, index=1, uuid="GPU-1")
    store.commit(writer, epoch, make.new(make.NODE, make.DEVICE, other), [])
    changes = [make.changed(make.DEVICE, uuid="GPU-1"), make.changed(other, uuid="GPU-0")]
    store.commit(writer, epoch, changes, [])
    assert [device.uuid for device in store.load(conn).devices] == ["GPU-1", "GPU-0"]


def test_a_run_may_end_and_the_next_begin_in_one_commit(writer: Connection, conn: Connection, epoch: int) -> None:
    job, run = make.job(1), make.run(1)
    store.commit(writer, epoch, make.new(make.NODE, job, run), [])
    changes = [*make.new(make.run(1, 2)), make.changed(run, phase=RunPhase.ENDED, ended_us=make.T)]
    store.commit(writer, epoch, changes, [])
    assert [run.key for run in store.load(conn).runs] == [(1, 2)]


def test_finished_jobs_are_found_with_their_last_run(writer: Connection, conn: Connection, epoch: int) -> None:
    ended = {"ended_us": make.T + 5}
    first = make.job(1, state=JobState.FAILED, reason=Reason.EXITED, run=2, exit_code=3, request_id="r1", **ended)
    runs = [make.run(1, 1, phase=RunPhase.ENDED, **ended), make.run(1, 2, phase=RunPhase.ENDED, exit_code=3, **ended)]
    second = make.job(2)
    store.commit(writer, epoch, make.new(make.NODE, first, second, *runs), [])
    assert store.load(conn).jobs == (second,)
    assert store.find_job(conn, 1) == (first, runs[1])
    assert store.find_job(conn, 2) == (second, None)
    assert store.find_job(conn, 3) is None
    assert store.find_requests(conn, [("ada", "r1"), ("ada", ""), ("bob", "r1")]) == {("ada", "r1"): first}
    assert store.find_requests(conn, [("ada", "")]) == {}


def test_jobs_are_listed_newest_first_by_pages_and_states(writer: Connection, conn: Connection, epoch: int) -> None:
    jobs = [make.job(i, state=JobState.RUNNING if i % 2 else JobState.QUEUED) for i in range(1, 8)]
    jobs.append(make.job(8, state=JobState.SUCCEEDED, ended_us=make.T))
    store.commit(writer, epoch, make.new(*jobs), [])

    def ids(*states: JobState, before: int | None = None, limit: int = 100) -> list[int]:
        return [job.id for job, _ in store.list_jobs(conn, states, before, limit)]

    assert ids(limit=3) == [8, 7, 6]
    assert ids(before=6, limit=3) == [5, 4, 3]
    assert ids(JobState.QUEUED) == [6, 4, 2]
    assert ids(JobState.QUEUED, JobState.SUCCEEDED) == [8, 6, 4, 2]
    assert ids(JobState.FAILED) == []
