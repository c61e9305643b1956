"""Leadership is a lease in the one row of `leader`, and its epoch fences every commit.

Whether a lease has expired is judged by the database's clock alone, so the schedulers' clocks need not agree. A lease that
would last longer than any can is from before that clock was set back, and is free too.

A lease also ends with the session of its holder. The session in which a lease is taken or renewed holds an advisory lock that
is named after the epoch. If the holder is killed, its machine's kernel closes the connection, PostgreSQL ends the session,
and the lock is gone at once. This shortens the wait and proves nothing: a lock that is missing counts only for a session
that has seen it before. After a restart of the database nobody has, so the holder has the rest of its lease to come back.

Every function is a transaction of its own, waits for a commit in progress to end, and raises Unavailable when the database
cannot be asked. They need a connection other than the one that commits, and a session that nobody shares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from scheduler_service.core.handlers.skipped_job_ids import SKIPPED
from scheduler_service.store.connect import reading as transaction
from scheduler_service.store.errors import Unavailable

LONGEST = 60.0
"""Seconds for which a lease may be taken."""
RENEWALS = 8
"""A lease is renewed that many times in its duration."""
_MISSED = 1.6 / RENEWALS
"""Part of a lease after which its holder has missed a renewal."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who leads. When nobody has taken the lease, or the last holder gave it back, `holder` is empty."""

    holder: str
    address: str
    epoch: int
    expires_in_seconds: float
    """Remaining time by the database's clock; zero or negative once it has expired and can be taken."""
    in_session: bool
    """Whether the session that took or renewed it is still there."""

    @property
    def valid(self) -> bool:
        """Whether somebody leads by it."""
        return self.holder != "" and not is_free(self.expires_in_seconds)


def is_free(expires_in_seconds: float) -> bool:
    """Whether a lease that ends then can be taken. Twice the longest: that a clock is put right by a little ends none."""
    return not 0 < expires_in_seconds <= 2 * LONGEST


_KEY = "1700946464, (epoch & 2147483647)::int"
"""The advisory lock of an epoch. The first number is "ebb " in ASCII, so that other programs' locks are others."""
_IN_SESSION = (
    "EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = 1700946464 AND objid::bigint = epoch & 2147483647"
    " AND objsubid = 2 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
)
_TAKE = text(
    "UPDATE leader SET holder = :holder, address = :address, epoch = GREATEST(epoch, :above) + 1,"
    " expires_at = clock_timestamp() + make_interval(secs => :ttl)"
    " WHERE :force OR holder IN ('', :holder) OR expires_at <= clock_timestamp()"
    f" OR expires_at > clock_timestamp() + make_interval(secs => {2 * LONGEST})"
    f" OR (epoch = :seen AND expires_at < clock_timestamp() + make_interval(secs => :ttl * {1 - _MISSED})"
    f" AND NOT {_IN_SESSION})"
    f" RETURNING epoch, pg_try_advisory_lock({_KEY})"
)
# A renewal that a crash of the database undoes does no harm, so it does not wait for the disk, which may be busy.
_RENEW = text(
    "UPDATE leader SET expires_at = clock_timestamp() + make_interval(secs => :ttl)"
    " WHERE epoch = :epoch AND holder <> ''"
    f" RETURNING epoch, :locked OR pg_try_advisory_lock({_KEY}), set_config('synchronous_commit', 'off', true)"
)
_RELEASE = text("UPDATE leader SET holder = '', address = '', expires_at = clock_timestamp() WHERE epoch = :epoch")
_HOLDER = text(
    f"SELECT holder, address, epoch, extract(epoch FROM expires_at - clock_timestamp())::float8, {_IN_SESSION} FROM leader"
)
_UNLOCK = text("SELECT pg_advisory_unlock_all()")
_SEEN, _LOCKED = "epoch seen in session", "epoch locked"
"""Keys of a session's info: the last epoch whose lock it has seen, and the one whose lock it holds."""


def _ask(conn: Connection, statement: Any, values: Mapping[str, Any]) -> Sequence[Any] | None:
    with transaction(conn):
        result = conn.execute(statement, values)
        return result.one_or_none() if result.returns_rows else None


def check_asked(holder: str, ttl: float) -> None:
    """Raises ValueError where nobody may have a lease by that name, or for so long."""
    if not holder:
        raise ValueError("a holder needs a name")
    if not 0 < ttl <= LONGEST:
        raise ValueError(f"a lease lasts at most {LONGEST:g} s, not {ttl:g}")


def take(conn: Connection, holder: str, ttl: float, force: bool = False, address: str = "", above: int = 0) -> int | None:
    """Takes the lease for `ttl` seconds (at most LONGEST) and returns the new epoch; None when somebody else holds a valid one.

    A lease is free when it has expired or was released, when the database's clock was set back since, when `holder`, whose
    name no other process may have, is who holds it, or when its holder's session is gone, a call on this connection has seen
    that session, and a renewal was missed since. `force` takes it from a valid holder, who then is fenced. Every
    take raises the epoch, to more than `above`, which an agent has obeyed: a database that was restored from a backup
    knows less than they do.
    """
    check_asked(holder, ttl)
    values = {"holder": holder, "ttl": ttl, "force": force, "address": address, "above": above}
    row = _ask(conn, _TAKE, values | {"seen": conn.info.get(_SEEN, -1)})
    if row is None:
        _read_lease(conn)
        return None
    _note_locked(conn, row)
    return int(row[0])


def renew(conn: Connection, epoch: int, ttl: float) -> bool:
    """Extends the lease to `ttl` seconds from now. False if the epoch has ended or was released: step down.

    A lease that has expired but that nobody took is renewed: nothing was committed by anybody else meanwhile.
    """
    row = _ask(conn, _RENEW, {"epoch": epoch, "ttl": ttl, "locked": conn.info.get(_LOCKED) == epoch})
    if row is None:
        return False
    _note_locked(conn, row)
    return True


def _note_locked(conn: Connection, row: Sequence[Any]) -> None:
    """After the session was lost, its server may keep the lock for a while: then each renewal tries to get it again."""
    if row[1]:
        conn.info[_LOCKED] = row[0]


def release(conn: Connection, epoch: int) -> None:
    """Gives the lease back, so that another scheduler need not wait; does nothing if the epoch has ended.

    The epoch stays valid for commits until somebody takes the lease: release it after the last one.
    """
    _ask(conn, _RELEASE, {"epoch": epoch})
    _ask(conn, _UNLOCK, {})


def skip(conn: Connection) -> None:
    """Raise the next epoch by SKIPPED, and skip as many IDs of jobs, postings and exchanges, which agents, files or users may
    know. For a restored database, while no scheduler leads."""
    with transaction(conn):
        conn.execute(text("UPDATE leader SET epoch = epoch + :count, holder = ''"), {"count": SKIPPED})
        conn.execute(
            text(
                "UPDATE cluster SET next_job = next_job + :count, next_posting = next_posting + :count,"
                " next_exchange = next_exchange + :count"
            ),
            {"count": SKIPPED},
        )


def holder(conn: Connection) -> Lease:
    """Who holds the lease, or held it last."""
    return _read_lease(conn)


def _read_lease(conn: Connection) -> Lease:
    row = _ask(conn, _HOLDER, {})
    if row is None:
        raise Unavailable("the table leader has no row; has the database been migrated?")
    found = Lease(*row)
    if found.in_session:
        conn.info[_SEEN] = found.epoch
    return found
