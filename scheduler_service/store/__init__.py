"""Everything durable, in PostgreSQL. `commit` is the only writer of the state; `errors` says what can go wrong."""

from scheduler_service.store.commit import commit, outcome
from scheduler_service.store.connect import open_engine
from scheduler_service.store.embedded import Embedded
from scheduler_service.store.errors import (
    CommitUnknown,
    DuplicateRequest,
    EmbeddedError,
    Fenced,
    Forgotten,
    InUse,
    Rejected,
    SchemaTooNew,
    StoreError,
    Unavailable,
)
from scheduler_service.store.lease import Lease, holder, release, renew, take
from scheduler_service.store.load import (
    Loaded,
    find_ends,
    find_job,
    find_requests,
    find_run,
    list_jobs,
    list_nodes,
    load,
    story,
)
from scheduler_service.store.migrate import migrate, revision
from scheduler_service.store.tokens import add_token, find_tokens, list_tokens, revoke_token

__all__ = [
    "CommitUnknown",
    "DuplicateRequest",
    "Embedded",
    "EmbeddedError",
    "Fenced",
    "Forgotten",
    "InUse",
    "Lease",
    "Loaded",
    "Rejected",
    "SchemaTooNew",
    "StoreError",
    "Unavailable",
    "add_token",
    "commit",
    "find_ends",
    "find_job",
    "find_requests",
    "find_run",
    "find_tokens",
    "holder",
    "list_jobs",
    "list_nodes",
    "list_tokens",
    "load",
    "migrate",
    "open_engine",
    "outcome",
    "release",
    "renew",
    "revision",
    "revoke_token",
    "story",
    "take",
]
