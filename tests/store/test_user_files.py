"""Files of users: pieces that follow on each other, limits, digests, and what is deleted when."""

import hashlib
from dataclasses import replace

import pytest

from scheduler_service import store
from scheduler_service.core.model import JobState
from scheduler_service.store import UserFile
from tests.store import make
from tests.store.contract import Db

DATA = b"0123456789" * 3
NAME = hashlib.sha256(DATA).hexdigest()
T = make.T


def put(db: Db, *pieces: bytes, owner: str = "ann", name: str = NAME, now: int = T, **more: object) -> UserFile:
    size, at = sum(map(len, pieces)), 0
    for piece in pieces:
        found = db.put_piece(owner, name, size, at, piece, now, **more)
        at += len(piece)
    return found


def whole(db: Db, owner: str = "ann", name: str = NAME) -> bytes:
    data = b""
    while (found := db.read_piece(owner, name, len(data))) is not None and found[0]:
        data += found[0]
    return data


def test_pieces_become_a_file(db: Db) -> None:
    assert db.use_file("ann", NAME, T) is None
    assert db.put_piece("ann", NAME, 30, 0, DATA[:10], T, NAME) == UserFile(30, 10, False)
    assert db.read_piece("ann", NAME, 0) is None, "it is not complete"
    assert db.put_piece("ann", NAME, 30, 20, DATA[20:], T, NAME) == UserFile(30, 10, False), "it does not follow on"
    assert db.put_piece("ann", NAME, 30, 0, DATA[:10], T, NAME) == UserFile(30, 10, False), "a repeat"
    assert db.use_file("ann", NAME, T) == UserFile(30, 10, False)
    assert db.put_piece("ann", NAME, 30, 10, DATA[10:], T, NAME) == UserFile(30, 30, True)
    assert db.put_piece("ann", NAME, 30, 10, DATA[10:], T, NAME) == UserFile(30, 30, True), "a repeat"
    assert whole(db) == DATA
    assert db.read_piece("ann", NAME, 30) == (b"", 30)
    assert db.use_file("bob", NAME, T) is None, "it is ann's"
    assert db.read_piece("bob", NAME, 0) is None


def test_more_than_its_size_is_not_stored(db: Db) -> None:
    assert db.put_piece("ann", NAME, 5, 0, DATA, T) == UserFile(5, 0, False)
    assert db.use_file("ann", NAME, T) is None


def test_a_piece_that_does_not_follow_on_leaves_no_trace(db: Db) -> None:
    assert db.put_piece("ann", NAME, 1 << 40, 10, DATA, T, most=50) == UserFile(1 << 40, 0, False)
    assert db.use_file("ann", NAME, T) is None, "nobody has looked at how much ann may store"


def test_content_that_is_not_what_its_name_says(db: Db) -> None:
    with pytest.raises(store.DamagedFile, match="damaged on its way"):
        put(db, DATA[:10], DATA[:10], DATA[:10] + b"x", digest=NAME)
    assert db.use_file("ann", NAME, T) is None
    assert put(db, DATA, digest=NAME).complete


def test_what_a_user_may_store(db: Db) -> None:
    put(db, DATA, most=50)
    with pytest.raises(store.TooMuchStored, match="The files of ann have 30 bytes, this one has 21"):
        put(db, b"x" * 21, name="other", most=50)
    assert db.use_file("ann", "other", T) is None
    assert put(db, b"x" * 20, name="other", most=50).complete
    assert put(db, b"x" * 21, owner="bob", name="other", most=50).complete


def test_what_no_job_needs_is_deleted(db: Db) -> None:
    def kept() -> list[str]:
        names = ("live", "recent", "old", "new", "result-1.1", "result-2.3", "result-3.1", "result-33.1")
        return [name for name in names if db.read_piece("ada", name, 0) is not None]

    epoch = db.take("a", 60)
    for name in ("live", "recent", "old", "result-1.1", "result-3.1", "result-33.1"):
        put(db, DATA, owner="ada", name=name, now=T)
    put(db, DATA, owner="ada", name="new", now=T + 1000)

    def job(number: int, snapshot: str, ended: int | None) -> object:
        spec = replace(make.SPEC, snapshots=(snapshot,))
        state = JobState.RUNNING if ended is None else JobState.SUCCEEDED
        return make.job(number, spec=spec, state=state, ended_us=ended)

    rows = [make.CLUSTER, job(1, "live", None), job(3, "recent", T + 900), job(5, "old", T + 100)]
    db.commit(epoch, make.new(*rows), [])
    assert db.expire_files(T + 500) == 2
    assert kept() == ["live", "recent", "new", "result-1.1", "result-3.1"]
    assert db.expire_files(T + 500) == 0
