"""The Memory: a table of records for each table of the schema, the files of users, and the lease."""

import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from scheduler_service.store.memory.records import RecordTable
from scheduler_service.store.memory.rules import Rules, evaluator
from scheduler_service.store.schema import tables
from scheduler_service.store.writing.statements import WRITES


@dataclass
class File:
    """A file of a user."""

    size: int
    used_us: int
    data: bytearray = field(default_factory=bytearray)
    complete: bool = False


@cache
def _evaluator() -> sqlite3.Connection:
    return evaluator()


@cache
def _rules(table: str) -> Rules:
    """The rules of a table, which are the same for every Memory of the process."""
    return Rules(tables.metadata.tables[table], _evaluator())


class Memory:
    """A migrated database with nothing in it. Thread-safe; `clock` gives seconds, by which the lease expires."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.epoch = 0
        self.commit_no = 0
        self.checks_references = True
        """False: rows may refer to others that are not here."""
        self.files: dict[tuple[str, str], File] = {}
        self.holder, self.address, self.expires_at = "", "", clock() - 1
        keys = {name: writes.key for name, writes in WRITES.items()} | {"job_event": ("job_id", "commit_no", "line")}
        self.tables = {name: RecordTable(tables.metadata.tables[name], key, _rules(name)) for name, key in keys.items()}

    def connect(self) -> "Memory":
        """It is its own engine and every connection of it."""
        return self

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, *_: object) -> None:
        """Everything is kept."""

    def close(self) -> None:
        """Everything is kept."""
