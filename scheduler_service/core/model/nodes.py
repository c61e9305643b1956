"""Nodes, their devices, what is kept for whom, and the cluster as a whole."""

from scheduler_service.core.model.enums import EarmarkPhase, NodeState
from scheduler_service.core.model.rows import dataclass, derived
from scheduler_service.core.model.runs import RunKey
from scheduler_service.core.model.values import ZERO, Mask, Micros, Vector, mask_of


@dataclass(frozen=True)
class Node:
    id: int
    """Counts up as nodes first appear; the order in which nodes are tried."""
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
    """Since when nothing new is placed on it; None: it is open."""
    drain_reason: str = ""
    drain_user: str = ""
    """Empty: Ebb itself."""
    strikes: int = 0
    """Failures that were this node's fault, as far as can be told, less what went well since."""
    labels: tuple[tuple[str, str], ...] = ()
    """As its agent reports them, (name, value), in the order of names."""
    checkpoints_at: str = ""
    """Where other nodes fetch checkpoints (host:port); empty: nowhere."""


def present(node: Node | None) -> Node | None:
    """The node, if it is one of the cluster (still)."""
    return None if node is None or node.state is NodeState.DELETED else node


@dataclass(frozen=True)
class NodeDevice:
    """A device of a node. Which runs hold it is told by the runs."""

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
    """Resources of a node that are kept for one job that has not started, with the runs that were told to stop for it.

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
    """In cells: the devices (CPUs, as of a run) that are kept, for each of these tasks; empty: any that are free then."""
    configuration: int = 0
    """Of the job, in which it is to start; the same for all of its earmarks."""

    @derived
    def mask(self) -> Mask:
        """All devices that it keeps."""
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
    """The time of the last step; time never goes back behind it."""
    next_posting: int = 1
    next_exchange: int = 1
    next_share_group: int = 1
    next_operation: int = 1
