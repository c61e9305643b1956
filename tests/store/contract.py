"""The store as its contract knows it: the same calls on PostgreSQL and on its twin in memory."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from sqlalchemy import Connection, text

from scheduler_service import store
from scheduler_service.core.model import JobState
from scheduler_service.store import memory
from scheduler_service.store.memory import Memory

WRITE = ("commit",)
EXCHANGE = (
    *("find_posting", "find_exchanges", "find_posted", "find_accepted", "list_postings", "list_exchanges", "live_of_offers"),
    *("list_ledger", "list_surpluses", "list_vcs"),
)
READ = (
    "load",
    "find_job",
    "find_run",
    "list_runs",
    "find_ends",
    "find_ended_before",
    "find_requests",
    "list_jobs",
    "count_jobs",
    "list_nodes",
    "story",
    *EXCHANGE,
)
FILES = ("use_file", "put_piece", "read_piece", "expire_files")
LEASE = ("take", "renew", "release", "holder")


class Db:
    """A migrated database with nothing in it."""

    commit: Callable[..., int]
    load: Callable[..., store.Loaded]
    find_job: Callable[..., Any]
    find_run: Callable[..., Any]
    list_runs: Callable[..., Any]
    find_ends: Callable[..., dict[int, JobState]]
    find_ended_before: Callable[..., list[int]]
    find_requests: Callable[..., Any]
    list_jobs: Callable[..., Any]
    count_jobs: Callable[..., int]
    list_nodes: Callable[..., Any]
    story: Callable[..., Any]
    find_posting: Callable[..., Any]
    find_exchanges: Callable[..., Any]
    find_posted: Callable[..., Any]
    find_accepted: Callable[..., Any]
    list_postings: Callable[..., Any]
    list_exchanges: Callable[..., Any]
    live_of_offers: Callable[..., Any]
    list_ledger: Callable[..., Any]
    list_surpluses: Callable[..., Any]
    list_vcs: Callable[..., Any]
    use_file: Callable[..., store.UserFile | None]
    put_piece: Callable[..., store.UserFile]
    read_piece: Callable[..., tuple[bytes, int] | None]
    expire_files: Callable[..., int]
    take: Callable[..., int | None]
    renew: Callable[..., bool]
    release: Callable[..., None]
    holder: Callable[..., store.Lease]
    outcome: Callable[..., str]

    def __init__(self, calls: ModuleType, writer: Any, reader: Any, engine: Any) -> None:
        for name, on in [
            *((name, writer) for name in WRITE),
            *((name, reader) for name in (*READ, *LEASE, *FILES)),
            ("outcome", engine),
        ]:
            setattr(self, name, partial(getattr(calls, name), on))

    def expire(self) -> None:
        """Lets the lease run out, as if time had passed."""
        raise NotImplementedError

    def set_back(self, seconds: int) -> None:
        """Sets the database's clock back, as the lease sees it."""
        raise NotImplementedError

    def empty(self) -> None:
        """Removes all rows, which is far quicker than another database for each example."""
        raise NotImplementedError

    def take_from_elsewhere(self, name: str) -> int | None:
        """`take` on a connection of its own, for threads."""
        raise NotImplementedError


class Postgres(Db):
    def __init__(self, writer: Connection, reader: Connection) -> None:
        super().__init__(store, writer, reader, reader.engine)
        self._reader = reader

    def _execute(self, statement: str) -> None:
        with self._reader.begin():
            self._reader.execute(text(statement))

    def expire(self) -> None:
        self._execute("UPDATE leader SET expires_at = clock_timestamp() - interval '1 microsecond'")

    def set_back(self, seconds: int) -> None:
        self._execute(f"UPDATE leader SET expires_at = expires_at + interval '{seconds} seconds'")

    def empty(self) -> None:
        exchange = "exchange_posting, exchange, exchange_ledger, exchange_surplus, idle_cells, virtual_cluster, cell_binding"
        rest = "cluster, node, job, run, device, earmark, memo, share_group, operation, history, job_event, user_file"
        self._execute(f"TRUNCATE {rest}, {exchange} CASCADE")

    def take_from_elsewhere(self, name: str) -> int | None:
        with self._reader.engine.connect() as conn:
            return store.take(conn, name, ttl=60)


class Twin(Db):
    def __init__(self) -> None:
        self._now = 1000.0
        self._memory = Memory(lambda: self._now)
        super().__init__(memory, self._memory, self._memory, self._memory)

    def expire(self) -> None:
        self._now = self._memory.expires_at

    def set_back(self, seconds: int) -> None:
        self._now -= seconds

    def empty(self) -> None:
        self._memory.tables = Memory().tables
        self._memory.files = {}

    def take_from_elsewhere(self, name: str) -> int | None:
        return memory.take(self._memory, name, ttl=60)
