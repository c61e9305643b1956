"""Tests that take `db` are the contract of the store, and run on PostgreSQL and on its twin. The others are about SQL."""

import pytest

from scheduler_service import store
from tests.store.contract import Db, Postgres, Twin
from tests.store.fixtures import *  # noqa: F403


@pytest.fixture(params=["postgres", "twin"])
def db(request: pytest.FixtureRequest) -> Db:
    if request.param == "twin":
        return Twin()
    return Postgres(request.getfixturevalue("writer"), request.getfixturevalue("conn"))


@pytest.fixture
def epoch(request: pytest.FixtureRequest) -> int:
    """The lease is taken, by "tester"."""
    if "db" in request.fixturenames:
        taken = request.getfixturevalue("db").take("tester", ttl=60)
    else:
        taken = store.take(request.getfixturevalue("conn"), "tester", ttl=60)
    assert taken is not None
    return int(taken)
