"""A PostgreSQL server for the tests of a process, and a migrated database with nothing in it for each test.

A test folder that needs them says in its conftest: `from tests.store.fixtures import *  # noqa: F403`.
"""

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, Engine

from scheduler_service import store
from scheduler_service.store.embedded.server import Embedded

__all__ = [
    "conn",
    "database_url",
    "engine",
    "epoch",
    "lent_database",
    "migrated_template",
    "new_database",
    "postgres_url",
    "writer",
]

_numbers = count(1)


@contextmanager
def short_dir() -> Iterator[Path]:
    """A folder that every user can reach and whose path is short enough for a socket; gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="ebb-test-", dir="/tmp"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def execute(url: str, statement: str) -> None:
    """One statement outside of any transaction, such as CREATE DATABASE."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(statement.encode())


def database(url: str, name: str) -> str:
    """The URL of another database on the same server."""
    return url.replace("@/postgres?", f"@/{name}?")


def furnish(place: Path) -> None:
    """Puts a migrated database with nothing in it where an embedded server is going to look for its own: a copy costs a
    tenth of making one, which tests of the first start do."""
    place.mkdir(parents=True)
    # To look for holes in a thousand small files would take four times as long.
    subprocess.run(["cp", "-a", "--sparse=never", _furniture(), place], check=True)


@cache
def _furniture() -> Path:
    """What an embedded server leaves; made once by each test process that asks."""
    stack = ExitStack()
    atexit.register(stack.close)
    made = Embedded(stack.enter_context(short_dir()) / "data", durable=False)
    with made as url:
        engine = store.open_engine(url)
        store.migrate(engine)
        engine.dispose()
    return made.place / "postgres"


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The server of this test process."""
    with short_dir() as folder, Embedded(folder / "data", state_dir=folder / "state", durable=False) as url:
        yield url


@pytest.fixture(scope="session")
def migrated_template(postgres_url: str) -> str:
    """The name of a migrated database that has nothing in it; to be copied."""
    execute(postgres_url, "CREATE DATABASE migrated_template")
    engine = store.open_engine(database(postgres_url, "migrated_template"))
    store.migrate(engine)
    engine.dispose()
    return "migrated_template"


@contextmanager
def new_database(postgres_url: str, template: str = "template0") -> Iterator[str]:
    """The URL of a copy of the template; dropped afterwards, whoever still uses it."""
    name = f"test_{next(_numbers)}"
    execute(postgres_url, f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield database(postgres_url, name)
    finally:
        execute(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


_END_OTHERS = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename NOT IN ('alembic_version', 'leader')"
_SCHEMA = """
SELECT (SELECT array_agg(oid ORDER BY oid) FROM pg_class WHERE oid >= 16384 AND relnamespace = 'public'::regnamespace),
       (SELECT array_agg(oid ORDER BY oid) FROM pg_constraint WHERE oid >= 16384),
       (SELECT array_agg(tgname::text || tgenabled::text ORDER BY oid) FROM pg_trigger WHERE oid >= 16384),
       (SELECT array_agg(attname::text || atttypid::text ORDER BY attrelid, attnum)
        FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid WHERE relnamespace = 'public'::regnamespace),
       (SELECT array_agg(oid ORDER BY oid) FROM pg_proc WHERE oid >= 16384),
       (SELECT array_agg(version_num::text) FROM alembic_version)
"""


@pytest.fixture(scope="session")
def lent_database(postgres_url: str, migrated_template: str) -> Iterator[tuple[str, Any]]:
    """The one that `database_url` gives to one test after the other, and what its schema is."""
    with new_database(postgres_url, migrated_template) as url:
        with psycopg.connect(url) as conn:
            schema = conn.execute(_SCHEMA).fetchone()
        yield url, schema


@pytest.fixture
def database_url(lent_database: tuple[str, Any]) -> Iterator[str]:
    """A migrated database as if it were fresh: to empty one costs a fiftieth of making another. Its schema stays as it is."""
    url, schema = lent_database
    yield url
    with psycopg.connect(url, autocommit=True) as conn:
        while not all(gone for (gone,) in conn.execute(_END_OTHERS)):
            pass
        assert conn.execute(_SCHEMA).fetchone() == schema, "a test that changes the schema takes a `new_database`"
        conn.execute("SET session_replication_role = replica")  # rows may go in any order
        for (table,) in conn.execute(_TABLES).fetchall():
            conn.execute(f"DELETE FROM {table}".encode())
        conn.execute("SELECT setval(seqrelid, seqstart, false) FROM pg_sequence")
        reset = conn.execute("UPDATE leader SET holder = '', address = '', epoch = 0, expires_at = '-infinity', commit_no = 0")
        assert reset.rowcount == 1, "a test that does away with the leader's row takes a `new_database`"


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """For reads, leases, and looking on."""
    made = store.open_engine(database_url)
    yield made
    made.dispose()


@pytest.fixture
def conn(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as made:
        yield made


@pytest.fixture
def epoch(conn: Connection) -> int:
    """The lease is taken, by "tester"."""
    taken = store.take(conn, "tester", ttl=60)
    assert taken is not None
    return taken


@pytest.fixture
def writer(database_url: str) -> Iterator[Connection]:
    """The connection for commits."""
    made = store.open_engine(database_url, writer=True, connections=1)
    with made.connect() as conn:
        yield conn
    made.dispose()
