"""One leader at a time, by the database's clock."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, Engine, text

from scheduler_service import store


def expire(conn: Connection) -> None:
    """Lets the lease run out, as if time had passed."""
    with conn.begin():
        conn.execute(text("UPDATE leader SET expires_at = clock_timestamp() - interval '1 microsecond'"))


def test_nobody_leads_at_first(conn: Connection) -> None:
    lease = store.holder(conn)
    assert (lease.holder, lease.address, lease.epoch) == ("", "", 0)
    assert lease.expires_in_seconds < 0


def test_only_one_of_two_gets_it(conn: Connection) -> None:
    assert store.take(conn, "a", ttl=60, address="host:7000") == 1
    assert store.take(conn, "b", ttl=60) is None
    lease = store.holder(conn)
    assert (lease.holder, lease.address, lease.epoch) == ("a", "host:7000", 1)
    assert 50 < lease.expires_in_seconds <= 60


def test_an_expired_lease_goes_to_another(conn: Connection) -> None:
    assert store.take(conn, "a", ttl=60) == 1
    expire(conn)
    assert store.take(conn, "b", ttl=60) == 2
    assert not store.renew(conn, 1, ttl=60)
    assert store.renew(conn, 2, ttl=60)


def test_an_expired_lease_that_nobody_took_is_renewed(conn: Connection) -> None:
    assert store.take(conn, "a", ttl=0.001) == 1
    expire(conn)
    assert store.renew(conn, 1, ttl=60)
    assert store.take(conn, "b", ttl=60) is None


def test_the_same_holder_takes_it_again_under_a_new_epoch(conn: Connection) -> None:
    assert store.take(conn, "a", ttl=60) == 1
    assert store.take(conn, "a", ttl=60) == 2
    assert not store.renew(conn, 1, ttl=60)


def test_force_takes_it_from_a_valid_holder(conn: Connection) -> None:
    assert store.take(conn, "a", ttl=60) == 1
    assert store.take(conn, "b", ttl=60, force=True) == 2
    assert store.holder(conn).holder == "b"


def test_a_released_lease_is_free_at_once(conn: Connection) -> None:
    assert store.take(conn, "a", ttl=60) == 1
    store.release(conn, 1)
    assert store.holder(conn).holder == ""
    assert not store.renew(conn, 1, ttl=60)
    assert store.take(conn, "b", ttl=60) == 2
    store.release(conn, 1)
    assert store.holder(conn).holder == "b", "an epoch that is over releases nothing"


def test_a_race_has_one_winner(engine: Engine) -> None:
    def attempt(name: str) -> int | None:
        with engine.connect() as conn:
            return store.take(conn, name, ttl=60)

    with ThreadPoolExecutor(4) as pool:
        won = [epoch for epoch in pool.map(attempt, "abcd") if epoch is not None]
    assert won == [1]


def test_a_holder_has_a_name(conn: Connection) -> None:
    with pytest.raises(ValueError, match="name"):
        store.take(conn, "", ttl=60)


def test_a_takeover_waits_for_the_commit_in_progress(engine: Engine, conn: Connection, epoch: int) -> None:
    with engine.connect() as committing, ThreadPoolExecutor(1) as pool:
        begun = committing.begin()
        committing.execute(text("UPDATE leader SET commit_no = commit_no + 1"))
        taking = pool.submit(store.take, conn, "other", 60, True)
        begun.commit()
        assert taking.result(timeout=20) == epoch + 1
    with engine.connect() as reader:
        assert store.load(reader).commit_no == 1


def test_a_leader_that_stops_within_a_commit_cannot_block_its_successor(
    writer: Connection, conn: Connection, epoch: int
) -> None:
    assert writer.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one() == "10s"
    writer.execute(text("SET idle_in_transaction_session_timeout = '50ms'"))
    writer.execute(text("UPDATE leader SET commit_no = commit_no + 1"))  # and then it is stopped
    assert store.take(conn, "other", ttl=60, force=True) == epoch + 1
    writer.invalidate()
    assert store.load(conn).commit_no == 0
