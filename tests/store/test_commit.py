"""The fence, what the constraints refuse, and connections lost on the way."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from scheduler_service import store
from scheduler_service.core.job import JobState, NodeState, OperationPhase, RunKey, RunPhase
from scheduler_service.core.journal import Change
from scheduler_service.core.values import Vector
from tests.store import make
from tests.store.proxy import Proxy
from tests.store.waiting import wait_for

BASE = (make.CLUSTER, make.NODE, make.DEVICE, make.job(1), make.run(1))


@pytest.fixture
def base(writer: Connection, epoch: int) -> int:
    """A small cluster with one run; the commit's number."""
    return store.commit(writer, epoch, make.new(*BASE), [])


def test_commits_are_numbered_one_by_one(writer: Connection, conn: Connection, epoch: int) -> None:
    first = store.commit(writer, epoch, [], [])
    assert store.commit(writer, epoch, make.new(make.job(1)), [make.submitted(1)]) == first + 1
    assert store.load(conn).commit_no == first + 1


def test_after_a_takeover_the_old_epoch_is_fenced(writer: Connection, conn: Connection, epoch: int) -> None:
    new = store.take(conn, "other", ttl=60, force=True)
    assert new == epoch + 1
    with pytest.raises(store.Fenced, match=f"epoch {epoch} is over.* Step down"):
        store.commit(writer, epoch, make.new(make.job(1)), [make.submitted(1)])
    loaded = store.load(conn)
    assert loaded.jobs == ()
    assert loaded.commit_no == 0
    assert store.commit(writer, new, [], []) == 1


def test_the_fence_comes_before_any_other_refusal(writer: Connection, conn: Connection, epoch: int) -> None:
    store.take(conn, "other", ttl=60, force=True)
    with pytest.raises(store.Fenced):
        store.commit(writer, epoch, make.new(make.run(9)), [])


def test_a_repeated_request_is_a_duplicate(writer: Connection, conn: Connection, epoch: int) -> None:
    store.commit(writer, epoch, make.new(make.job(1, request_id="r")), [])
    with pytest.raises(store.DuplicateRequest, match=r"\(ada, r\)"):
        store.commit(writer, epoch, make.new(make.job(2, request_id="r")), [])
    store.commit(writer, epoch, make.new(make.job(2, request_id="r", user="bob"), make.job(3), make.job(4)), [])
    assert [job.id for job in store.load(conn).jobs] == [1, 2, 3, 4]


REFUSALS: list[tuple[str, Sequence[Change]]] = [
    ("run_one_live", make.new(make.run(1, 2))),
    ("run_pkey", make.new(make.run(1, 1, phase=RunPhase.ENDED, ended_us=make.T))),
    ("run_of_job", make.new(make.run(9))),
    ("run_node_exists", make.new(make.job(2), make.run(2, node=9))),
    ("run_demand_not_negative", make.new(make.job(2), make.run(2, demand=Vector(1, -1, 1)))),
    ("run_counts_from_one", make.new(make.job(2), make.run(2, 0))),
    ("run_ended_has_time", [make.changed(BASE[4], phase=RunPhase.ENDED)]),
    ("run_ended_has_time", [make.changed(BASE[4], ended_us=make.T)]),
    ("run_phase_known", [make.changed(BASE[4], phase=9)]),
    ("job_pkey", make.new(make.job(1))),
    ("job_state_known", [make.changed(BASE[3], state=99)]),
    ("job_ended_has_time", [make.changed(BASE[3], state=JobState.FAILED)]),
    ("job_ended_has_time", [make.changed(BASE[3], ended_us=make.T)]),
    ("job_counters_not_negative", [make.changed(BASE[3], preempted_for_trial=-1)]),
    ("job_demand_not_negative", make.new(make.job(2, spec=replace(make.SPEC, demand=Vector(-1, 0, 0))))),
    ("job_grace_not_negative", make.new(make.job(2, spec=replace(make.SPEC, grace_us=-1)))),
    ("job_command_given", make.new(make.job(2, spec=replace(make.SPEC, command=())))),
    ("device_pkey", make.new(replace(make.DEVICE, uuid="GPU-9"))),
    ("device_uuid_once", make.new(replace(make.DEVICE, index=9))),
    ("device_node_exists", make.new(replace(make.DEVICE, node=9))),
    ("device_exclusive", [make.changed(make.DEVICE, group=(RunKey(1, 1), RunKey(2, 1)))]),
    ("device_holder_on_node", [make.changed(make.DEVICE, group=(RunKey(1, 7),))]),
    ("device_amounts_not_negative", [make.changed(make.DEVICE, memory_mib=-1)]),
    ("node_name_once", make.new(replace(make.NODE, id=2))),
    ("node_capacity_not_negative", [make.changed(make.NODE, capacity=Vector(0, 0, -1))]),
    ("node_state_known", [make.changed(make.NODE, state=3)]),
    ("device_node_exists", [make.deleted(make.NODE)]),
    ("operation_of_job", make.new(make.operation(1, 9))),
    ("operation_node_exists", make.new(make.operation(1, 1, node=9))),
    ("operation_kept_not_negative", make.new(make.operation(1, 1, kept=Vector(-1, 0, 0)))),
    ("operation_keeps_no_more_than_wanted", make.new(make.operation(1, 1, kept=Vector(3, 0, 0)))),
    ("operation_phase_known", make.new(make.operation(1, 1, phase=7))),
    ("cluster_pkey", make.new(replace(make.CLUSTER, id="second"))),
    ("cluster_numbers_count_up", [make.changed(make.CLUSTER, next_job=0)]),
    ("job_present", [make.changed(make.job(7), state=JobState.RUNNING)]),
    ("operation_present", [make.deleted(make.operation(7, 1))]),
    ("", make.new(make.job(2, user="a\0b"))),
    ("", make.new(make.job(2, user="\ud800"))),
    ("", make.new(make.job(2, detail="x", preempted_for_trial=2**40))),
]


@pytest.mark.parametrize(("constraint", "changes"), REFUSALS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_broken_rule_refuses_the_whole_commit(
    writer: Connection, conn: Connection, epoch: int, base: int, constraint: str, changes: Sequence[Change]
) -> None:
    before = store.load(conn)
    with pytest.raises(store.Rejected) as refused:
        store.commit(writer, epoch, [*make.new(make.job(50)), *changes], [make.submitted(1)])
    if constraint != "device_node_exists" or refused.value.constraint != "run_node_exists":  # both rules forbid that
        assert refused.value.constraint == constraint
    assert store.load(conn) == before
    assert store.story(conn, 1) == []
    assert store.commit(writer, epoch, make.new(make.job(50)), []) == base + 1, "the connection goes on working"


def test_a_device_holder_must_run_on_the_same_node(writer: Connection, epoch: int, base: int) -> None:
    other = replace(make.NODE, id=2, name="n2", state=NodeState.SILENT)
    with pytest.raises(store.Rejected, match="device_holder_on_node"):
        store.commit(writer, epoch, make.new(other, replace(make.DEVICE, node=2, group=(RunKey(1, 1),))), [])


def test_an_event_needs_its_job(writer: Connection, epoch: int, base: int) -> None:
    with pytest.raises(store.Rejected, match="job_event_of_job"):
        store.commit(writer, epoch, [], [make.submitted(9)])


def test_there_is_one_leader_row(engine: Engine) -> None:
    insert = text("INSERT INTO leader (holder, address, epoch, expires_at, commit_no, one) VALUES ('', '', 0, now(), 0, :one)")
    for one in (True, False):
        with pytest.raises(Exception, match=r"leader_pkey|leader_one_row"), engine.begin() as conn:
            conn.execute(insert, {"one": one})


def test_the_spec_of_a_job_is_not_written_again(writer: Connection, conn: Connection, epoch: int, base: int) -> None:
    old = make.job(1, spec=replace(make.SPEC, name="other"))
    store.commit(writer, epoch, [make.changed(old, state=JobState.RUNNING)], [])
    found = store.find_job(conn, 1)
    assert found is not None
    assert (found[0].spec, found[0].state) == (make.SPEC, JobState.RUNNING)


def test_a_large_batch_is_one_commit(writer: Connection, conn: Connection, epoch: int, base: int) -> None:
    jobs = [make.job(i) for i in range(2, 2002)]
    store.commit(writer, epoch, make.new(*jobs), [make.submitted(job.id) for job in jobs])
    assert store.load(conn).jobs == (BASE[3], *jobs)
    changes = [make.changed(job, state=JobState.CANCELLED, ended_us=make.T) for job in jobs]
    store.commit(writer, epoch, changes, [])
    assert store.load(conn).jobs == (BASE[3],)


# -- lost connections ----------------------------------------------------------------------------------------------------


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def backend_waits(conn: Connection, statement: str) -> int | None:
    """The process of the writer's session once it waits for a lock in this statement."""
    query = text(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'ebb writer' AND datname = current_database() "
        "AND wait_event_type = 'Lock' AND query LIKE :statement"
    )
    with conn.begin():
        pid: int | None = conn.execute(query, {"statement": statement}).scalar()
    return pid


def kill(conn: Connection, pid: int | None) -> None:
    with conn.begin():
        conn.execute(text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": pid})


def failure(done: "Future[int]") -> BaseException | None:
    return done.exception(timeout=20)


def test_lost_before_commit_is_certainly_not_committed(
    writer: Connection, conn: Connection, engine: Engine, epoch: int, base: int, thread: ThreadPoolExecutor
) -> None:
    with engine.connect() as other:
        lock = other.begin()
        other.execute(text("LOCK TABLE job_event IN EXCLUSIVE MODE"))
        done = thread.submit(store.commit, writer, epoch, make.new(make.job(2)), [make.submitted(2)])
        kill(conn, wait_for(lambda: backend_waits(conn, "INSERT INTO job_event%")))
        assert isinstance(failure(done), store.Unavailable)
        lock.rollback()
    assert store.outcome(engine, epoch, base) == "not committed"
    assert store.commit(writer, epoch, make.new(make.job(2)), []) == base + 1, "a new connection is made by itself"


def test_lost_at_commit_is_unknown_and_outcome_tells(
    writer: Connection, conn: Connection, engine: Engine, epoch: int, base: int, thread: ThreadPoolExecutor
) -> None:
    # A deferred trigger runs in COMMIT: there it waits for a lock that the test holds.
    with conn.begin():
        conn.execute(
            text(
                "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS "
                "'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END';"
                "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON job DEFERRABLE INITIALLY DEFERRED "
                "FOR EACH ROW EXECUTE FUNCTION wait()"
            )
        )
    with engine.connect() as other:
        lock = other.begin()
        other.execute(text("SELECT pg_advisory_xact_lock(1)"))
        done = thread.submit(store.commit, writer, epoch, make.new(make.job(2)), [])
        kill(conn, wait_for(lambda: backend_waits(conn, "COMMIT%")))
        assert isinstance(failure(done), store.CommitUnknown)
        lock.rollback()
    assert store.outcome(engine, epoch, base) == "not committed"


@pytest.mark.parametrize(("when", "what"), [("before", "not committed"), ("after", "committed")])
def test_the_answer_to_commit_is_lost(database_url: str, engine: Engine, epoch: int, when: str, what: str) -> None:
    with Proxy(database_url) as proxy:
        through = store.open_engine(proxy.url, writer=True, connections=1)
        with through.connect() as writer:
            number = store.commit(writer, epoch, make.new(make.job(1)), [])
            proxy.cut_at_commit(after=when == "after")
            with pytest.raises(store.CommitUnknown, match="outcome"):
                store.commit(writer, epoch, make.new(make.job(2)), [])
            assert store.outcome(engine, epoch, number) == what
            proxy.mend()
            after = number + (what == "committed") + 1
            assert store.commit(writer, epoch, make.new(make.job(3)), []) == after
        through.dispose()


def test_outcome_waits_for_the_server_to_end_the_transaction(
    writer: Connection, engine: Engine, epoch: int, base: int, thread: ThreadPoolExecutor
) -> None:
    with engine.connect() as unfinished:
        begun = unfinished.begin()
        unfinished.execute(text("UPDATE leader SET commit_no = commit_no + 1"))
        answer = thread.submit(store.outcome, engine, epoch, base)
        begun.commit()
        assert answer.result(timeout=20) == "committed"


def test_outcome_after_a_takeover_is_fenced(engine: Engine, conn: Connection, epoch: int) -> None:
    store.take(conn, "other", ttl=60, force=True)
    with pytest.raises(store.Fenced):
        store.outcome(engine, epoch, 0)


def test_no_server_is_unavailable(epoch: int) -> None:
    engine = store.open_engine("postgresql://ebb@/none?host=/nowhere", writer=True)
    with pytest.raises(store.Unavailable, match="/nowhere"):
        store.outcome(engine, 1, 0)
    engine.dispose()


def test_a_lost_reader_is_unavailable_and_recovers(engine: Engine, conn: Connection, epoch: int) -> None:
    with engine.connect() as reader:
        with reader.begin():
            pid: Any = reader.execute(text("SELECT pg_backend_pid()")).scalar()
        kill(conn, pid)
        with pytest.raises(store.Unavailable):
            store.load(reader)
        assert store.load(reader).jobs == ()


def test_a_commit_from_a_thread_of_its_own(writer: Connection, epoch: int) -> None:
    numbers: list[int] = []
    worker = threading.Thread(target=lambda: numbers.append(store.commit(writer, epoch, [], [])))
    worker.start()
    worker.join(20)
    assert numbers == [1]


def test_an_earmark_goes_through_its_phases(writer: Connection, conn: Connection, epoch: int, base: int) -> None:
    operation = make.operation(1, 1, victims=(RunKey(1, 1),))
    store.commit(writer, epoch, make.new(operation), [])
    change = make.changed(operation, phase=OperationPhase.READY, kept=Vector(2, 2, 2), victims=(), deadline_us=make.T)
    store.commit(writer, epoch, [change], [])
    assert store.load(conn).operations == (change.new,)
