import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from sqlalchemy import Engine, text

from tests.rpc.server import Agent, Server
from tests.store.fixtures import *  # noqa: F403
from tests.store.waiting import wait_for


@pytest.fixture
def server(database_url: str) -> Iterator[Server]:
    with Server(database_url) as made:
        yield made


@pytest.fixture
def agent(server: Server) -> Iterator[Agent]:
    """A connected agent of a node with two devices."""
    with Agent(server) as made:
        made.connect()
        yield made


@pytest.fixture
def commits_kept_out(engine: Engine) -> Callable[[], AbstractContextManager[Callable[[], None]]]:
    """While it lasts, no commit gets past its first statement; gives a wait until one tries to."""

    @contextmanager
    def hold() -> Iterator[Callable[[], None]]:
        waiting = text("SELECT pid FROM pg_stat_activity WHERE application_name = 'ebb writer' AND wait_event_type = 'Lock'")

        def until_one_waits() -> None:
            def look() -> bool:
                with engine.connect() as admin:
                    return admin.execute(waiting).first() is not None

            wait_for(look)

        with engine.connect() as conn:
            conn.execute(text("SELECT FROM leader FOR UPDATE"))
            yield until_one_waits
            conn.rollback()

    return hold


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    wait_for(lambda: all(thread.daemon for thread in set(threading.enumerate()) - before))
