"""Nodes, their devices, earmarks, and the cluster as a whole."""

from typing import NamedTuple

from scheduler_service.core.model.enums import EarmarkPhase, NodeState
from scheduler_service.core.model.rows import dataclass, derived
from scheduler_service.core.model.runs import RunKey
from scheduler_service.core.model.values import ZERO, Mask, Micros, Vector, mask_of


class Strike(NamedTuple):
    """A failure that was probably its node's fault."""

    job_id: int
    user: str | None
    """The user of a job that failed there by what it did itself, and succeeded elsewhere: all such failures of a user are one
    strike. None: the fault was the node's own."""
    what: str
    """Predicate of a sentence about the job, for people: "vanished here"."""


@dataclass(frozen=True)
class Node:
    id: int
    """Numbered in the order in which nodes first appear, which is also the order in which they are tried."""
    name: str
    boot_id: str
    state: NodeState
    capacity: Vector
    levels: tuple[str, ...]
    since_us: Micros
    """When it entered its state."""
    sequence: int = 0
    """The last report of this boot that is in the state."""
    address: str = ""
    agent_version: str = ""
    drained_us: Micros | None = None
    """When it was drained: nothing new is placed on it since. None: it is open."""
    drain_reason: str = ""
    drain_user: str = ""
    """Empty: Ebb itself."""
    strikes: int = 0
    """Failures that were this node's fault, as far as can be told, less one for each job that went well since. If only what the
    jobs did says so, those of one user count as one."""
    labels: tuple[tuple[str, str], ...] = ()
    """(name, value), as its agent reports them, in order of names."""
    checkpoints_at: str = ""
    """Address (host:port) from which other nodes fetch checkpoints; empty: none."""
    strike_causes: tuple[Strike, ...] = ()
    """The last strikes, oldest first: at most `strikes`. Each user has at most one; of the others only a few are kept."""


def present(node: Node | None) -> Node | None:
    """Return the node if it is (still) part of the cluster, else None."""
    return None if node is None or node.state is NodeState.DELETED else node


@dataclass(frozen=True)
class NodeDevice:
    """A device of a node. The rows of runs say which of them hold it."""

    node: int
    index: int
    uuid: str
    model: str
    memory_mib: int
    path: tuple[int, ...] = ()
    numa_node: int | None = None
    link_domain: int | None = None
    """Devices of the node with the same number reach each other over NVLink or NVSwitch."""
    fault: str = ""
    """Why nothing new is placed on it; empty for a healthy one."""


@dataclass(frozen=True)
class Earmark:
    """Resources of a node that are kept for one job that has not started, and the runs that were told to stop for it.

    What is kept (`kept`) is neither free nor owned; what is still missing (`want - kept`) is promised by `victims`.
    """

    id: int
    phase: EarmarkPhase
    job_id: int
    node: int
    want: Vector
    kept: Vector = ZERO
    victims: tuple[RunKey, ...] = ()
    created_us: Micros = 0
    deadline_us: Micros | None = None
    tasks: tuple[int, ...] = (0,)
    """The ranks of the job's tasks that are to run there."""
    devices: tuple[tuple[int, ...], ...] = ()
    """In cells: the devices (or CPUs, as in `Run.devices`) kept for each of these tasks; empty: any that are free then."""
    configuration: int = 0
    """The configuration in which the job is to start; the same for all of its earmarks."""

    @derived
    def mask(self) -> Mask:
        """All devices that the earmark keeps."""
        mask = 0
        for devices in self.devices:
            mask |= mask_of(devices)
        return mask


@dataclass(frozen=True)
class Cluster:
    """The one row about the cluster as a whole."""

    id: str
    seed: int
    next_job: int = 1
    next_node: int = 1
    next_earmark: int = 1
    next_vc: int = 1
    clock_us: Micros = 0
    """The time of the last step; time never goes back before it."""
    next_posting: int = 1
    next_exchange: int = 1
    next_share_group: int = 1
    next_operation: int = 1
