"""Connections that are lost on the way, and the row of the leader: what there is with PostgreSQL alone."""

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, strategies
from sqlalchemy import Connection, Engine, text

from scheduler_service import store
from scheduler_service.database import Engines
from scheduler_service.store.connect import _parse_json
from tests.store import make
from tests.store.fixtures import new_database
from tests.store.proxy import Proxy
from tests.store.waiting import wait_for

BASE = (make.CLUSTER, make.NODE, make.DEVICE, make.job(1), make.run(1))


@pytest.fixture
def base(writer: Connection, epoch: int) -> int:
    """A small cluster with one run; the commit's number."""
    return store.commit(writer, epoch, make.new(*BASE), [])


def test_there_is_one_leader_row(engine: Engine) -> None:
    insert = text("INSERT INTO leader (holder, address, epoch, expires_at, commit_no, one) VALUES ('', '', 0, now(), 0, :one)")
    for one in (True, False):
        with pytest.raises(Exception, match=r"leader_pkey|leader_one_row"), engine.begin() as conn:
            conn.execute(insert, {"one": one})


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


@pytest.fixture
def database_url(postgres_url: str, migrated_template: str) -> Iterator[str]:
    """One of the test's own, which may change it."""
    with new_database(postgres_url, migrated_template) as url:
        yield url


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


def test_a_takeover_waits_for_the_commit_in_progress(engine: Engine, conn: Connection, epoch: int) -> None:
    with engine.connect() as committing, ThreadPoolExecutor(1) as pool:
        begun = committing.begin()
        committing.execute(text("UPDATE leader SET commit_no = commit_no + 1"))
        taking = pool.submit(store.take, conn, "other", 60, True)
        begun.commit()
        assert taking.result(timeout=20) == epoch + 1
    with engine.connect() as reader:
        assert store.load(reader).commit_no == 1


@pytest.mark.parametrize(("lease", "limit"), [(4, "4s"), (0.5, "500ms")])
def test_a_commit_may_pause_for_the_time_of_a_lease(database_url: str, lease: float, limit: str) -> None:
    """A shorter limit would end commits of a leader that is slow, and that nobody would follow yet."""
    with closing(Engines(database_url, lease)) as engines, engines.writer.connect() as writer:
        assert writer.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one() == limit


def test_a_leader_that_stops_within_a_commit_cannot_block_its_successor(
    writer: Connection, conn: Connection, epoch: int
) -> None:
    writer.execute(text("SET idle_in_transaction_session_timeout = '50ms'"))
    writer.execute(text("UPDATE leader SET commit_no = commit_no + 1"))  # and then it is stopped
    assert store.take(conn, "other", ttl=60, force=True) == epoch + 1
    writer.invalidate()
    assert store.load(conn).commit_no == 0


def test_a_database_without_tables_says_who_makes_them(postgres_url: str) -> None:
    """As it is while the first scheduler on it starts."""
    with new_database(postgres_url) as url:
        engine = store.open_engine(url)
        with engine.connect() as conn, pytest.raises(store.Unavailable, match="tables are not in this database yet") as said:
            store.holder(conn)
        engine.dispose()
    assert said.value.cause == "Ebb's tables are not in this database yet; a scheduler makes them as it starts"


def test_a_database_that_only_reads_is_unavailable(writer: Connection, epoch: int, base: int) -> None:
    """As a primary of before a failover; nothing that was asked is at fault."""
    with writer.begin():
        writer.execute(text("SET default_transaction_read_only = on"))
    with pytest.raises(store.Unavailable, match="read-only transaction"):
        store.commit(writer, epoch, make.new(make.job(2)), [])
    with writer.begin():
        writer.execute(text("SET default_transaction_read_only = off"))
    assert store.commit(writer, epoch, make.new(make.job(2)), []) == base + 1


_TEXT = strategies.text(strategies.characters(exclude_categories=["Cs"]))
_JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats(allow_nan=False) | _TEXT,
    lambda inner: strategies.lists(inner) | strategies.dictionaries(_TEXT, inner),
)


@given(_JSON)
def test_what_postgresql_writes_is_parsed_as_json_is(value: object) -> None:
    for written in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert _parse_json(written) == value
        assert _parse_json(written.encode()) == value
