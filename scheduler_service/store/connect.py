"""How to connect: engines whose sessions suit what they are for."""

from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecoder
from typing import Any

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from scheduler_service.store.errors import Unavailable

_COMMON = {
    "jit": "off",
    "lock_timeout": "20s",
}
# Plans are made once for each connection, perhaps while a table is still small: they must suit it when it has grown, and
# every statement of a commit finds its rows by their keys.
_WRITER = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
}


def open_engine(url: str, writer: bool = False, connections: int = 5, lease: bool = False, idle_seconds: float = 10) -> Engine:
    """An engine for a postgresql:// URL. `writer` is for the connection of `commit`, and `lease` for the session of a
    scheduler's lease, which holds no row between two statements; others read, or migrate.

    A process that is stopped (not dead) must not keep rows by a transaction that it began: PostgreSQL ends a session whose
    transaction has had nothing to do for `idle_seconds`.

    No connection is made yet.
    """
    settings = _COMMON | {"idle_in_transaction_session_timeout": f"{idle_seconds:g}s"} | (_WRITER if writer else {})
    return create_engine(
        make_url(url).set(drivername="postgresql+psycopg"),
        json_deserializer=_parse_json,
        pool_size=connections,
        max_overflow=0,
        isolation_level="AUTOCOMMIT" if lease else "READ COMMITTED",
        # psycopg sends these with the start of the session.
        connect_args={
            "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
            "application_name": "ebb writer" if writer else "ebb lease" if lease else "ebb",
            # psycopg prepares what it is asked often, and at the next rollback has the server forget all that the session has
            # prepared: on the writer's, what `pipeline` has.
            "prepare_threshold": None if writer else 5,
            "client_encoding": "utf8",  # not that of the database, nor of PGCLIENTENCODING: SQL_ASCII would give bytes for text
            "connect_timeout": 10,
            # A database that is gone without a word, as when its machine lost power, is noticed within half a minute.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 25_000,
        },
    )


_decode = JSONDecoder().raw_decode


def _parse_json(text: bytes | str) -> Any:
    """Parse JSON from PostgreSQL, which has no space around it: `json.loads` looks for that and takes several times as long."""
    return _decode(text if isinstance(text, str) else text.decode())[0]


@contextmanager
def asking() -> Iterator[None]:
    """Raise errors of the driver as Unavailable."""
    try:
        yield
    except DBAPIError as error:
        raise Unavailable(error.orig) from error


@contextmanager
def reading(conn: Connection) -> Iterator[None]:
    """A transaction, whose failures are the store's own."""
    with asking(), conn.begin():
        yield
