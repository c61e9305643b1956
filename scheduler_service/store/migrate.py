"""Brings a database to the schema of this version, by the migrations in the package `migrations`."""

from importlib.resources import files
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, text

from scheduler_service.store.connect import asking
from scheduler_service.store.errors import SchemaTooNew

if TYPE_CHECKING:
    from alembic.config import Config

_LOCK = text("SELECT pg_advisory_xact_lock(20180926)")  # any number, the same in every version
_IS_THERE = text("SELECT to_regclass('alembic_version') IS NOT NULL")
_CURRENT = text("SELECT version_num FROM alembic_version ORDER BY version_num")


def migrate(engine: Engine, to: str = "heads") -> None:
    """Upgrades the schema in one transaction; schedulers that start at once take turns.

    Raises SchemaTooNew when a later version has migrated the database, and Unavailable.
    """
    with asking(), engine.begin() as conn:
        conn.execute(_LOCK)
        if to != "heads" or _current_revisions(conn) != {latest()}:
            _upgrade(conn, to)


def revision(engine: Engine) -> str:
    """The revision that the database is at; empty for a new one. Raises Unavailable."""
    with asking(), engine.connect() as conn:
        return ", ".join(sorted(_current_revisions(conn)))


def latest() -> str:
    """The last of the migrations that are installed with this package, each of which is named for its number."""
    return max(_numbers())


def configuration(conn: Connection) -> "Config":
    """Alembic's configuration for this connection and the migrations that are installed with this package."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(files("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = conn
    return config


def _upgrade(conn: Connection, to: str) -> None:
    from alembic import command  # a third of a second, which a database that is up to date need not cost

    _refuse_newer(conn)
    command.upgrade(configuration(conn), to)


def _refuse_newer(conn: Connection) -> None:
    if newer := _current_revisions(conn) - _numbers():
        raise SchemaTooNew(", ".join(sorted(newer)), latest())


def _current_revisions(conn: Connection) -> set[str]:
    return set(conn.execute(_CURRENT).scalars()) if conn.execute(_IS_THERE).scalar_one() else set()


def _numbers() -> set[str]:
    names = (file.name for file in (files("migrations") / "versions").iterdir())
    return {name.partition("_")[0] for name in names if name.endswith(".py") and name[0].isdigit()}
