"""Databases that somebody else made, in an encoding that is not ours."""

import pytest
from sqlalchemy import text

from scheduler_service import store
from tests.store.fixtures import new_database


def test_a_database_without_an_encoding_gives_text_all_the_same(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `initdb` makes them where no locale is set, in containers for one: psycopg would give bytes."""
    monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
    with new_database(postgres_url, "template0 ENCODING 'SQL_ASCII' LOCALE 'C'") as url:
        engine = store.open_engine(url)
        try:
            store.migrate(engine)
            assert store.revision(engine)
            with engine.connect() as conn:
                assert conn.execute(text("SHOW server_encoding")).scalar_one() == "SQL_ASCII"
                assert conn.execute(text("SELECT CAST(:name AS text)"), {"name": "Zoë"}).scalar_one() == "Zoë"
        finally:
            engine.dispose()
