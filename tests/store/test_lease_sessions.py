"""The session of who leads: a lease ends with it for a standby that has seen it, and for nobody else."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text

from scheduler_service import store
from scheduler_service.database import Lease
from tests.store.proxy import Proxy
from tests.thorough import examples

TTL = 60.0
A_WHILE, LONG = 7, 20
"""Seconds in which no renewal is missed, and in which some are."""
THREE = range(3)


class Scheduler:
    """Its lease and the session of that."""

    def __init__(self, url: str, name: str) -> None:
        self._engine = store.open_engine(url, connections=1, lease=True)
        self._lease = Lease(self._engine, name, TTL, f"{name}:7737")
        self.epoch = 0

    def close(self) -> None:
        self._engine.dispose()

    def take(self) -> bool:
        taken = _twice(self._lease.take)
        self.epoch = taken or self.epoch
        return taken is not None

    def renew(self) -> bool:
        return _twice(lambda: self._lease.renew(self.epoch))

    def release(self) -> None:
        _twice(lambda: self._lease.release(self.epoch))

    def break_session(self, conn: Connection) -> None:
        """As the server does when this process is killed."""
        with self._engine.connect() as mine:
            pid = mine.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]
        with conn.begin():
            conn.execute(text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": pid})


def _twice(ask: Callable[[], Any]) -> Any:
    """A session that is broken is found broken once."""
    try:
        return ask()
    except store.Unavailable:
        return ask()


@pytest.fixture
def three(database_url: str) -> Iterator[list[Scheduler]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Scheduler(database_url, name))) for name in "abc"]


def let_pass(conn: Connection, seconds: int) -> None:
    with conn.begin():
        conn.execute(text("UPDATE leader SET expires_at = expires_at - make_interval(secs => :s)"), {"s": seconds})


def test_a_broken_session_frees_the_lease_for_who_has_seen_it(three: list[Scheduler], conn: Connection) -> None:
    leader, standby, newcomer = three
    assert leader.take()
    let_pass(conn, LONG)
    assert not standby.take(), "the session is there"
    leader.break_session(conn)
    assert not newcomer.take(), "it may never have been there"
    assert standby.take()
    assert not leader.renew()


def test_a_holder_that_comes_back_at_once_goes_on(three: list[Scheduler], conn: Connection) -> None:
    leader, standby, _ = three
    assert leader.take()
    assert not standby.take()
    for _ in range(3):
        assert leader.renew()
        leader.break_session(conn)
        let_pass(conn, A_WHILE)
        assert not standby.take(), "no renewal was missed"
        assert leader.renew()
        let_pass(conn, LONG)
        assert not standby.take(), "the new session counts as the old one did"


def test_after_a_restart_of_the_database_the_holder_has_its_lease(three: list[Scheduler], conn: Connection) -> None:
    leader, standby, _ = three
    assert leader.take()
    assert not standby.take()
    for scheduler in three:
        scheduler.break_session(conn)
    let_pass(conn, LONG)
    assert not standby.take()
    assert leader.renew()
    leader.break_session(conn)
    let_pass(conn, LONG)
    assert not standby.take(), "it has not seen the new session either"


def test_a_session_that_the_server_still_holds_open_is_replaced(database_url: str, conn: Connection) -> None:
    """The holder lost its connection, and the server does not know yet: the lock is the old session's until then."""
    with (
        Proxy(database_url) as proxy,
        closing(Scheduler(proxy.url, "a")) as leader,
        closing(Scheduler(database_url, "b")) as standby,
        closing(Scheduler(database_url, "c")) as old,
    ):
        assert leader.take()
        with old._engine.connect() as held:  # stands for that session
            leader.break_session(conn)
            held.execute(text(f"SELECT pg_try_advisory_lock({store.lease._KEY}) FROM leader"))
        assert leader.renew()
        assert not standby.take()
        old.break_session(conn)
        assert leader.renew(), "and now the lock is its own"
        let_pass(conn, LONG)
        assert not standby.take()


STEPS = st.one_of(
    st.tuples(st.sampled_from(["take", "renew", "break", "commit"]), st.sampled_from(THREE)),
    st.tuples(st.sampled_from(["take", "release"]), st.sampled_from(THREE)),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("pass"), st.sampled_from([A_WHILE, LONG, LONG, 61])),
)


@settings(
    max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps=st.lists(STEPS, min_size=5, max_size=25))
def test_three_schedulers_in_any_order(three: list[Scheduler], conn: Connection, writer: Connection, steps: Any) -> None:
    """Who gets the lease, and whose commits pass, is what this model says. At most one of three can commit at any time."""
    with conn.begin():
        conn.execute(text("UPDATE leader SET holder = '', epoch = epoch + 1"))
        epoch: int = conn.execute(text("SELECT epoch FROM leader")).scalar_one()
    holder: int | None = None
    left, in_session = 0.0, False
    seen: dict[int, int | None] = dict.fromkeys(THREE)
    for scheduler in three:
        scheduler.epoch = 0
    for step, who in steps:
        match step:
            case "take":
                broken = seen[who] == epoch and not in_session and left < TTL * 0.8
                free = holder in (None, who) or left <= 0 or broken
                assert three[who].take() == free
                if free:
                    epoch, holder, left, in_session = epoch + 1, who, TTL, True
                    assert three[who].epoch == epoch
                elif in_session:
                    seen[who] = epoch
            case "renew":
                valid = holder is not None and three[who].epoch == epoch
                assert three[who].renew() == valid
                if valid:
                    left, in_session = TTL, True
            case "release":
                three[who].release()
                if three[who].epoch == epoch:
                    holder, left, in_session = None, 0, False
            case "break" | "restart":
                for each in THREE if step == "restart" else (who,):
                    three[each].break_session(conn)
                    seen[each] = None
                    in_session = in_session and holder != each
            case "pass":
                let_pass(conn, who)
                left -= who
            case "commit":
                try:
                    store.commit(writer, three[who].epoch, [], [])
                    assert three[who].epoch == epoch
                except store.Fenced:
                    assert three[who].epoch != epoch
