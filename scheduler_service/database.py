"""The store behind the ports of `run`: PostgreSQL in one epoch, for one leader."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Engine

from scheduler_service import store
from scheduler_service.core.job import Job, JobEvent, JobState, Run
from scheduler_service.core.journal import Change
from scheduler_service.run.ports import CommitRefused, LeadershipLost, NotCommitted, RequestKnown


class Writer:
    """run.ports.Writer over PostgreSQL, in one epoch."""

    def __init__(self, engine: Engine, epoch: int, commit_no: int) -> None:
        self._engine = engine
        self._epoch = epoch
        self._commit_no = commit_no
        self._connection = engine.connect()

    def commit(self, changes: Sequence[Change], events: Sequence[JobEvent]) -> int:
        try:
            self._commit_no = store.commit(self._connection, self._epoch, changes, events)
        except store.DuplicateRequest as known:
            raise RequestKnown(str(known)) from known
        except store.Rejected as refused:
            if refused.constraint.endswith("_present"):  # a row that is in the state is not in the database
                raise LeadershipLost(str(refused)) from refused
            raise CommitRefused(str(refused)) from refused
        except store.Fenced as fenced:
            raise LeadershipLost(str(fenced)) from fenced
        except store.Unavailable as lost:
            raise NotCommitted(str(lost)) from lost
        except store.CommitUnknown as unknown:
            try:
                became = store.outcome(self._engine, self._epoch, self._commit_no)
            except store.StoreError as error:
                raise LeadershipLost(str(error)) from unknown
            if became == "not committed":
                raise NotCommitted(str(unknown)) from unknown
            self._commit_no += 1
        return self._commit_no

    def find_requests(self, requests: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        with _database_errors():
            return store.find_requests(self._connection, requests)

    def close(self) -> None:
        self._connection.close()


class Reader:
    """run.ports.Reader over PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find_job(self, job_id: int) -> tuple[Job, Run | None] | None:
        with _database_errors(), self._engine.connect() as connection:
            return store.find_job(connection, job_id)

    def list_jobs(self, states: Sequence[JobState], before_id: int | None, limit: int) -> list[tuple[Job, Run | None]]:
        with _database_errors(), self._engine.connect() as connection:
            return store.list_jobs(connection, states, before_id, limit)

    def story(self, job_id: int) -> list[tuple[JobEvent, int]]:
        with _database_errors(), self._engine.connect() as connection:
            return store.story(connection, job_id)


class Lease:
    """run.leader.Lease over PostgreSQL."""

    def __init__(self, engine: Engine, holder: str, ttl: float, address: str) -> None:
        self._engine = engine
        self._holder = holder
        self._ttl = ttl
        self._address = address

    def take(self) -> int | None:
        with self._engine.connect() as connection:
            return store.take(connection, self._holder, self._ttl, address=self._address)

    def renew(self, epoch: int) -> bool:
        with self._engine.connect() as connection:
            return store.renew(connection, epoch, self._ttl)

    def release(self, epoch: int) -> None:
        with self._engine.connect() as connection:
            store.release(connection, epoch)


@contextmanager
def _database_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise NotCommitted(str(error)) from error


class Engines:
    """Connections by use: one that writes, some that read, one for the lease."""

    def __init__(self, url: str) -> None:
        self.writer = store.open_engine(url, writer=True, connections=2)
        self.reader = store.open_engine(url, connections=5)
        self.lease = store.open_engine(url, connections=1)

    def close(self) -> None:
        for engine in (self.writer, self.reader, self.lease):
            engine.dispose()
