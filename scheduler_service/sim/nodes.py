"""What there is on a simulated node, what happens to it, and how the node's agent tells the scheduler."""

from dataclasses import dataclass, field
from enum import IntEnum

from scheduler_service.core.messages import (
    Event,
    FenceRequested,
    MiniBatchMeasured,
    NodeSeen,
    NodeSilent,
    RunExited,
    RunParked,
    RunReady,
    RunResumed,
    RunStarted,
    SwitchingMeasured,
)
from scheduler_service.core.model import RunKey
from scheduler_service.core.model.estimates import Sampling
from scheduler_service.core.model.inventory import Inventory
from scheduler_service.core.model.values import Micros
from scheduler_service.sim.experiments.job_outcomes import Launch, Life
from scheduler_service.sim.samples import measurement
from scheduler_service.sim.sharing.kinds import Kind
from scheduler_service.sim.sharing.model import Site


class What(IntEnum):
    """What happens on a node."""

    BEGUN = 1
    """The process of a job of one task is there."""
    READY = 2
    """A task of a gang is prepared."""
    MET = 3
    """A task of a gang has begun."""
    FINISHED = 4
    LEFT = 5
    """It was told to, and has saved its work."""
    KILLED = 6
    """It was told to leave, and had no time to save its work."""
    DIES = 7
    SILENT = 8
    FENCED = 9
    BACK = 10
    MEASURED = 11
    """A sample has done as many steps as it is to do."""
    PARKED = 12
    RESUMED = 13
    """A parked task executes again."""
    TURN = 14
    """The next row of a share group becomes active."""
    OBSERVED = 15
    """The node tells how long the mini-batches of a run take."""
    WARM = 16
    """A task is ready to begin, and waits for the end of its job's runs elsewhere."""
    SWITCHED = 17
    """The node tells what it takes to park and to resume a run that takes turns."""


BEGUN, READY, MET, FINISHED, LEFT, *_ = What  # to look one up costs as much as a heap does
OBSERVED, PARKED, RESUMED, SWITCHED = What.OBSERVED, What.PARKED, What.RESUMED, What.SWITCHED
GATHERING = (READY, MET)


def node_name(number: int) -> str:
    """Nodes count from 1, in the order in which they join."""
    return f"node-{number:04}"


@dataclass(slots=True)
class Node:
    name: str
    inventory: Inventory
    boot: str = "1"
    sequence: int = 0
    """Of its last report."""
    up: bool = True


@dataclass(slots=True)
class Party:
    """The tasks of a launch."""

    life: Life
    launch: Launch
    missing: int
    """How many have not begun."""
    there: int
    """How many have not left."""
    saved: bool = True
    """What it did is not lost when it has left."""
    tasks: "list[Task]" = field(default_factory=list)
    sampling: Sampling | None = None
    """If the launch is a sample."""
    done_us: Micros = 0
    """When its work is done, if nothing disturbs it from now on."""
    told_us: Micros = 0
    """When it was told to park, or to go on."""
    parks_us: Micros | None = None
    """When its tasks are parked, since it was told to park."""
    stopped_us: Micros | None = None
    """Since when it does no work because it is parked."""
    end_us: Micros = 0
    """From the end of its work until the scheduler hears of that."""
    group: int = 0
    """The share group of its tasks; 0: it has its devices alone."""
    kind: Kind | None = None
    site: Site | None = None
    """Where its tasks are, once it works."""
    seen: tuple[Micros, Micros] = (0, 0)
    """What it had done, and for how long it had executed, when it was measured last."""
    packed: bool = False
    """Others use its devices at the same time."""
    levels: tuple[int, int, int] = (0, 0, 0)
    """What it contributes to the levels of `sharing.usage`."""
    levels_us: Micros = 0
    """Since then."""


@dataclass(slots=True)
class Task:
    key: RunKey
    node: Node
    party: Party
    due: int = 0
    """The number of what happens to it next; what has another number happens no more."""
    next: What = What.BEGUN
    leaves_us: Micros | None = None
    """When it leaves, since it was told to."""
    parked: bool = False
    switches: bool = False
    """Its node tells what its switches take, or has told it."""
    devices: tuple[int, ...] = ()


Measurement = MiniBatchMeasured | SwitchingMeasured


def report(what: What, subject: Task | Node | Measurement) -> Event:
    """The next report of the node, or what somebody else says of it."""
    if isinstance(subject, Measurement):
        return subject
    if isinstance(subject, Node):
        return _report_of_node(what, subject)
    if what is What.MEASURED:
        party = subject.party
        assert party.sampling is not None
        whole_us = party.life.job.samples_us[party.launch.configuration]
        return measurement(subject.node.name, subject.key, whole_us, party.sampling)
    node, key = subject.node, subject.key
    node.sequence += 1
    if what is FINISHED:  # before any stop reached it: one that is told to leave works no more
        return RunExited(node.name, node.boot, node.sequence, key)
    if what is BEGUN or what is MET:
        return RunStarted(node.name, node.boot, node.sequence, key)
    if what is READY or what is What.WARM:
        return RunReady(node.name, node.boot, node.sequence, key, node.name)
    if what is What.PARKED:
        return RunParked(node.name, node.boot, node.sequence, key, "simulated", _moved_bytes(subject), saves=True)
    if what is What.RESUMED:
        return RunResumed(node.name, node.boot, node.sequence, key, "simulated")
    if what is LEFT:
        return RunExited(node.name, node.boot, node.sequence, key, yielded=True)
    return RunExited(node.name, node.boot, node.sequence, key, exit_signal=9)


def _moved_bytes(task: Task) -> int:
    """What a park moves to the memory of the node; none of a job of which nothing is known."""
    kind = task.party.kind
    return 0 if kind is None else (kind.boundary_mib << 20) * len(task.devices)


def _report_of_node(what: What, node: Node) -> Event:
    if what is What.SILENT:
        return NodeSilent(node.name)
    if what is What.FENCED:
        return FenceRequested(node.name, "operator")
    node.boot, node.sequence = str(int(node.boot) + 1), 0
    return NodeSeen(node.name, node.boot, node.inventory)
