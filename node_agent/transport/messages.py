"""What goes over the link, in the agent's own words. `convert` turns these into ebb.agent.v1 and back."""

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
    """The last report of this boot that was."""
    seal: bytes = b""
    """Of the epoch, as its welcome had it."""
    instance: str = ""
    """Of this agent's process: no other has the same."""
    labels: tuple[tuple[str, str], ...] = ()
    """By which jobs may ask for this node, as (name, value)."""
    checkpoints_at: str = ""
    """HOST:PORT where agents of other nodes fetch checkpoints; empty: nowhere."""


@dataclass(frozen=True, slots=True)
class Reports:
    """In the order of their numbers, and without gaps."""

    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    pass


@dataclass(frozen=True, slots=True)
class NodeConfiguration:
    """What the scheduler decides for this agent. Seconds."""

    heartbeat_interval: float = 0.0
    """From one sign of life to the next, at most; 0: the scheduler names none."""
    reconnect_within: float = 0.0
    """The agents of the cluster spread over it when they connect again."""


@dataclass(frozen=True, slots=True)
class Welcome:
    cluster_id: str
    epoch: int
    acknowledged: int
    seal: bytes = b""
    """Shows that this cluster was led in this epoch."""
    configuration: NodeConfiguration = NodeConfiguration()
    transfer_key: bytes = b""
    """Agents of the cluster show it to each other; empty: they fetch nothing from each other."""


@dataclass(frozen=True, slots=True)
class DesiredRuns:
    """What is to hold of the runs that it names; the others go on."""

    commit_no: int
    runs: tuple[Desired, ...]


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Every report up to here is committed."""

    sequence: int


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Asks for a run's log from a byte on; `follow` until the run is over. It is answered by a call of its own."""

    id: str
    key: RunKey
    offset: int
    follow: bool


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Of such an answer. The first names the request; the last is an end or an error."""

    id: str = ""
    data: bytes = b""
    error: str = ""
    end: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that a newer scheduler sends, and this agent does not understand."""


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
    """Asks which of these jobs ended so many days ago, or earlier."""

    job_ids: list[int]
    days: float


@dataclass(frozen=True, slots=True)
class ResultPiece:
    """A piece of what a run left as its result."""

    key: RunKey
    size: int
    offset: int
    data: bytes
