"""Leadership is a lease in the one row of `leader`, and its epoch fences every commit.

Whether a lease has expired is judged by the database's clock alone, so the schedulers' clocks need not agree. One that
would last longer than any can is from before that clock was set back, and is free too. Every
function is a transaction of its own, waits for a commit in progress to end, and raises Unavailable when the database
cannot be asked. They need a connection other than the one that commits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from scheduler_service.core.numbers import SKIPPED
from scheduler_service.store.connect import reading as transaction
from scheduler_service.store.errors import Unavailable

LONGEST = 60.0
"""Seconds for which a lease may be taken."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who leads. When nobody has taken the lease, or the last holder gave it back, `holder` is empty."""

    holder: str
    address: str
    epoch: int
    expires_in_seconds: float
    """By the database's clock; not positive when it has expired and can be taken."""

    @property
    def valid(self) -> bool:
        """Whether somebody leads by it."""
        return self.holder != "" and not is_free(self.expires_in_seconds)


def is_free(expires_in_seconds: float) -> bool:
    """Whether a lease that ends then can be taken. Twice the longest: that a clock is put right by a little ends none."""
    return not 0 < expires_in_seconds <= 2 * LONGEST


_TAKE = text(
    "UPDATE leader SET holder = :holder, address = :address, epoch = GREATEST(epoch, :above) + 1,"
    " expires_at = clock_timestamp() + make_interval(secs => :ttl)"
    " WHERE :force OR holder IN ('', :holder) OR expires_at <= clock_timestamp()"
    f" OR expires_at > clock_timestamp() + make_interval(secs => {2 * LONGEST}) RETURNING epoch"
)
_RENEW = text(
    "UPDATE leader SET expires_at = clock_timestamp() + make_interval(secs => :ttl)"
    " WHERE epoch = :epoch AND holder <> '' RETURNING epoch"
)
_RELEASE = text("UPDATE leader SET holder = '', address = '', expires_at = clock_timestamp() WHERE epoch = :epoch")
_HOLDER = text("SELECT holder, address, epoch, extract(epoch FROM expires_at - clock_timestamp())::float8 FROM leader")


def _ask(conn: Connection, statement: Any, values: Mapping[str, Any]) -> Sequence[Any] | None:
    try:
        with conn.begin():
            result = conn.execute(statement, values)
            return result.one_or_none() if result.returns_rows else None
    except DBAPIError as error:
        raise Unavailable(error.orig) from error


def check_asked(holder: str, ttl: float) -> None:
    """Raises ValueError where nobody may have a lease by that name, or for so long."""
    if not holder:
        raise ValueError("a holder needs a name")
    if not 0 < ttl <= LONGEST:
        raise ValueError(f"a lease lasts at most {LONGEST:g} s, not {ttl:g}")


def take(conn: Connection, holder: str, ttl: float, force: bool = False, address: str = "", above: int = 0) -> int | None:
    """Takes the lease for `ttl` seconds (at most LONGEST) and returns the new epoch; None when somebody else holds a valid one.

    A lease is free when it has expired or was released, when the database's clock was set back since, or when `holder`,
    whose name no other process may have, is who holds it. `force` takes it from a valid holder, who then is fenced. Every
    take raises the epoch, to more than `above`, which an agent has obeyed: a database that was restored from a backup
    knows less than they do.
    """
    check_asked(holder, ttl)
    row = _ask(conn, _TAKE, {"holder": holder, "ttl": ttl, "force": force, "address": address, "above": above})
    return None if row is None else int(row[0])


def renew(conn: Connection, epoch: int, ttl: float) -> bool:
    """Extends the lease to `ttl` seconds from now. False when the epoch is over or released: step down.

    A lease that has expired but that nobody took is renewed: nothing was committed by anybody else meanwhile.
    """
    return _ask(conn, _RENEW, {"epoch": epoch, "ttl": ttl}) is not None


def release(conn: Connection, epoch: int) -> None:
    """Gives the lease back, so that another scheduler need not wait; does nothing when the epoch is over.

    The epoch stays valid for commits until somebody takes the lease: release it after the last one.
    """
    _ask(conn, _RELEASE, {"epoch": epoch})


def skip(conn: Connection) -> None:
    """Puts the next epoch that much higher, and skips as many numbers of whatever agents, files or users may know. For a
    database that was restored, while nobody leads."""
    with transaction(conn):
        conn.execute(text("UPDATE leader SET epoch = epoch + :count, holder = ''"), {"count": SKIPPED})
        conn.execute(
            text(
                "UPDATE cluster SET next_job = next_job + :count, next_order = next_order + :count,"
                " next_exchange = next_exchange + :count"
            ),
            {"count": SKIPPED},
        )


def holder(conn: Connection) -> Lease:
    """Who holds the lease, or held it last."""
    row = _ask(conn, _HOLDER, {})
    if row is None:
        raise Unavailable("the table leader has no row; has the database been migrated?")
    return Lease(row[0], row[1], row[2], row[3])
