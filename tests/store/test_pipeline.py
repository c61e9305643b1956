"""Statements sent together: what a session remembers of them, and what is certain when it is lost."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from psycopg import errors
from sqlalchemy import Connection, Engine, text

from scheduler_service import store
from scheduler_service.store.writing.pipeline import Statement, execute
from tests.store import make
from tests.store.proxy import Proxy
from tests.store.test_connections import backend_waits
from tests.store.waiting import wait_for

ONE = Statement(b"one", b"SELECT 1")
HALF = Statement(b"half", b"SELECT 1 / $1::integer")
ECHO = Statement(b"echo", b"SELECT $1::text")


@pytest.fixture
def session(writer: Connection) -> Any:
    driver = writer.connection.driver_connection
    assert driver is not None
    return driver.pgconn


def test_what_follows_a_refusal_is_neither_done_nor_taken_for_prepared(session: Any) -> None:
    prepared: set[bytes] = set()
    with pytest.raises(errors.DivisionByZero):
        execute(session, prepared, [(ONE, None), (HALF, b"0"), (ECHO, b"x")])
    assert prepared == {b"one", b"half"}
    answers = execute(session, prepared, [(HALF, b"1"), (ECHO, b"x"), (ECHO, b"y"), (ONE, None)])
    assert [answer.get_value(0, 0) for answer in answers] == [b"1", b"x", b"y", b"1"]
    assert prepared == {b"one", b"half", b"echo"}


def test_more_than_the_sockets_hold_goes_both_ways(session: Any) -> None:
    long = b"x" * (8 << 20)
    answers = execute(session, set(), [(ECHO, long)] * 4)
    assert [len(answer.get_value(0, 0) or b"") for answer in answers] == [len(long)] * 4


def test_what_the_driver_prepares_by_itself_takes_none_of_ours_away(writer: Connection, epoch: int) -> None:
    """psycopg prepares what it is asked often, and at a rollback throws away all that the session has prepared."""
    base = store.commit(writer, epoch, make.new(make.job(1, request_id="r")), [])
    for _ in range(20):
        assert store.find_requests(writer, [("ada", "r")])
    with pytest.raises(store.DuplicateRequest):
        store.commit(writer, epoch, make.new(make.job(2, request_id="r")), [])
    assert store.commit(writer, epoch, make.new(make.job(2)), []) == base + 1


def test_a_session_that_forgot_what_was_prepared_is_made_anew(writer: Connection, epoch: int) -> None:
    """As behind a pooler, which lends one session to many."""
    base = store.commit(writer, epoch, make.new(make.job(1)), [])
    with writer.begin():
        writer.execute(text("DEALLOCATE ALL"))
    with pytest.raises(store.Unavailable, match="does not exist"):
        store.commit(writer, epoch, make.new(make.job(2)), [])
    assert store.commit(writer, epoch, make.new(make.job(2)), []) == base + 1


def test_lost_without_a_word_before_commit_is_certainly_not_committed(
    database_url: str, conn: Connection, engine: Engine, epoch: int
) -> None:
    with Proxy(database_url) as proxy, ThreadPoolExecutor(1) as thread:
        through = store.open_engine(proxy.url, writer=True, connections=1)
        with through.connect() as writer, engine.connect() as other:
            base = store.commit(writer, epoch, make.new(make.job(1)), [])
            lock = other.begin()
            other.execute(text("LOCK TABLE job_event IN EXCLUSIVE MODE"))
            done = thread.submit(store.commit, writer, epoch, make.new(make.job(2)), [make.submitted(2)])
            wait_for(lambda: backend_waits(conn, "INSERT INTO job_event%"))
            proxy.refuse()
            assert isinstance(done.exception(timeout=20), store.Unavailable)
            proxy.mend()
            lock.rollback()
            assert store.outcome(engine, epoch, base) == "not committed"
            assert store.commit(writer, epoch, make.new(make.job(2)), []) == base + 1
        through.dispose()
