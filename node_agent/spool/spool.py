"""The agent's durable state: its runs, the reports not yet acknowledged, and the scheduler that it obeys.

SQLite, one file. With `synchronous=OFF`, a write reaches the kernel, which survives the agent's death but not the machine's.
That suffices, since a reboot ends every run and changes the boot ID: a spool of an earlier boot is discarded unread. So a
write costs some 50 microseconds, and is made inline; `write_together` makes several into one. A run's change and its report are
one transaction. All runs are also held in memory, which always agrees with the file.

Each spool has its own ID, which is part of the boot ID: a new spool means that older runs are gone.
"""

import contextlib
import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from node_agent.errors import StateUnusable
from node_agent.run_state.events import Exited, Report, RunEvent
from node_agent.run_state.model import RunKey, RunPhase, RunRecord, short_id
from node_agent.spool import identity, tables
from node_agent.spool.identity import Identity

_MAGIC = b"SQLite format 3\0"
KEEP_ENDED = 24 * 3600.0
"""Seconds for which an ended run is remembered, so that its start, sent again, does not run it twice."""


class Spool:
    """The only writer and reader of its file. Create it with `runs.spool_opening.open_spool`."""

    def __init__(self, path: Path, db: sqlite3.Connection, spool_id: str, held: Identity) -> None:
        self.path = path
        self._db = db
        self._identity = held
        self._unwritten: _Unwritten | None = None
        self.kernel_boot = held.kernel_boot
        self.boot_id = f"{held.kernel_boot}/{spool_id}"
        self.short_id = short_id(spool_id)
        self._read()

    def _read(self) -> None:
        db = self._db
        self._runs = {record.key: record for record in map(tables.record, db.execute("SELECT * FROM run"))}
        self._reports = {
            sequence: Report(sequence, RunKey(job_id, run, task), tables.event(event))
            for sequence, job_id, run, task, event in db.execute("SELECT * FROM report ORDER BY sequence")
        }
        self._next_sequence = int(self._meta("next_sequence", "1"))

    @property
    def runs(self) -> Mapping[RunKey, RunRecord]:
        return MappingProxyType(self._runs)

    def live(self) -> list[RunRecord]:
        return [record for record in self._runs.values() if record.phase is not RunPhase.ENDED]

    def runs_to_report(self) -> tuple[RunRecord, ...]:
        """Return the runs that a scheduler must know when the agent connects: those that have not ended, or have a report that
        is not acknowledged. All others have ended for the scheduler as well."""
        waiting = {report.key for report in self._reports.values()}
        return tuple(r for r in self._runs.values() if r.phase is not RunPhase.ENDED or r.key in waiting)

    def pending(self, after: int = 0) -> list[Report]:
        """Return the reports that are not acknowledged, in order."""
        return [report for sequence, report in self._reports.items() if sequence > after]

    def is_failure(self, report: Report) -> bool:
        """Whether the run's end may be due to a broken device: it failed, and had not been told to stop."""
        ended, record = report.event, self._runs.get(report.key)
        told = record is not None and record.stop_received is not None
        return isinstance(ended, Exited) and bool(ended.code or ended.signal or ended.unknown) and not (ended.yielded or told)

    @property
    def cluster(self) -> tuple[str, int]:
        """The cluster and the epoch that were obeyed last; initially ("", 0)."""
        return self._identity.cluster_id, self._identity.epoch

    @property
    def seal(self) -> bytes:
        """The seal of that epoch, from its scheduler."""
        return bytes.fromhex(self._identity.seal)

    def obey(self, cluster_id: str, epoch: int, seal: bytes = b"") -> None:
        self._hold(replace(self._identity, cluster_id=cluster_id, epoch=epoch, seal=seal.hex()))

    @property
    def node(self) -> str:
        """Name of the node that owns these runs and reports; "" if not set yet."""
        return self._identity.node

    def name(self, node: str) -> None:
        self._hold(replace(self._identity, node=node))

    def _hold(self, held: Identity) -> None:
        if held != self._identity:
            try:
                identity.write(self.path.with_name(identity.FILE), held)
            except OSError as error:
                raise StateUnusable(path=self.path.parent, why=error.strerror) from error
            self._identity = held

    def write_together(self) -> AbstractContextManager[object]:
        """Write everything inside as one transaction. Effects that depend on it must wait until it has ended.

        If something inside fails, nothing was written, and memory is as it was before. If a run changes several times inside,
        only its last state is written.
        """
        return self._transaction()

    def remember(self, records: Iterable[RunRecord]) -> None:
        """Keep records without a report, all in one transaction."""
        with self._transaction() as new:
            for record in records:
                self._runs[record.key] = new.runs[record.key] = record

    def report(self, record: RunRecord, *events: RunEvent) -> None:
        """Keep a record together with the reports of its change."""
        with self._transaction() as new:
            self._runs[record.key] = new.runs[record.key] = record
            for event in events:
                report = Report(self._next_sequence, record.key, event)
                self._next_sequence += 1
                self._reports[report.sequence] = report
                new.reports.append(report)

    def acknowledge(self, sequence: int) -> None:
        """Forget the reports up to this one: the scheduler has committed them."""
        done = [number for number in self._reports if number <= sequence]
        if done:
            with self._transaction() as new:
                new.acknowledged = sequence
                for number in done:
                    del self._reports[number]

    def prune(self, now: float) -> int:
        """Forget acknowledged runs that ended long before `now` (seconds since 1970); return how many."""
        waiting = {report.key for report in self._reports.values()}
        old = [
            r.key
            for r in self._runs.values()
            if r.ended_at is not None and r.ended_at < now - KEEP_ENDED and r.key not in waiting
        ]
        with self._transaction() as new:
            for key in old:
                del self._runs[key]
            new.forgotten += old
        return len(old)

    def close(self) -> None:
        self._db.close()

    @property
    def acknowledged(self) -> int:
        """The last report that a scheduler has acknowledged; 0: none."""
        return next(iter(self._reports), self._next_sequence) - 1

    def discard(self) -> None:
        """End this spool. The next one that is opened here is a new one, and obeys the same scheduler."""
        self.close()
        remove_files(self.path)

    def _meta(self, name: str, default: str) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return default if row is None else str(row[0])

    @contextmanager
    def _transaction(self) -> Iterator["_Unwritten"]:
        """Change memory inside; write the file at the end, in one transaction."""
        if self._unwritten is not None:  # inside `write_together`
            yield self._unwritten
            return
        new = self._unwritten = _Unwritten()
        try:
            yield new
            if new:
                self._db.execute("BEGIN IMMEDIATE")
                new.write(self._db, self._next_sequence)
                self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:  # SQLite itself has ended it if the disk is full
                self._db.execute("ROLLBACK")
            self._read()
            if isinstance(error, sqlite3.OperationalError):
                raise StateUnusable(path=self.path.parent, why=error) from error
            raise
        finally:
            self._unwritten = None


@dataclass(slots=True)
class _Unwritten:
    """The changes of a transaction."""

    runs: dict[RunKey, RunRecord] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    acknowledged: int = 0
    forgotten: list[RunKey] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.runs or self.reports or self.acknowledged or self.forgotten)

    def write(self, db: sqlite3.Connection, next_sequence: int) -> None:
        if self.runs:
            db.executemany(f"INSERT OR REPLACE INTO run VALUES ({tables.PLACES})", map(tables.row, self.runs.values()))
        if self.acknowledged:
            db.execute("DELETE FROM report WHERE sequence <= ?", (self.acknowledged,))
        if self.reports:
            rows = [(report.sequence, *report.key, tables.event_text(report.event)) for report in self.reports]
            db.executemany("INSERT INTO report VALUES (?, ?, ?, ?, ?)", rows)
            db.execute("INSERT OR REPLACE INTO meta VALUES ('next_sequence', ?)", (str(next_sequence),))
        if self.forgotten:
            db.executemany("DELETE FROM run WHERE job_id = ? AND run = ? AND task = ?", self.forgotten)


def check_format(path: Path) -> None:
    """Raise ValueError if a file is there that is no database. SQLite takes a file of one byte, or of none, for a new one."""
    if path.exists():
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ValueError("file is not a database")


def set_aside(path: Path) -> Path:
    """Rename the spool, and the files that SQLite keeps next to it, to a name that is free."""
    number = next(number for number in itertools.count(1) if not path.with_name(f"{path.name}.damaged-{number}").exists())
    aside = path.with_name(f"{path.name}.damaged-{number}")
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def remove_files(path: Path) -> None:
    """Remove the files, the spool first: without it, those that SQLite keeps next to it mean nothing."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
