"""Tokens of the API. The secret itself is never here: only its hash, and its last characters to recognise it by.

Operators write these rows, and no leader does: they are no part of the state, so no commit has to know of them. Every
function is a transaction of its own and raises Unavailable when the database cannot be asked.
"""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from scheduler_service.core.model.tokens import Role, Token
from scheduler_service.core.model.values import Micros
from scheduler_service.store.connect import reading as transaction
from scheduler_service.store.schema.tables import api_token

_t = api_token.c
_TOKEN = (_t.id, _t.subject, _t.role, _t.last_chars, _t.created_us, _t.expires_us, _t.revoked_us)


def add_token(
    conn: Connection, digest: bytes, last_chars: str, subject: str, role: Role, now: Micros, expires_us: Micros | None
) -> Token:
    """Keeps a new token, whose secret has this SHA-256."""
    values = {
        "hash": digest,
        "last_chars": last_chars,
        "subject": subject,
        "role": int(role),
        "created_us": now,
        "expires_us": expires_us,
    }
    with transaction(conn):
        return _token(conn.execute(insert(api_token).values(values).returning(*_TOKEN)).one())


def find_tokens(conn: Connection, digests: Collection[bytes]) -> dict[bytes, Token]:
    """Those of these hashes that hold: expired ones too, but none that was revoked."""
    query = select(*_TOKEN, _t.hash).where(_t.hash.in_(list(digests)), _t.revoked_us.is_(None))
    with transaction(conn):
        return {bytes(row.hash): _token(row) for row in conn.execute(query)}


def list_tokens(conn: Connection) -> list[Token]:
    """All that were ever made, in that order."""
    with transaction(conn):
        return [_token(row) for row in conn.execute(select(*_TOKEN).order_by(_t.id))]


def revoke_token(conn: Connection, token_id: int, now: Micros) -> Token | None:
    """Takes a token back, for good; one that was taken back stays as it is. None: there is no such token."""
    change = update(api_token).where(_t.id == token_id).values(revoked_us=func.coalesce(_t.revoked_us, now))
    with transaction(conn):
        row = conn.execute(change.returning(*_TOKEN)).one_or_none()
    return None if row is None else _token(row)


def _token(row: Sequence[Any]) -> Token:
    token_id, subject, role, last_chars, created_us, expires_us, revoked_us = row[: len(_TOKEN)]
    return Token(token_id, subject, Role(role), last_chars, created_us, expires_us, revoked_us)
