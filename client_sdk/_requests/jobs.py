"""The requests to a scheduler, as plain values. Both clients make them here, and both transports can send them."""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, Literal, NamedTuple, TypeVar

from client_sdk import units
from client_sdk._values.device_parts import Sharing, share_mode
from client_sdk._values.job_options import Time
from client_sdk._values.options import job_id
from client_sdk.errors import InvalidArgument
from client_sdk.models import (
    CellQuota,
    Dependency,
    Explanation,
    Job,
    JobAtRisk,
    JobEvent,
    JobPage,
    JobSpec,
    JobState,
    Node,
    PinnedCell,
    Pool,
    Preview,
    RunPage,
    ShareMode,
    Shares,
    VirtualCluster,
    VirtualClusterPolicy,
)

T = TypeVar("T")

DEFAULT_ADDRESS = "127.0.0.1:7737"


class Request(Generic[T]):
    """One call. `T` is what it answers."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Submit(Request[Job]):
    spec: JobSpec
    request_id: str


@dataclass(frozen=True, slots=True)
class TryOut(Request[Preview]):
    spec: JobSpec


@dataclass(frozen=True, slots=True)
class OfJob(Request[Job]):
    """A request that has a job as its only parameter."""

    verb: Literal["Get", "Cancel", "Resume", "Hold", "Release"]
    job_id: int


@dataclass(frozen=True, slots=True)
class Suspend(Request[Job]):
    job_id: int
    park: bool = False
    park_only: bool = False


@dataclass(frozen=True, slots=True)
class ListRuns(Request[RunPage]):
    job_id: int
    token: str = ""


@dataclass(frozen=True, slots=True)
class Requeue(Request[Job]):
    """`run` is the one that is to leave: a repetition does nothing to its successor."""

    job_id: int
    run: int


@dataclass(frozen=True, slots=True)
class Resize(Request[Job]):
    job_id: int
    tasks: int


@dataclass(frozen=True, slots=True)
class Migrate(Request[Job]):
    job_id: int
    nodes: tuple[str, ...]
    devices: tuple[tuple[int, ...], ...]
    """For each of the nodes; empty: any that are idle."""


@dataclass(frozen=True, slots=True)
class Risks(Request[tuple[JobAtRisk, ...]]):
    """Asks which jobs would lose their work by a change, and changes nothing."""

    change: "Suspend | Requeue | Migrate | Drain"


class NodePage(NamedTuple):
    nodes: tuple[Node, ...]
    next_token: str
    """Empty on the last page."""


class Only(NamedTuple):
    """Selection of jobs; empty fields select all."""

    vc: str
    user: str
    mine: bool
    name: str


@dataclass(frozen=True, slots=True)
class ListPage(Request[JobPage]):
    states: tuple[JobState, ...]
    size: int
    only: Only
    token: str = ""
    count: bool = False


@dataclass(frozen=True, slots=True)
class Story(Request[Sequence[JobEvent]]):
    job_id: int


@dataclass(frozen=True, slots=True)
class Explain(Request[Explanation]):
    job_id: int


@dataclass(frozen=True, slots=True)
class ListShares(Request[Shares]):
    vc: str


@dataclass(frozen=True, slots=True)
class Update(Request[Job]):
    """None stays as it is."""

    job_id: int
    priority: int | None
    time_limit: timedelta | None
    dependencies: Sequence[Dependency] | None
    grace: timedelta | Literal["auto"] | None = None
    skip_steps: int | None = None
    share: ShareMode | None = None


@dataclass(frozen=True, slots=True)
class ListNodes(Request[NodePage]):
    token: str = ""


@dataclass(frozen=True, slots=True)
class OfNode(Request[Node]):
    """A request that has a node as its only parameter."""

    verb: Literal["GetNode", "Undrain", "Fence"]
    node: str


@dataclass(frozen=True, slots=True)
class DeleteNode(Request[None]):
    node: str


@dataclass(frozen=True, slots=True)
class Drain(Request[Node]):
    node: str
    reason: str
    evict: bool


@dataclass(frozen=True, slots=True)
class ListVirtualClusters(Request[Sequence[VirtualCluster]]):
    pass


@dataclass(frozen=True, slots=True)
class GetVirtualCluster(Request[VirtualCluster]):
    name: str


@dataclass(frozen=True, slots=True)
class DeleteVirtualCluster(Request[None]):
    name: str


@dataclass(frozen=True, slots=True)
class SetVirtualCluster(Request[VirtualCluster]):
    """Creates one, or changes what is not None."""

    verb: Literal["Create", "Update"]
    name: str
    quotas: Sequence[CellQuota] | None
    pins: Sequence[PinnedCell] | None
    weight: int | None
    policy: VirtualClusterPolicy | None
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ListCells(Request[Sequence[Pool]]):
    pool: str
    virtual_cluster: str


def address(given: str | None) -> str:
    """Return the given address of the schedulers, or else that of EBB_ADDRESS or the default. Raises InvalidArgument."""
    chosen = given or os.environ.get("EBB_ADDRESS") or DEFAULT_ADDRESS
    addresses(chosen)
    return chosen


def patience(given: float) -> float:
    """Return the seconds that each call of a client may take. Raises InvalidArgument."""
    try:
        seconds = float(given) if not isinstance(given, str) else math.nan
    except (TypeError, ValueError):
        seconds = math.nan
    if math.isnan(seconds):
        raise InvalidArgument(f"timeout={given!r} is no number of seconds, such as 30: what each call may take")
    return seconds


_ADDRESS = re.compile(r"[^\s/@]+:0*[1-9]\d{0,4}")


def addresses(text: str) -> tuple[str, ...]:
    """Each of those that are separated by commas. Raises InvalidArgument."""
    each = tuple(part.strip() for part in text.split(","))
    if not all(map(_ADDRESS.fullmatch, each)) or any(int(part.rpartition(":")[2]) > 65535 for part in each):
        raise InvalidArgument(f"{text!r} is not HOST:PORT, or several with commas between them, such as a:7737,b:7737")
    return each


def new_id() -> str:
    """A request_id that nobody else has."""
    return os.urandom(16).hex()


def submit(spec: JobSpec, request_id: str | None) -> Submit:
    """A submit that may be sent again: where it was given no request_id, it has one of its own."""
    return Submit(spec, request_id or new_id())


def migrate(job: int, nodes: Sequence[str], devices: Sequence[Sequence[int]]) -> Migrate:
    """Raises InvalidArgument for no node, and for devices of another number of nodes."""
    if not nodes:
        raise InvalidArgument("name the node where the job is to go on")
    if devices and len(devices) != len(nodes):
        said = f"devices of {len(devices)} nodes are named, and {len(nodes)} nodes: name those of each, or of none"
        raise InvalidArgument(said)
    return Migrate(job, tuple(nodes), tuple(map(tuple, devices)))


def update(
    job: Job | int,
    priority: int | None,
    time_limit: Time | None,
    dependencies: Sequence[Dependency] | None,
    grace: Time | None,
    skip_steps: int | None = None,
    share: Sharing = None,
) -> Update:
    """Raises InvalidArgument for a limit that is no time, and for a way to share that there is not."""
    mode = share_mode(share)
    limit = None if time_limit is None else units.parse_duration(time_limit)
    period: timedelta | Literal["auto"] | None = None
    if grace is not None:
        period = "auto" if grace == "auto" else units.parse_duration(grace)
    return Update(job_id(job), priority, limit, dependencies, period, skip_steps, mode)
