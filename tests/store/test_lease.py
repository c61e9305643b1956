"""One leader at a time, by the database's clock."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduler_service import store
from tests.store.contract import Db


def test_nobody_leads_at_first(db: Db) -> None:
    lease = db.holder()
    assert (lease.holder, lease.address, lease.epoch) == ("", "", 0)
    assert lease.expires_in_seconds < 0


def test_only_one_of_two_gets_it(db: Db) -> None:
    assert db.take("a", ttl=60, address="host:7000") == 1
    assert db.take("b", ttl=60) is None
    lease = db.holder()
    assert (lease.holder, lease.address, lease.epoch) == ("a", "host:7000", 1)
    assert 50 < lease.expires_in_seconds <= 60


def test_an_expired_lease_goes_to_another(db: Db) -> None:
    assert db.take("a", ttl=60) == 1
    db.expire()
    assert db.take("b", ttl=60) == 2
    assert not db.renew(1, ttl=60)
    assert db.renew(2, ttl=60)


def test_an_expired_lease_that_nobody_took_is_renewed(db: Db) -> None:
    assert db.take("a", ttl=0.001) == 1
    db.expire()
    assert db.renew(1, ttl=60)
    assert db.take("b", ttl=60) is None


def test_a_lease_of_before_the_clock_was_set_back_is_free(db: Db) -> None:
    """Nobody who is alive holds it: that one would have renewed it by the new time. Else nobody could lead for an hour."""
    assert db.take("a", ttl=60) == 1
    db.set_back(30)
    assert db.holder().valid
    assert db.take("b", ttl=5) is None, "clocks are put right by a little at any time"
    db.set_back(3600)
    assert not db.holder().valid
    assert db.take("b", ttl=5) == 2
    assert db.holder().valid


def test_the_same_holder_takes_it_again_under_a_new_epoch(db: Db) -> None:
    assert db.take("a", ttl=60) == 1
    assert db.take("a", ttl=60) == 2
    assert not db.renew(1, ttl=60)


def test_force_takes_it_from_a_valid_holder(db: Db) -> None:
    assert db.take("a", ttl=60) == 1
    assert db.take("b", ttl=60, force=True) == 2
    assert db.holder().holder == "b"


def test_a_released_lease_is_free_at_once(db: Db) -> None:
    assert db.take("a", ttl=60) == 1
    db.release(1)
    assert db.holder().holder == ""
    assert not db.renew(1, ttl=60)
    assert db.take("b", ttl=60) == 2
    db.release(1)
    assert db.holder().holder == "b", "an epoch that is over releases nothing"


def test_a_race_has_one_winner(db: Db) -> None:
    with ThreadPoolExecutor(4) as pool:
        won = [epoch for epoch in pool.map(db.take_from_elsewhere, "abcd") if epoch is not None]
    assert won == [1]


def test_a_holder_has_a_name(db: Db) -> None:
    with pytest.raises(ValueError, match="name"):
        db.take("", ttl=60)


@pytest.mark.parametrize("ttl", [0, 61])
def test_a_lease_has_an_end_in_sight(db: Db, ttl: float) -> None:
    with pytest.raises(ValueError, match="at most 60 s"):
        db.take("a", ttl=ttl)


def test_an_epoch_can_be_raised_above_one_that_was_met(db: Db) -> None:
    assert db.take("a", ttl=60, above=7) == 8
    assert db.take("a", ttl=60, above=3) == 9, "it never goes down"
    assert db.take("b", ttl=60, above=20) is None, "a valid lease is not taken"


def test_what_became_of_a_commit_where_the_database_has_forgotten_some(db: Db) -> None:
    """As after it was restored from a backup, or failed over to a copy that lagged."""
    epoch = db.take("a", ttl=60)
    assert db.outcome(epoch, 0) == "not committed"
    with pytest.raises(store.Forgotten, match="at commit 0, and the scheduler had committed up to 3"):
        db.outcome(epoch, 3)
