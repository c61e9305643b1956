"""Files of users: snapshots that jobs name, and results that they leave, in pieces.

They are no part of the state: commits do not refer to them, and the epoch does not guard them. A file is named by its content,
or by a run that writes it once, so a late writer writes the same. Every function is a transaction of its own and
raises Unavailable when the database cannot be asked.
"""

import hashlib
from typing import NamedTuple

from sqlalchemy import Connection, and_, delete, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from scheduler_service.core.model.values import Micros
from scheduler_service.store.connect import reading as transaction
from scheduler_service.store.errors import DamagedFile, TooMuchStored
from scheduler_service.store.schema.tables import user_file, user_file_piece

_f, _p = user_file.c, user_file_piece.c
_STATUS = (_f.size, _f.stored, _f.complete)


class UserFile(NamedTuple):
    size: int
    stored: int
    """Bytes that have arrived."""
    complete: bool


def use_file(conn: Connection, owner: str, name: str, now: Micros) -> UserFile | None:
    """Mark a file as used now, and return its status; None if nothing of it is stored."""
    change = update(user_file).where(_f.owner == owner, _f.name == name).values(used_us=now).returning(*_STATUS)
    with transaction(conn):
        found = conn.execute(change).one_or_none()
    return None if found is None else UserFile(*found)


def put_piece(
    conn: Connection, owner: str, name: str, size: int, at: int, data: bytes, now: Micros, digest: str = "", most: int = 0
) -> UserFile:
    """Stores a piece if it follows on what is stored; otherwise nothing is stored, and no row is made. `digest`: the SHA-256
    that the whole must have; `most`: the bytes that all files of the owner may have together, 0 for any number.

    Raises TooMuchStored, and DamagedFile where the digest is another, of which nothing is kept then.
    """
    of_file = and_(_f.owner == owner, _f.name == name)
    with transaction(conn):
        new = {"owner": owner, "name": name, "size": size, "stored": 0, "complete": False, "used_us": now}
        fits = at + len(data) <= size
        if at == 0 and fits:
            conn.execute(upsert(user_file).values(new).on_conflict_do_nothing())
        found = conn.execute(select(*_STATUS).where(of_file).with_for_update()).one_or_none()
        row = UserFile(size, 0, False) if found is None else UserFile(*found)
        if row.complete or row.stored != at or row.size != size or not fits:
            return row
        if at == 0 and most:
            used = int(conn.execute(select(func.coalesce(func.sum(_f.size), 0)).where(_f.owner == owner)).scalar_one())
            if used > most:
                raise TooMuchStored(owner=owner, used=used - size, size=size, most=most)
        conn.execute(insert(user_file_piece).values(owner=owner, name=name, at=at, data=data))
        stored = at + len(data)
        damaged = stored == size and digest and _digest(conn, owner, name) != digest
        if damaged:
            conn.execute(delete(user_file).where(of_file))
        else:
            row = UserFile(size, stored, stored == size)
            conn.execute(update(user_file).where(of_file).values(stored=stored, complete=row.complete, used_us=now))
    if damaged:
        raise DamagedFile(name=name)
    return row


def _digest(conn: Connection, owner: str, name: str) -> str:
    found = hashlib.sha256()
    pieces = select(_p.data).where(_p.owner == owner, _p.name == name).order_by(_p.at)
    for (data,) in conn.execute(pieces, execution_options={"yield_per": 8}):
        found.update(data)
    return found.hexdigest()


def read_piece(conn: Connection, owner: str, name: str, at: int) -> tuple[bytes, int] | None:
    """Return the bytes from this offset to the end of its piece at most, and the file's size; None if the file is missing or
    incomplete. Empty at the end."""
    piece = select(_p.at, _p.data).where(_p.owner == owner, _p.name == name, _p.at <= at).order_by(_p.at.desc()).limit(1)
    with transaction(conn):
        size = conn.execute(select(_f.size).where(_f.owner == owner, _f.name == name, _f.complete)).scalar_one_or_none()
        found = None if size is None else conn.execute(piece).one_or_none()
    if size is None or found is None:
        return None
    return bytes(found.data)[at - found.at :], size


# Joins by equality: PostgreSQL hashes these, however many jobs there are.
_EXPIRE = text("""
    WITH recent AS (SELECT id, user_name, spec_more FROM job WHERE ended_us IS NULL OR ended_us >= :before),
    needed AS (
        SELECT user_name, jsonb_array_elements_text(spec_more -> 'snapshots') AS name FROM recent WHERE spec_more ? 'snapshots'
        UNION SELECT user_name, 'result-' || id FROM recent)
    DELETE FROM user_file AS f WHERE used_us < :before
    AND NOT EXISTS (SELECT FROM needed AS n WHERE n.user_name = f.owner AND n.name = split_part(f.name, '.', 1))
""")


def expire_files(conn: Connection, before: Micros) -> int:
    """Deletes files that were last used before this time, except those of a job that lives or that ended after it: its result,
    and the snapshots that it names. How many."""
    with transaction(conn):
        return conn.execute(_EXPIRE, {"before": before}).rowcount
