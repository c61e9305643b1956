"""`ebb-scheduler token`: makes, shows and takes back the tokens by which callers are known."""

import json
import re
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from scheduler_service.commands.database import CommandError, connection, database_options, require_used

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from scheduler_service.core.model.tokens import Token

PREFIX = "ebb_"
"""Prefix of every token, so that people and secret scanners recognize one."""
SHOWN_CHARS = 6
_DAY_US = 86_400_000_000
_SUBJECT = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._@-]{0,62}[A-Za-z0-9])?")


@click.group()
def token() -> None:
    """Make, list and revoke tokens, by which users, operators and agents are known.

    They are kept in the scheduler's database, as hashes. The scheduler need not be stopped for it, nor be running.

    \b
    Examples:
      ebb-scheduler token create --embedded /var/lib/ebb/db --user alice > alice.token
      ebb-scheduler token create --config /etc/ebb/scheduler.yaml --user olga --role operator --expires 90
      ebb-scheduler token create --config /etc/ebb/scheduler.yaml --user agents --role agent > agent.token
      ebb-scheduler token list --config /etc/ebb/scheduler.yaml
      ebb-scheduler token revoke 3 --config /etc/ebb/scheduler.yaml
    """


@token.command()
@database_options
@click.option("--user", required=True, metavar="NAME", help="Whose it is: the user of what is done with it.")
@click.option("--role", type=click.Choice(["user", "operator", "agent"]), default="user", show_default=True)
@click.option("--expires", type=click.FloatRange(min=0, min_open=True, max=36500), metavar="DAYS", help="[default: never]")
def create(user: str, role: str, expires: float | None, **database: Any) -> None:
    """Make a token and print it, for the only time: nobody can find out later what it was.

    A user submits jobs, changes their own, and sees everything; an operator may change any job, node and virtual cluster; an
    agent speaks for nodes and does nothing else.

    \b
    Example:
      (umask 077; ebb-scheduler token create --embedded /var/lib/ebb/db --user alice > alice.token)
    """
    if not _SUBJECT.fullmatch(user):
        raise click.UsageError(f"--user: {user!r} is no name: letters, digits, dots, hyphens, underscores and @, at most 64")
    with connection(database, _ready) as conn:
        from scheduler_service import store
        from scheduler_service.core.model.tokens import Role
        from scheduler_service.run.token_cache import digest_of, wall_clock

        secret = PREFIX + secrets.token_urlsafe(32)
        now = wall_clock()
        expires_us = None if expires is None else now + max(1, round(expires * _DAY_US))
        made = store.add_token(conn, digest_of(secret), secret[-SHOWN_CHARS:], user, Role[role.upper()], now, expires_us)
    click.echo(secret)
    until = "does not expire" if made.expires_us is None else f"expires on {_day(made.expires_us)}"
    click.echo(f"token {made.id} for {user}, as {role}; it {until}, and is not shown again", err=True)


@token.command("list")
@database_options
@click.option("-o", "--output", type=click.Choice(["json"]), help="Another form.")
def list_(output: str | None, **database: Any) -> None:
    """Show all tokens that were ever made: whose, what for, and whether they hold; never the secrets.

    \b
    Example:
      ebb-scheduler token list --embedded /var/lib/ebb/db
    """
    with connection(database, _require_tokens, new=False) as conn:
        from scheduler_service import store

        rows = [_row(each) for each in store.list_tokens(conn)]
    if output == "json":
        click.echo(json.dumps(rows, indent=2))
        return
    columns = ("id", "user", "role", "state", "ends_with", "created", "expires")
    lines = [
        [name.upper().replace("_", " ") for name in columns],
        *([str(row[name] or "-") for name in columns] for row in rows),
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


@token.command()
@click.argument("token_id", metavar="ID", type=click.IntRange(min=1, max=2**63 - 1))
@database_options
def revoke(token_id: int, **database: Any) -> None:
    """Take a token back, for good. Within seconds it opens nothing any more, and ends what was opened with it.

    \b
    Example:
      ebb-scheduler token revoke 3 --embedded /var/lib/ebb/db
    """
    with connection(database, _require_tokens, new=False) as conn:
        from scheduler_service import store
        from scheduler_service.run.token_cache import wall_clock

        revoked = store.revoke_token(conn, token_id, wall_clock())
        if revoked is None:
            raise CommandError(f"there is no token {token_id}; `ebb-scheduler token list` shows those there are")
    click.echo(f"token {token_id} of {revoked.subject} is revoked")


def _row(made: "Token") -> dict[str, Any]:
    from scheduler_service.run.token_cache import wall_clock

    state = "revoked" if made.revoked_us is not None else "expired" if made.has_expired(wall_clock()) else "valid"
    return {
        "id": made.id,
        "user": made.subject,
        "role": made.role.name.lower(),
        "state": state,
        "ends_with": made.last_chars,
        "created": _day(made.created_us),
        "expires": None if made.expires_us is None else _day(made.expires_us),
    }


def _day(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _ready(engine: "Engine") -> None:
    from scheduler_service import store

    if not store.revision(engine):
        store.migrate(engine)  # a new database; an older one is its scheduler's to bring up to date
    _require_tokens(engine)


def _require_tokens(engine: "Engine") -> None:
    from scheduler_service import store

    require_used("it has no tokens")(engine)
    if (revision := store.revision(engine)) < "0002":  # revisions count up, as 0001, 0002, ...
        raise CommandError(
            f"the database is at revision {revision}, which knows no tokens: start `ebb-scheduler serve` of this version once"
        )
