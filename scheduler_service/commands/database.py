"""Commands that work on the scheduler's database while it may be running: how they find it, and how they exit if it fails."""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from scheduler_service.config import Config, load_or_exit

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

F = TypeVar("F", bound=Callable[..., Any])


class CommandError(Exception):
    """The command cannot be carried out; the message says why, and what to do."""


def database_options(command: F) -> F:
    options = (
        click.option("--database", metavar="URL", help="As for serve."),
        click.option("--embedded", metavar="DIR", type=click.Path(path_type=Path), help="As for serve, which may be running."),
        click.option("--config", "file", metavar="FILE", type=click.Path(path_type=Path), help="As for serve."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@contextlib.contextmanager
def connection(options: dict[str, Any], prepare: "Callable[[Engine], None]", *, new: bool = True) -> "Iterator[Connection]":
    """To the scheduler's database, which is looked at, or made ready, before. `new`: an embedded one that is not there is made.
    What goes wrong meanwhile ends the command with one line and status 1."""
    config = load_or_exit(options.pop("file"), options)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    from scheduler_service import store

    try:
        with _url(config, new) as url:
            engine = store.open_engine(url, connections=1)
            try:
                prepare(engine)
                with engine.connect() as made:
                    yield made
            finally:
                engine.dispose()
    except (store.StoreError, CommandError, OSError) as error:
        click.echo(f"ebb-scheduler: {error}", err=True)
        sys.exit(1)


def require_used(lacks: str) -> "Callable[[Engine], None]":
    """For `connection`: a database that no scheduler has used yet `lacks` what the command needs."""

    def check(engine: "Engine") -> None:
        from scheduler_service import store

        if not store.revision(engine):
            raise CommandError(f"no scheduler has used this database yet: {lacks}")

    return check


@contextlib.contextmanager
def _url(config: Config, new: bool) -> Iterator[str]:
    """The database's URL. An embedded server is started for the command; if a scheduler already runs it, that one is used."""
    from scheduler_service import store

    if config.database is not None:
        yield config.database
        return
    assert config.embedded is not None
    embedded = store.Embedded(config.embedded)
    there = embedded.exists()
    if not new and not there:
        raise CommandError(f"there is no database in {config.embedded}: name the folder that the scheduler was given")
    if not there:
        click.echo(f"ebb-scheduler: there is no database in {config.embedded} yet; making one", err=True)
    try:
        url = embedded.start()
    except store.InUse:
        yield embedded.find()
        return
    try:
        yield url
    finally:
        embedded.stop()
