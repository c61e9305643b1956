"""What was committed is what is loaded, exactly."""

from dataclasses import MISSING, fields, replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler_service.core.model import Job, JobEvent, JobSpec, JobState, Reason, Run, RunKey, RunPhase, TaskGroup
from scheduler_service.core.model.parking import Parking
from scheduler_service.core.model.tenants.exchange import Exchange, ExchangeState, LedgerEntry, Posting, PostingState, Surplus
from scheduler_service.core.model.tenants.idle_history import IdleCells
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.journal import Change
from tests.store import make
from tests.store.contract import Db
from tests.thorough import examples

# It is emptied between examples; a fresh one for each would take far longer.
in_one_database = settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])


@in_one_database
@given(make.clusters())
def test_new_rows_come_back(db: Db, epoch: int, rows: list[Any]) -> None:
    db.empty()
    number = db.commit(epoch, make.new(*rows), [])
    assert db.load() == make.loaded(number, rows)
    for kind, found in ((Posting, db.list_postings()), (Exchange, db.list_exchanges()), (Surplus, db.list_surpluses())):
        assert {row.__dict__.get("id", row.__dict__.get("vc")): row for row in rows if isinstance(row, kind)} == {
            row.__dict__.get("id", row.__dict__.get("vc")): row for row in found
        }
    assert set(db.list_ledger()) == {row for row in rows if isinstance(row, LedgerEntry)}
    jobs = {row.id: row for row in rows if isinstance(row, Job)}
    assert {job.id: job for job, _ in db.list_jobs()} == jobs


@in_one_database
@given(st.data())
def test_changed_rows_come_back(db: Db, epoch: int, data: st.DataObject) -> None:
    db.empty()
    spec = data.draw(make.specs)
    old = [
        make.CLUSTER,
        make.NODE,
        data.draw(make.jobs(1, spec)),
        data.draw(make.runs(1, 1, 1, alive=True, vc=spec.vc)),
        make.DEVICE,
    ]
    old += [make.VC, make.BINDING, make.OFFER, make.REQUEST, make.EXCHANGE, Surplus(1, 5), IdleCells(1, "a", "b")]
    old.append(make.memo("job/1", job_id=1))
    old.append(data.draw(make.share_groups(1)))
    old.append(make.operation(1, 1))
    old.append(make.history("a"))
    db.commit(epoch, make.new(*old), [])
    job = data.draw(make.jobs(1, spec))
    run = data.draw(make.runs(1, 1, 1, alive=data.draw(st.booleans()), vc=spec.vc))
    kept = {name: getattr(old[3], name) for name in ("devices", "demand")}
    if run.parking is not None and run.parking.devices:  # it is parked now
        kept |= {"devices": (), "demand": kept["demand"]._replace(devices=0)}
    run = Run(**{**{name: getattr(run, name) for name in Run.__dataclass_fields__}, **kept})
    new = [replace(make.CLUSTER, clock_us=data.draw(make.times)), replace(make.NODE, sequence=5), job, run]
    new.append(replace(make.DEVICE, fault="it is lost"))
    new.append(replace(make.VC, quotas=data.draw(make.quotas_of), weight=7, policy=data.draw(make.vc_policies)))
    new.append(replace(make.BINDING, pin=""))
    new += [replace(make.OFFER, state=PostingState.WITHDRAWN), replace(make.REQUEST, begins_us=5)]
    over = data.draw(st.booleans())
    state = ExchangeState.RETURNED if over else ExchangeState.ACTIVE
    more = {"return_asked_by": 2, "opened_us": 7, "returned_us": 9 if over else None}
    new += [replace(make.EXCHANGE, state=state, **more), Surplus(1, data.draw(make.amounts))]
    new.append(IdleCells(1, "a", "b", data.draw(make.histories), data.draw(make.maybe(make.times))))
    due = data.draw(make.maybe(make.times))
    new.append(make.memo("job/1", value=data.draw(make.memo_values), due_us=due, due=due is None and data.draw(st.booleans())))
    new.append(replace(data.draw(make.share_groups(1)), vc=old[-3].vc))
    drawn = data.draw(make.operations(1, 1))
    new.append(replace(drawn, **{name: getattr(old[-2], name) for name in ("kind", "source", "begun_us")}))
    new.append(make.history("a", runs=data.draw(st.lists(make.past_runs, max_size=2).map(tuple)), used_us=5))
    changes = [Change(make.TABLES[type(a)], None, a, b) for a, b in zip(old, new, strict=True)]
    number = db.commit(epoch, changes, [])
    assert db.load() == make.loaded(number, new)


def test_an_elastic_job_that_was_resized_comes_back_with_its_size(db: Db, epoch: int) -> None:
    task = Vector(1_000, 1_024, 1)
    spec = JobSpec(("true",), Vector(2_000, 2_048, 2), gang=(TaskGroup(2, task),), min_tasks=1, max_tasks=4)
    old = Job(1, spec, "ann", "once", 5)
    db.commit(epoch, make.new(make.CLUSTER, old), [])
    new = old.with_tasks(4)
    number = db.commit(epoch, [Change("job", 1, old, new)], [])
    assert db.load() == make.loaded(number, [make.CLUSTER, new])
    assert new.spec.demand == Vector(4_000, 4_096, 4)
    assert new.as_submitted() == spec


def test_every_plain_field_of_a_job_is_stored(db: Db, epoch: int) -> None:
    """Every number, text and flag, including fields that are added later."""
    other = {int: 3, str: "other", bool: True}

    def unusual(kind: type[Job] | type[JobSpec]) -> dict[str, Any]:
        return {f.name: other[f.type] for f in fields(kind) if f.type in other and f.default is not MISSING}  # type: ignore[index]

    job = make.job(1, spec=replace(make.SPEC, **unusual(JobSpec)), **unusual(Job))
    number = db.commit(epoch, make.new(make.CLUSTER, job), [])
    assert db.load() == make.loaded(number, [make.CLUSTER, job])
    assert {"priority", "estimate_us"} <= unusual(JobSpec).keys()
    assert {"retries", "held", "rendezvous"} <= unusual(Job).keys()


@in_one_database
@given(st.lists(make.events, max_size=3), st.lists(make.events, min_size=1, max_size=3))
def test_a_story_comes_back_in_order(db: Db, epoch: int, first: list[JobEvent], second: list[JobEvent]) -> None:
    db.empty()
    one = db.commit(epoch, make.new(make.job(1)), first)
    two = db.commit(epoch, [], second)
    assert db.story(1) == [(event, one) for event in first] + [(event, two) for event in second]
    assert db.story(2) == []


def test_deleted_rows_are_gone_and_may_make_room_for_others(db: Db, epoch: int) -> None:
    job, run = make.job(1), make.run(1)
    earmark = make.earmark(1, 1)
    db.commit(epoch, make.new(make.CLUSTER, make.NODE, make.DEVICE, job, run, earmark), [])
    moved = replace(make.DEVICE, index=3)
    changes = [*make.new(moved), make.deleted(make.DEVICE), make.deleted(earmark)]
    number = db.commit(epoch, changes, [])
    assert db.load() == make.loaded(number, [make.CLUSTER, make.NODE, moved, job, run])


def test_rows_of_every_kind_that_is_not_kept_can_be_deleted(db: Db, epoch: int) -> None:
    kept = [make.CLUSTER, make.NODE, make.job(1), make.run(1)]
    rows = [make.VC, make.BINDING, make.DEVICE, make.earmark(1, 1), make.memo("a"), make.history("a")]
    rows += [make.share_group(1), make.operation(1, 1), IdleCells(1, "a", "b", (), None), Surplus(1, 5)]
    db.commit(epoch, make.new(*kept, *rows), [])
    number = db.commit(epoch, [make.deleted(row) for row in rows], [])
    assert db.load() == make.loaded(number, kept)


def test_a_virtual_cluster_goes_with_its_cells_and_another_takes_its_name(db: Db, epoch: int) -> None:
    other, cell = replace(make.VC, id=2, pins=()), replace(make.BINDING, vc=2, pin="")
    db.commit(epoch, make.new(make.VC, make.BINDING), [])
    gone = [make.deleted(make.VC), make.deleted(make.BINDING)]
    number = db.commit(epoch, [*make.new(other, cell), *gone], [])
    assert db.load() == make.loaded(number, [other, cell])


def test_a_run_has_the_virtual_cluster_of_its_job_however_it_is_read(db: Db, epoch: int) -> None:
    job = make.job(1, spec=replace(make.SPEC, vc="vision"), run=1, state=JobState.RUNNING)
    run = make.run(1, vc="vision", guaranteed=True)
    db.commit(epoch, make.new(make.NODE, job, run), [])
    assert db.load().runs == (run,)
    assert db.load(jobs=False).runs == (run,)
    assert db.find_run(run.key) == run
    assert db.find_job(1) == (job, (run,))
    db.commit(epoch, [make.changed(run, phase=RunPhase.ENDED, ended_us=make.T, guaranteed=False)], [])
    assert db.load().last_runs == (replace(run, phase=RunPhase.ENDED, ended_us=make.T, guaranteed=False),)


def test_devices_may_swap_their_indices(db: Db, epoch: int) -> None:
    other = replace(make.DEVICE, index=1, uuid="GPU-1")
    db.commit(epoch, make.new(make.NODE, make.DEVICE, other), [])
    changes = [make.changed(make.DEVICE, uuid="GPU-1"), make.changed(other, uuid="GPU-0")]
    db.commit(epoch, changes, [])
    assert [device.uuid for device in db.load().devices] == ["GPU-1", "GPU-0"]


def test_a_run_may_end_and_the_next_begin_in_one_commit(db: Db, epoch: int) -> None:
    job, run = make.job(1), make.run(1)
    db.commit(epoch, make.new(make.NODE, job, run), [])
    changes = [*make.new(make.run(1, 2)), make.changed(run, phase=RunPhase.ENDED, ended_us=make.T)]
    db.commit(epoch, changes, [])
    assert [run.key for run in db.load().runs] == [RunKey(1, 2)]


def test_finished_jobs_are_found_with_their_last_run(db: Db, epoch: int) -> None:
    ended = {"ended_us": make.T + 5}
    first = make.job(1, state=JobState.FAILED, reason=Reason.EXITED, run=2, exit_code=3, request_id="r1", **ended)
    runs = [make.run(1, 1, phase=RunPhase.ENDED, **ended), make.run(1, 2, phase=RunPhase.ENDED, exit_code=3, **ended)]
    second = make.job(2)
    db.commit(epoch, make.new(make.NODE, first, second, *runs), [])
    assert db.load().jobs == (second,)
    assert db.find_job(1) == (first, (runs[1],))
    assert db.find_job(2) == (second, ())
    assert db.find_job(3) is None
    assert db.find_run(runs[1].key) == runs[1]
    assert db.find_run(runs[1].key._replace(task=7)) is None
    assert db.find_requests([("ada", "r1"), ("ada", ""), ("bob", "r1")]) == {("ada", "r1"): first}
    assert db.find_requests([("ada", "")]) == {}
    assert db.find_ends([1, 2, 3]) == {1: JobState.FAILED}
    assert db.find_ended_before([3, 2, 1], make.T + 6) == [1]
    assert db.find_ended_before([1, 2, 3], make.T + 5) == [], "it ended at that time, and not before"
    assert db.find_ended_before([], make.T + 6) == []


def test_jobs_are_listed_newest_first_by_pages_and_states(db: Db, epoch: int) -> None:
    jobs = [make.job(i, state=JobState.RUNNING if i % 2 else JobState.QUEUED) for i in range(1, 8)]
    jobs.append(make.job(8, state=JobState.SUCCEEDED, ended_us=make.T))
    jobs[1] = replace(jobs[1], spec=replace(jobs[1].spec, vc="vision"))
    jobs[2] = replace(jobs[2], user="bob", spec=replace(jobs[2].spec, name="resnet"))
    jobs[4] = replace(jobs[4], user="bob")
    db.commit(epoch, make.new(*jobs), [])

    def ids(*states: JobState, before: int | None = None, limit: int = 100) -> list[int]:
        return [job.id for job, _ in db.list_jobs(states, before, limit)]

    assert ids(limit=3) == [8, 7, 6]
    assert ids(before=6, limit=3) == [5, 4, 3]
    assert ids(JobState.QUEUED) == [6, 4, 2]
    assert ids(JobState.QUEUED, JobState.SUCCEEDED) == [8, 6, 4, 2]
    assert ids(JobState.FAILED) == []
    assert (db.count_jobs(), db.count_jobs((), 6), db.count_jobs([JobState.QUEUED]), db.count_jobs((), None, 3)) == (8, 5, 3, 3)
    assert (db.count_jobs((), None, 9, "", "bob", "resnet"), db.count_jobs((), None, 9, "vision", "bob")) == (1, 0)
    assert [job.id for job, _ in db.list_jobs((), None, 100, "vision")] == [2]
    assert [job.id for job, _ in db.list_jobs((), None, 100, "", "bob")] == [5, 3]
    assert [job.id for job, _ in db.list_jobs((), None, 100, "", "bob", "resnet")] == [3]
    assert [job.id for job, _ in db.list_jobs((), None, 100, "vision", "bob")] == []
    assert [job.id for job, _ in db.list_jobs((), None, 100, "", "", "resne")] == []


def test_what_is_read_is_nobody_elses(db: Db, epoch: int) -> None:
    job = make.job(1)
    db.commit(epoch, make.new(job), [make.submitted(1)])
    first, second = db.find_job(1)[0], db.load().jobs[0]
    assert first == second == job
    assert len({id(job), id(first), id(second)}) == 3
    assert first.spec is not job.spec


def test_nodes_are_listed_in_order(db: Db, epoch: int) -> None:
    other = replace(make.NODE, id=2, name="n0")
    db.commit(epoch, make.new(other, make.NODE), [])
    assert db.list_nodes() == [make.NODE, other]


def test_the_runs_of_a_job_are_listed_page_by_page(db: Db, epoch: int) -> None:
    over = {"phase": RunPhase.ENDED, "ended_us": make.T}
    first = [make.run(1, 1, task=task, **over) for task in range(3)]
    parking = Parking(2, True, (0,), make.T, 5, "driver", 3)
    second = make.run(1, 2, phase=RunPhase.PARKED, devices=(), demand=make.SPEC.demand._replace(devices=0), parking=parking)
    rows = [make.CLUSTER, make.NODE, make.job(1, run=2), make.job(2), *first, second, make.run(2)]
    db.commit(epoch, make.new(*rows), [])
    assert db.list_runs(1) == [second, *first]
    assert db.list_runs(1, None, 2) == [second, first[0]]
    assert db.list_runs(1, (1, 0), 5) == first[1:]
    assert db.list_runs(1, (1, 2)) == []
    assert db.list_runs(9) == []


def test_a_run_that_parks_keeps_the_devices_that_it_was_given_in_its_columns(db: Db, epoch: int) -> None:
    ran = make.run(1, phase=RunPhase.RUNNING, devices=(0, 3), demand=make.SPEC.demand._replace(devices=2))
    db.commit(epoch, make.new(make.CLUSTER, make.NODE, make.job(1), ran), [])
    away = replace(
        ran, phase=RunPhase.PARKED, devices=(), demand=ran.demand._replace(devices=0), parking=Parking(devices=(0, 3))
    )
    db.commit(epoch, [Change("run", ran.key, ran, away)], [])
    assert db.find_run(ran.key) == away
    assert (away.placed_on, away.asked) == (ran.devices, ran.demand)
    back = replace(away, phase=RunPhase.RESUMING, devices=(0, 3), demand=ran.demand, parking=Parking())
    db.commit(epoch, [Change("run", ran.key, away, back)], [])
    assert db.find_run(ran.key) == back
