"""Tokens as they are kept."""

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from scheduler_service import store
from scheduler_service.core.model.tokens import Role, Token

DIGEST, OTHER = b"a" * 32, b"b" * 32


def add(conn: Connection, digest: bytes = DIGEST, expires_us: int | None = None, subject: str = "ada") -> Token:
    return store.add_token(conn, digest, "abcdef", subject, Role.OPERATOR, 100, expires_us)


def test_a_token_is_found_by_its_hash_until_it_is_revoked(conn: Connection) -> None:
    made = add(conn, expires_us=200)
    assert made == Token(1, "ada", Role.OPERATOR, "abcdef", 100, 200, None)
    assert (made.has_expired(199), made.has_expired(200)) == (False, True)
    other = add(conn, OTHER)
    assert not other.has_expired(2**62)
    assert store.find_tokens(conn, [DIGEST, OTHER, b"c" * 32]) == {DIGEST: made, OTHER: other}
    assert store.find_tokens(conn, []) == {}
    revoked = store.revoke_token(conn, 1, 150)
    assert revoked == Token(1, "ada", Role.OPERATOR, "abcdef", 100, 200, 150)
    assert store.revoke_token(conn, 1, 160) == revoked, "it was revoked when it was first revoked"
    assert store.find_tokens(conn, [DIGEST, OTHER]) == {OTHER: other}
    assert store.list_tokens(conn) == [revoked, other]
    assert store.revoke_token(conn, 99, 150) is None


@pytest.mark.parametrize(
    ("constraint", "change"),
    [
        ("hash_is_sha256", {"digest": b"short"}),
        ("subject_given", {"subject": ""}),
        ("expires_after_it_was_made", {"expires_us": 100}),
        ("hash_once", {"digest": OTHER}),
    ],
)
def test_what_the_database_refuses(conn: Connection, constraint: str, change: dict[str, object]) -> None:
    add(conn, OTHER)
    with pytest.raises(store.Unavailable, match=constraint) as refused:
        add(conn, **change)  # type: ignore[arg-type]
    assert isinstance(refused.value.__cause__, IntegrityError)
