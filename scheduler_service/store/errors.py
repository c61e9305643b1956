"""Errors of the store: one tree of classes, whose docstrings are the error messages."""

from inspect import cleandoc
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy.exc import SQLAlchemyError

_NO_TABLE = "42P01"


def one_line(cause: object) -> str:
    """The driver's own words, without the line breaks of libpq and what SQLAlchemy adds for programmers."""
    said = getattr(cause, "orig", None) or cause
    if getattr(said, "sqlstate", None) == _NO_TABLE:
        return "Ebb's tables are not in this database yet; a scheduler makes them as it starts"
    return " ".join(str(said).split()).rstrip(".")


class StoreError(Exception):
    """Something is wrong with the store."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(cleandoc(type(self).__doc__ or type(self).__name__).format(**fields))


class Fenced(StoreError):
    """Another scheduler leads: epoch {epoch} is over, so nothing was committed. Step down: drop the state, refuse
    requests, and stand by until the lease can be taken again."""

    epoch: int

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        super().__init__(epoch=epoch)


class Rejected(StoreError):
    """The database refused the commit, and nothing of it was committed. Constraint: {constraint}. It said: {detail}
    Undo the step. If its events are committed one by one, only the one at fault is refused again."""

    constraint: str
    """The name of the constraint in `tables`; empty when a value itself could not be stored."""
    detail: str

    def __init__(self, constraint: str, detail: str) -> None:
        self.constraint = constraint
        self.detail = detail
        super().__init__(constraint=constraint or "none, a value cannot be stored", detail=detail)


REQUESTS = frozenset({"job_request_once", "exchange_posting_request_once", "exchange_request_once"})
"""The constraints by which a request_id makes one thing, however often it is sent."""


class DuplicateRequest(Rejected):
    """What was asked with this request_id exists already ({constraint}), so nothing was committed. It said: {detail}
    Undo the step, and answer the request with what `find_requests`, `find_posted` or `find_accepted` finds."""


class _Lost(StoreError):
    """PostgreSQL does not answer: {cause}"""

    cause: str

    def __init__(self, cause: object) -> None:
        self.cause = one_line(cause)
        super().__init__(cause=self.cause)


class Unavailable(_Lost):
    """PostgreSQL cannot be used now: {cause}. Nothing was changed. Try again once it answers; if it does not, see its log."""


class CommitUnknown(_Lost):
    """The connection to PostgreSQL was lost while COMMIT was on its way: {cause}. Whether it was committed is not known:
    ask `outcome`, then adopt or undo; if that cannot be answered either, drop the state and load it again."""


class Forgotten(StoreError):
    """The database is at commit {found}, and the scheduler had committed up to {known}: it came back from a backup, or from a
    copy that lagged behind. What it has lost is lost; drop the state, and load what there is."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(found=found, known=known)


class TooMuchStored(StoreError):
    """The files of {owner} have {used} bytes, this one has {size}, and together they may have {most}. What no job has used for
    a while is deleted; see operating.md#snapshots-and-results."""


class DamagedFile(StoreError):
    """The content of {name} is not what the name says: it was damaged on its way. Nothing of it is kept; send it again."""


class SchemaTooNew(StoreError):
    """The database is at schema revision {found}, which this version of the scheduler (up to {known}) does not know: a newer
    one has migrated it. Start that version or a later one; this one would not understand what is stored."""

    def __init__(self, found: str, known: str) -> None:
        super().__init__(found=found, known=known)


class EmbeddedError(StoreError):
    """The embedded PostgreSQL in {place} cannot be used: {problem}"""

    def __init__(self, place: Path | str, problem: str) -> None:
        super().__init__(place=place, problem=problem)


class InUse(EmbeddedError):
    """The data folder {place} is in use by process {pid}. Stop that process, or choose another data folder."""

    pid: int
    """0 when it could not be found out."""

    def __init__(self, place: Path, pid: int) -> None:
        self.pid = pid
        StoreError.__init__(self, place=place, pid=pid or "(unknown)")


DATABASE_ERRORS = (StoreError, SQLAlchemyError, psycopg.Error)
"""All that the database, its driver and the store raise. Anything else that comes from here is a fault of Ebb's."""
