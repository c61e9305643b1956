"""The store as the service uses it: the engine's writer in one epoch, the API's reads, the lease."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine

from scheduler_service import store
from scheduler_service.core.model import Job, JobEvent, Node
from scheduler_service.core.model.tenants.exchange import Exchange, Posting
from scheduler_service.core.state.journal import Change
from scheduler_service.run.ports import CommitRefused, DatabaseOlder, LeadershipLost, NotCommitted, RequestKnown
from scheduler_service.run.read_model import View

P = ParamSpec("P")
R = TypeVar("R")

FILE_CALLS = 2
"""Calls at once that read or write files of users: a piece is large, and nobody waits for one."""


class Writer:
    """run.ports.Writer over the store, in one epoch."""

    def __init__(self, engine: Engine, epoch: int, commit_no: int) -> None:
        self._engine = engine
        self._epoch = epoch
        self._commit_no = commit_no
        self._connection = engine.connect()
        self._broke = False
        """Whether a connection was lost since the database was last known to hold all that was committed."""

    def commit(self, changes: Sequence[Change], events: Sequence[JobEvent]) -> int:
        if self._broke:
            self._look_again()
        try:
            self._commit_no = self._write(changes, events)
        except store.DuplicateRequest as known:
            raise RequestKnown(str(known), known.constraint) from known
        except store.Rejected as refused:
            if refused.constraint.endswith("_present"):  # a row that is in the state is not in the database
                raise LeadershipLost(str(refused)) from refused
            raise CommitRefused(str(refused), refused.constraint) from refused
        except store.Fenced as fenced:
            raise LeadershipLost(str(fenced)) from fenced
        except store.Unavailable as lost:
            self._broke = True
            raise NotCommitted(str(lost)) from lost
        except store.CommitUnknown as unknown:
            try:
                became = self._outcome()
            except store.Forgotten as older:
                raise DatabaseOlder(str(older)) from unknown
            except store.StoreError as error:
                raise LeadershipLost(str(error)) from unknown
            if became == "not committed":
                raise NotCommitted(str(unknown)) from unknown
            self._commit_no += 1
        return self._commit_no

    def _write(self, changes: Sequence[Change], events: Sequence[JobEvent]) -> int:
        return store.commit(self._connection, self._epoch, changes, events)

    def _outcome(self) -> str:
        return store.outcome(self._engine, self._epoch, self._commit_no)

    def _look_again(self) -> None:
        """A database that was away may be another when it is back: one that was restored, or a copy that lagged behind."""
        try:
            self._outcome()
        except store.Unavailable as lost:
            raise NotCommitted(str(lost)) from lost
        except store.Forgotten as older:
            raise DatabaseOlder(str(older)) from older
        except store.StoreError as other:
            raise LeadershipLost(str(other)) from other
        self._broke = False

    def find_requests(self, requests: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        with _database_errors():
            return store.find_requests(self._connection, requests)

    def find_posted(self, requests: Collection[tuple[int, str]]) -> dict[tuple[int, str], Posting]:
        with _database_errors():
            return store.find_posted(self._connection, requests)

    def find_accepted(self, requests: Collection[tuple[int, str]]) -> dict[tuple[int, str], Exchange]:
        with _database_errors():
            return store.find_accepted(self._connection, requests)

    def close(self) -> None:
        self._connection.close()


class _Reads:
    """Reads of the store, each on a connection of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def _read(self, function: Callable[Concatenate[Any, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        with _database_errors(), self._engine.connect() as connection:
            return function(connection, *args, **kwargs)


def _read_by(function: Callable[Concatenate[Connection, P], R]) -> Callable[Concatenate[_Reads, P], R]:
    """A method that reads by a function of the store, with its arguments."""

    def read(reads: _Reads, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return reads._read(function, *args, **kwargs)

    return read


class Reader(_Reads):
    """Reads for the API; thread-safe, blocking. Raise NotCommitted without a database."""

    find_job = _read_by(store.find_job)
    find_ends = _read_by(store.find_ends)
    find_ended_before = _read_by(store.find_ended_before)
    find_run = _read_by(store.find_run)
    list_jobs = _read_by(store.list_jobs)
    count_jobs = _read_by(store.count_jobs)
    list_runs = _read_by(store.list_runs)
    story = _read_by(store.story)
    find_tokens = _read_by(store.find_tokens)

    @property
    def market(self) -> "MarketReader":
        return MarketReader(self._engine)

    def nodes(self) -> Mapping[int, Node]:
        """Every node by its id."""
        return {node.id: node for node in self._read(store.list_nodes)}

    def view_of_nodes(self) -> View:
        """Return the nodes and their free resources as of the last commit, without any jobs."""
        loaded = self._read(store.load, jobs=False)
        return View(live_rows(loaded), loaded.commit_no)

    def leader(self) -> str:
        """Return HOST:PORT of the holder of a valid lease; empty if no scheduler holds one."""
        return _address_of(self._read(store.holder))


class MarketReader(_Reads):
    """Reads of the cell exchange: current and past postings and exchanges."""

    posting = _read_by(store.find_posting)
    exchanges = _read_by(store.find_exchanges)
    list_postings = _read_by(store.list_postings)
    list_exchanges = _read_by(store.list_exchanges)
    live_of_offers = _read_by(store.live_of_offers)
    ledger = _read_by(store.list_ledger)
    surpluses = _read_by(store.list_surpluses)

    def find_posted(self, vc: int, request_id: str) -> Posting | None:
        """The posting that the request made."""
        return self._read(store.find_posted, [(vc, request_id)]).get((vc, request_id))

    def find_accepted(self, vc: int, request_id: str) -> Exchange | None:
        """The exchange that a virtual cluster made by accepting a posting with this request_id."""
        return self._read(store.find_accepted, [(vc, request_id)]).get((vc, request_id))

    def virtual_clusters(self) -> dict[int, str]:
        """The names of those that there are, by id."""
        return {vc.id: vc.name for vc in self._read(store.list_vcs)}


class UserFiles(_Reads):
    """Snapshots and results; thread-safe, blocking. Raise NotCommitted without a database, TooMuchStored, and DamagedFile."""

    def __init__(self, engine: Engine, limits: "FileLimits") -> None:
        super().__init__(engine)
        self.limits = limits

    use = _read_by(store.use_file)
    put = _read_by(store.put_piece)
    piece = _read_by(store.read_piece)
    expire = _read_by(store.expire_files)


@dataclass(frozen=True)
class FileLimits:
    """In bytes; 0: none are taken."""

    snapshot: int = 100 << 20
    result: int = 16 << 20
    of_user: int = 2 << 30
    """All of a user's together."""


class Lease:
    """run.leadership.Lease over the store."""

    def __init__(self, engine: Engine, holder: str, ttl: float, address: str) -> None:
        self._engine = engine
        self._holder = holder
        self._ttl = ttl
        self._address = address
        self.above = 0
        """The highest epoch that an agent was found to have obeyed where the database knew of none as high."""

    def take(self) -> int | None:
        with self._engine.connect() as connection:
            return store.take(connection, self._holder, self._ttl, address=self._address, above=self.above)

    def renew(self, epoch: int) -> bool:
        with self._engine.connect() as connection:
            return store.renew(connection, epoch, self._ttl)

    def release(self, epoch: int) -> None:
        with self._engine.connect() as connection:
            store.release(connection, epoch)

    def leader(self) -> str:
        with self._engine.connect() as connection:
            return _address_of(store.holder(connection))


def _address_of(lease: store.Lease) -> str:
    """Return the address of the lease's holder; empty if the lease has expired."""
    return lease.address if lease.valid else ""


def load_and_open(engine: Engine, epoch: int) -> tuple[store.Loaded, Writer]:
    """Load the state for a new leader, and open its writer."""
    with engine.connect() as connection:
        loaded = store.load(connection)
    return loaded, Writer(engine, epoch, loaded.commit_no)


def live_rows(loaded: store.Loaded) -> list[tuple[str, Any, Any]]:
    """Return the loaded rows as (table, key, row), ordered so that each row follows those that it refers to."""
    return [
        *(("node", row.id, row) for row in loaded.nodes),
        *(("device", (row.node, row.index), row) for row in loaded.devices),
        *(("virtual_cluster", row.id, row) for row in loaded.vcs),
        *(("cell_binding", (row.pool, row.level, row.index), row) for row in loaded.bindings),
        *(("exchange_posting", row.id, row) for row in loaded.market.postings),
        *(("exchange", row.id, row) for row in loaded.market.exchanges),
        *(("exchange_surplus", row.vc, row) for row in loaded.market.surpluses),
        *(("idle_cells", (row.vc, row.pool, row.level), row) for row in loaded.market.idle),
        *(("job", row.id, row) for row in loaded.jobs),
        *(("run", row.key, row) for row in loaded.runs),
        *(("share_group", row.id, row) for row in loaded.share_groups),
        *(("operation", row.id, row) for row in loaded.operations),
        *(("earmark", row.id, row) for row in loaded.earmarks),
        *(("memo", (row.policy, row.subject), row) for row in loaded.memos),
        *(("history", (row.user, row.script), row) for row in loaded.history),
    ]


@contextmanager
def _database_errors() -> Iterator[None]:
    try:
        yield
    except (store.TooMuchStored, store.DamagedFile):
        raise
    except store.DATABASE_ERRORS as error:
        raise NotCommitted(str(error if isinstance(error, store.StoreError) else store.Unavailable(error))) from error


class Engines:
    """Connections by use: to write, to read, for the lease, for callers' tokens, for users' files."""

    def __init__(self, url: str, lease_seconds: float) -> None:
        """A leader that is stopped inside a commit holds the leader's row, for which its successor waits: no longer than for
        its lease, and no shorter, or a leader that is merely slow would lose its connection before it loses the lease."""
        self.writer = store.open_engine(url, writer=True, connections=2, idle_seconds=lease_seconds)
        self.reader = store.open_engine(url, connections=5)
        self.lease = store.open_engine(url, connections=1, lease=True)
        self.tokens = store.open_engine(url, connections=1)
        self.files = store.open_engine(url, connections=FILE_CALLS)

    def close(self) -> None:
        for engine in (self.writer, self.reader, self.lease, self.tokens, self.files):
            engine.dispose()
