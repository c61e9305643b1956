"""Messages of the link, as the agent's own types. `convert` turns these into ebb.agent.v1 and back."""

from dataclasses import dataclass

from node_agent.devices.base import Inventory
from node_agent.measuring.observations import Observations
from node_agent.run_state.events import Report
from node_agent.run_state.model import Desired, RunKey, RunRecord


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message: who this is, what it has, and every run that it knows."""

    node: str
    boot_id: str
    cluster_id: str
    epoch: int
    inventory: Inventory
    runs: tuple[RunRecord, ...]
    agent_version: str
    acknowledged: int = 0
    """The last report of this boot that was acknowledged."""
    seal: bytes = b""
    """Seal of the epoch, from its welcome."""
    instance: str = ""
    """ID of this agent's process, which no other process has."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels by which jobs may ask for this node, as (name, value)."""
    checkpoints_at: str = ""
    """HOST:PORT where agents of other nodes fetch checkpoints; empty: nowhere."""


@dataclass(frozen=True, slots=True)
class Reports:
    """Reports in the order of their numbers, without gaps."""

    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    pass


@dataclass(frozen=True, slots=True)
class NodeConfiguration:
    """The scheduler's configuration of this agent. Seconds."""

    heartbeat_interval: float = 0.0
    """Maximum time from one sign of life to the next; 0: the scheduler names none."""
    reconnect_within: float = 0.0
    """Time over which the agents of the cluster spread their reconnections."""


@dataclass(frozen=True, slots=True)
class Welcome:
    cluster_id: str
    epoch: int
    acknowledged: int
    seal: bytes = b""
    """Proves that this cluster was led in this epoch."""
    configuration: NodeConfiguration = NodeConfiguration()
    transfer_key: bytes = b""
    """Key that agents of the cluster show to each other; empty: they fetch nothing from each other."""


@dataclass(frozen=True, slots=True)
class DesiredRuns:
    """Desired states of the runs that it names; the others keep running."""

    commit_no: int
    runs: tuple[Desired, ...]


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Says that every report up to here is committed."""

    sequence: int


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Asks for a run's log from a byte on; `follow`: until the run has ended. It is answered by a call of its own."""

    id: str
    key: RunKey
    offset: int
    follow: bool


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A piece of such an answer. The first names the request; the last is an end or an error."""

    id: str = ""
    data: bytes = b""
    error: str = ""
    end: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """A message of a newer scheduler that this agent does not understand."""


Upward = Hello | Reports | Heartbeat | Observations
Downward = Welcome | NodeConfiguration | DesiredRuns | Acknowledgement | LogRequest | Unknown


@dataclass(frozen=True, slots=True)
class SnapshotPiece:
    """Asks for a piece of a snapshot that a job names."""

    job_id: int
    digest: str
    offset: int


@dataclass(frozen=True, slots=True)
class EndedJobs:
    """Asks which of these jobs ended at least this many days ago."""

    job_ids: list[int]
    days: float


@dataclass(frozen=True, slots=True)
class ResultPiece:
    """A piece of a run's result."""

    key: RunKey
    size: int
    offset: int
    data: bytes
