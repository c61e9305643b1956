"""Opens spools: replaces those of an earlier boot, and sets damaged ones aside."""

import logging
import sqlite3
import time
import uuid
from dataclasses import replace
from pathlib import Path

from node_agent.errors import SpoolDamaged, StateUnusable
from node_agent.processes import stray_processes
from node_agent.processes.process_groups import boot_id
from node_agent.spool import identity, tables
from node_agent.spool.identity import Identity
from node_agent.spool.spool import Spool, check_format, remove_files, set_aside

log = logging.getLogger(__name__)


def open_spool(path: Path, *, kernel_boot: str | None = None) -> Spool:
    """Open or create a spool. One from before the machine's last boot is replaced by a new one, which obeys the same
    scheduler: its runs are gone. One that cannot be read is set aside, and a new one takes its place."""
    kernel_boot = kernel_boot or boot_id()
    try:
        held = identity.read(path.with_name(identity.FILE))
        if held is not None and held.kernel_boot == kernel_boot:
            try:
                return _open_database(path, held)
            except tables.Newer as error:
                raise SpoolDamaged(path=path, why=error) from error
            except sqlite3.OperationalError:  # the disk is full, or cannot be read: nothing is wrong with the spool
                raise
            except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
                damage = str(error)
        elif held is not None:
            damage = ""
            remove_files(path)
            held = replace(held, kernel_boot=kernel_boot)
        else:
            damage = f"{identity.FILE} beside it is missing" if path.exists() else ""
            held = Identity(kernel_boot)
        aside = set_aside(path) if damage else path
        identity.write(path.with_name(identity.FILE), held)
        spool = _open_database(path, held)
    except (OSError, sqlite3.Error) as error:
        raise StateUnusable(path=path.parent, why=error) from error
    if damage:
        log.warning(
            "The spool %s cannot be used (%s). It is set aside as %s, and a new one takes its place, as after a reboot: runs "
            "that are still alive are killed, and their jobs go back to their queues. Runs found alive: %s",
            path,
            damage,
            aside.name,
            ", ".join(sorted(set(stray_processes.find(path.parent, spool.short_id).values()))) or "none",
        )
    return spool


def forget(spool: Spool) -> Spool:
    """Discard the spool and the cluster that it obeys; return the new spool that takes its place."""
    path, kernel_boot = spool.path, spool.kernel_boot
    spool.discard()
    identity.write(path.with_name(identity.FILE), Identity(kernel_boot))
    return open_spool(path, kernel_boot=kernel_boot)


def _open_database(path: Path, held: Identity) -> Spool:
    """Raises OSError, sqlite3.Error, and what reading broken rows raises."""
    check_format(path)
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=OFF")
        tables.make(db)
        db.execute("INSERT OR IGNORE INTO meta VALUES ('spool_id', ?)", (uuid.uuid4().hex,))
        (spool_id,) = db.execute("SELECT value FROM meta WHERE name = 'spool_id'").fetchone()
        spool = Spool(path, db, spool_id, held)
        spool.prune(time.time())
    except BaseException:
        db.close()
        raise
    return spool
