"""Everything durable, in PostgreSQL. `commit` is the only writer; `errors` says what can go wrong."""

from scheduler_service.store.commit import commit, outcome
from scheduler_service.store.connect import open_engine
from scheduler_service.store.embedded import Embedded
from scheduler_service.store.errors import (
    CommitUnknown,
    DuplicateRequest,
    EmbeddedError,
    Fenced,
    InUse,
    Rejected,
    SchemaTooNew,
    StoreError,
    Unavailable,
)
from scheduler_service.store.lease import Lease, holder, release, renew, take
from scheduler_service.store.load import Loaded, find_job, find_requests, list_jobs, load, story
from scheduler_service.store.migrate import migrate

__all__ = [
    "CommitUnknown",
    "DuplicateRequest",
    "Embedded",
    "EmbeddedError",
    "Fenced",
    "InUse",
    "Lease",
    "Loaded",
    "Rejected",
    "SchemaTooNew",
    "StoreError",
    "Unavailable",
    "commit",
    "find_job",
    "find_requests",
    "holder",
    "list_jobs",
    "load",
    "migrate",
    "open_engine",
    "outcome",
    "release",
    "renew",
    "story",
    "take",
]
