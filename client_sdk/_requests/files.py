"""Requests about snapshots and results, as `jobs` has those about jobs and nodes."""

from dataclasses import dataclass
from typing import NamedTuple

from client_sdk._requests.jobs import Request

PIECE = 1 << 20
"""Bytes that one call sends or receives, at most."""


class Stored(NamedTuple):
    stored: int
    """Bytes."""
    complete: bool


class Piece(NamedTuple):
    data: bytes
    """Empty at the end."""
    size: int
    """The size of the whole file."""


@dataclass(frozen=True, slots=True)
class FindSnapshot(Request[Stored]):
    digest: str


@dataclass(frozen=True, slots=True)
class PutSnapshot(Request[Stored]):
    digest: str
    size: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class GetResult(Request[Piece]):
    job_id: int
    offset: int
