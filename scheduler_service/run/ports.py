"""What the running service needs of its store. `app` puts the real one behind it; run imports no SQL."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from scheduler_service.core.model import Job, JobEvent, JobState, Node, Run, RunKey
from scheduler_service.core.model.access import Token
from scheduler_service.core.model.exchange import Exchange, ExchangeState, LedgerEntry, Posting, PostingState, Surplus
from scheduler_service.core.state.journal import Change
from scheduler_service.run.view import View


class NotCommitted(Exception):
    """The database cannot be used now, and nothing of the step is in it."""


class CommitRefused(Exception):
    """A constraint refused the step, and nothing of it is in the database."""


class RequestKnown(CommitRefused):
    """A request_id belongs to a job, a posting or an exchange that is in the database already."""


class LeadershipLost(Exception):
    """Another scheduler leads, or it cannot be found out what the database holds: drop the state and load it again."""


class DatabaseOlder(LeadershipLost):
    """The database came back without commits that it had answered for: what was told about those is known to others."""


class Writer(Protocol):
    """The only writer, used by the engine's thread alone."""

    def commit(self, changes: Sequence[Change], events: Sequence[JobEvent]) -> int:
        """Makes a step durable and returns its commit number.

        Raises NotCommitted, CommitRefused (RequestKnown), or LeadershipLost.
        """

    def find_requests(self, requests: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        """The jobs that these requests, each (user, request_id), made, ended or not. Raises NotCommitted."""

    def find_posted(self, requests: Collection[tuple[int, str]]) -> dict[tuple[int, str], Posting]:
        """The same for offers and requests of cells; each (virtual cluster, request_id)."""

    def find_accepted(self, requests: Collection[tuple[int, str]]) -> dict[tuple[int, str], Exchange]:
        """The same for exchanges that were made by accepting a posting."""


class MarketReader(Protocol):
    """What a Reader reads of cell exchange: what is on the board and what is not any more."""

    def posting(self, posting_id: int) -> Posting | None: ...

    def exchanges(self, exchange_ids: Collection[int]) -> list[Exchange]:
        """Those, and what is given in return for them."""

    def posted(self, vc: int, request_id: str) -> Posting | None:
        """The posting that the request made."""

    def accepted(self, vc: int, request_id: str) -> Exchange | None:
        """The exchange that a virtual cluster made by accepting a posting with this request_id."""

    def list_postings(self, states: Collection[PostingState], vc: int, before_id: int | None, limit: int) -> list[Posting]:
        """Newest first; vc 0: of all."""

    def list_exchanges(self, states: Collection[ExchangeState], vc: int, before_id: int | None, limit: int) -> list[Exchange]:
        """The same; of a virtual cluster those that it is a side of."""

    def live_of_offers(self, offers: Collection[int]) -> list[Exchange]:
        """Those that have some of these offers and are not over."""

    def ledger(self, vc: int, before_exchange: int | None, limit: int) -> list[LedgerEntry]:
        """What was booked for the newest exchanges, at most `limit` of them; vc 0: of all."""

    def surpluses(self) -> list[Surplus]: ...

    def virtual_clusters(self) -> Mapping[int, str]:
        """The names of those that there are, by id."""


class Reader(Protocol):
    """Reads for the API, on connections of their own; thread-safe, blocking. Raise NotCommitted without a database."""

    @property
    def market(self) -> MarketReader: ...

    def find_job(self, job_id: int) -> tuple[Job, tuple[Run, ...]] | None:
        """A job, and every task of its current or last run."""

    def find_ends(self, job_ids: Collection[int]) -> dict[int, JobState]:
        """How those of the jobs ended that have."""

    def find_run(self, key: RunKey) -> Run | None:
        """A task of any run of a job, ended or not."""

    def list_jobs(
        self, states: Sequence[JobState], before_id: int | None, limit: int, vc: str = "", user: str = "", name: str = ""
    ) -> list[tuple[Job, tuple[Run, ...]]]:
        """Newest first. Empty: of every virtual cluster, of all users, of any name."""

    def count_jobs(
        self, states: Sequence[JobState], before_id: int | None, most: int, vc: str = "", user: str = "", name: str = ""
    ) -> int:
        """How many of those that `list_jobs` lists there are; `most` are counted at most."""

    def story(self, job_id: int) -> list[tuple[JobEvent, int]]:
        """The job's events in order, each with its commit number."""

    def nodes(self) -> Mapping[int, Node]:
        """Every node by its id."""

    def view_of_nodes(self) -> View:
        """Nodes with what is free on them, as of the last commit. Of jobs it knows nothing."""

    def leader(self) -> str:
        """Where clients reach whoever holds a valid lease, HOST:PORT; empty when nobody does."""

    def find_tokens(self, digests: Collection[bytes]) -> Mapping[bytes, Token]:
        """Those of these SHA-256 that are tokens and not revoked; they may have expired."""
