"""Brings a database to the schema of this version, by the migrations in the package `migrations`."""

from importlib.util import find_spec
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from scheduler_service.store.errors import SchemaTooNew, Unavailable

_LOCK = text("SELECT pg_advisory_xact_lock(20180926)")  # any number, the same in every version


def migrate(engine: Engine, to: str = "heads") -> None:
    """Upgrades the schema in one transaction; schedulers that start at once take turns.

    Raises SchemaTooNew when a later version has migrated the database, and Unavailable.
    """
    try:
        with engine.begin() as conn:
            conn.execute(_LOCK)
            config = configuration(conn)
            _refuse_newer(conn, ScriptDirectory.from_config(config))
            command.upgrade(config, to)
    except DBAPIError as error:
        raise Unavailable(error.orig) from error


def revision(engine: Engine) -> str:
    """The revision that the database is at; empty for a new one. Raises Unavailable."""
    try:
        with engine.connect() as conn:
            return ", ".join(sorted(MigrationContext.configure(conn).get_current_heads()))
    except DBAPIError as error:
        raise Unavailable(error.orig) from error


def configuration(conn: Connection) -> Config:
    """Alembic's configuration for this connection and the migrations that are installed with this package."""
    spec = find_spec("migrations")
    assert spec is not None
    assert spec.origin is not None, "the package migrations is installed beside this one"
    config = Config()
    config.set_main_option("script_location", str(Path(spec.origin).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = conn
    return config


def _refuse_newer(conn: Connection, scripts: ScriptDirectory) -> None:
    known = {script.revision for script in scripts.walk_revisions()}
    found = set(MigrationContext.configure(conn).get_current_heads())
    if found - known:
        raise SchemaTooNew(", ".join(sorted(found - known)), ", ".join(sorted(scripts.get_heads())))
