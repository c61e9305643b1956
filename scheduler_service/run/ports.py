"""What the running service needs of its store. `app` puts the real one behind it; run imports no SQL."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from scheduler_service.core.access import Token
from scheduler_service.core.job import Job, JobEvent, JobState, Node, Run, RunKey
from scheduler_service.core.journal import Change
from scheduler_service.run.view import View


class NotCommitted(Exception):
    """The database cannot be used now, and nothing of the step is in it."""


class CommitRefused(Exception):
    """A constraint refused the step, and nothing of it is in the database."""


class RequestKnown(CommitRefused):
    """A submit's request_id belongs to a job that is in the database already."""


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
        ...

    def find_requests(self, requests: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        """The jobs that these requests, each (user, request_id), made, ended or not. Raises NotCommitted."""
        ...


class Reader(Protocol):
    """Reads for the API, on connections of their own; thread-safe, blocking. Raise NotCommitted without a database."""

    def find_job(self, job_id: int) -> tuple[Job, tuple[Run, ...]] | None:
        """A job, and every task of its current or last run."""
        ...

    def find_ends(self, job_ids: Collection[int]) -> dict[int, JobState]:
        """How those of the jobs ended that have."""
        ...

    def find_run(self, key: RunKey) -> Run | None:
        """A task of any run of a job, ended or not."""
        ...

    def list_jobs(
        self, states: Sequence[JobState], before_id: int | None, limit: int, vc: str = ""
    ) -> list[tuple[Job, tuple[Run, ...]]]:
        """Newest first. `vc`: of this virtual cluster."""
        ...

    def story(self, job_id: int) -> list[tuple[JobEvent, int]]:
        """The job's events in order, each with its commit number."""
        ...

    def nodes(self) -> Mapping[int, Node]:
        """Every node by its id."""
        ...

    def view_of_nodes(self) -> View:
        """Nodes with what is free on them, as of the last commit. Of jobs it knows nothing."""
        ...

    def leader(self) -> str:
        """Where clients reach whoever holds a valid lease, HOST:PORT; empty when nobody does."""
        ...

    def find_tokens(self, digests: Collection[bytes]) -> Mapping[bytes, Token]:
        """Those of these SHA-256 that are tokens and not revoked; they may have expired."""
        ...
