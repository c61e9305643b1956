"""Interfaces of the store that the engine's thread needs. `database` implements them; run imports no SQL."""

import secrets
from collections.abc import Collection, Sequence
from typing import Protocol

from scheduler_service.core.model import Job, JobEvent
from scheduler_service.core.model.tenants.exchange import Exchange, Posting
from scheduler_service.core.state.journal import Change


class NotCommitted(Exception):
    """The database cannot be used now, and nothing of the step is in it."""


class CommitRefused(Exception):
    """A constraint refused the step, and nothing of it is in the database."""

    def __init__(self, said: str, constraint: str = "") -> None:
        super().__init__(said)
        self.constraint = constraint
        """Its name; empty if a value cannot be stored at all."""
        self.reference = secrets.token_hex(4)
        """A random reference that connects the error shown to a user with its log line."""


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
