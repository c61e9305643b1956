"""The state of a simulated node, the events on it, and the reports of its agent to the scheduler.

Among these are measurements of samples, whose steps all take equally long.
"""

from dataclasses import dataclass, field
from enum import IntEnum

from scheduler_service.core.messages import (
    Event,
    FenceRequested,
    MiniBatchMeasured,
    NodeSeen,
    NodeSilent,
    RunExited,
    RunMeasured,
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
from scheduler_service.core.operations.samples import is_enough
from scheduler_service.sim.experiments.job_outcomes import Launch, Life
from scheduler_service.sim.sharing.kinds import Kind
from scheduler_service.sim.sharing.model import Site


class What(IntEnum):
    """An event on a node."""

    BEGUN = 1
    """The process of a job of one task has started."""
    READY = 2
    """A task of a gang is prepared."""
    MET = 3
    """A task of a gang has begun."""
    FINISHED = 4
    LEFT = 5
    """It was told to stop, and has saved its work."""
    KILLED = 6
    """It was told to stop, and had no time to save its work."""
    DIES = 7
    SILENT = 8
    FENCED = 9
    BACK = 10
    MEASURED = 11
    """A sample has done all of its steps."""
    PARKED = 12
    RESUMED = 13
    """A parked task executes again."""
    TURN = 14
    """The next row of a share group becomes active."""
    OBSERVED = 15
    """The node reports how long the mini-batches of a run take."""
    WARM = 16
    """A task is ready to begin, and waits for the end of its job's runs elsewhere."""
    SWITCHED = 17
    """The node reports how long a run that takes turns takes to park and to resume."""


BEGUN, READY, MET, FINISHED, LEFT, *_ = What  # an enum look-up costs as much as a heap operation
OBSERVED, PARKED, RESUMED, SWITCHED = What.OBSERVED, What.PARKED, What.RESUMED, What.SWITCHED
GATHERING = (READY, MET)


def node_name(number: int) -> str:
    """The name of a node. Nodes count from 1, in the order in which they join."""
    return f"node-{number:04}"


@dataclass(slots=True)
class Node:
    name: str
    inventory: Inventory
    boot: str = "1"
    sequence: int = 0
    """The number of its last report."""
    up: bool = True


@dataclass(slots=True)
class Party:
    """The tasks of a launch."""

    life: Life
    launch: Launch
    missing: int
    """How many tasks have not begun."""
    there: int
    """How many tasks have not exited."""
    saved: bool = True
    """Whether its work is kept when it has exited."""
    tasks: "list[Task]" = field(default_factory=list)
    sampling: Sampling | None = None
    """The sampling, if the launch is a sample."""
    done_us: Micros = 0
    """When its work will be done, if nothing disturbs it from now on."""
    told_us: Micros = 0
    """When it was told to park or to resume."""
    parks_us: Micros | None = None
    """When its tasks will be parked, once it was told to park."""
    stopped_us: Micros | None = None
    """Since when it has done no work because it is parked."""
    end_us: Micros = 0
    """Time from the end of its work until the scheduler learns of it."""
    group: int = 0
    """The share group of its tasks; 0: it has its devices alone."""
    kind: Kind | None = None
    site: Site | None = None
    """The location of its tasks, once it works."""
    seen: tuple[Micros, Micros] = (0, 0)
    """Its work and its execution time at the last measurement."""
    packed: bool = False
    """Whether others use its devices at the same time."""
    levels: tuple[int, int, int] = (0, 0, 0)
    """Its contribution to the levels of `sharing.usage`."""
    levels_us: Micros = 0
    """Time of the last change of the levels."""


@dataclass(slots=True)
class Task:
    key: RunKey
    node: Node
    party: Party
    due: int = 0
    """The number of its next event; events with other numbers are obsolete."""
    next: What = What.BEGUN
    leaves_us: Micros | None = None
    """When it exits, once it was told to stop."""
    parked: bool = False
    switches: bool = False
    """Whether its node reports its switching times, or has reported them."""
    devices: tuple[int, ...] = ()


Measurement = MiniBatchMeasured | SwitchingMeasured


def report(what: What, subject: Task | Node | Measurement) -> Event:
    """The next report of the node, or one about it from elsewhere."""
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
    if what is FINISHED:  # before any stop reached it: a task that is told to stop works no more
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
    """Bytes that a park moves to the memory of the node; 0 for a job of unknown kind."""
    kind = task.party.kind
    return 0 if kind is None else (kind.boundary_mib << 20) * len(task.devices)


def _report_of_node(what: What, node: Node) -> Event:
    if what is What.SILENT:
        return NodeSilent(node.name)
    if what is What.FENCED:
        return FenceRequested(node.name, "operator")
    node.boot, node.sequence = str(int(node.boot) + 1), 0
    return NodeSeen(node.name, node.boot, node.inventory)


STEPS = 1000
"""The number of steps of each job that counts its steps."""


def _steps(sampling: Sampling) -> int:
    """The number of steps until a sample is complete."""
    return next(steps for steps in range(1, STEPS + 1) if is_enough(sampling, steps, STEPS))


def measured_at(life: Life, launch: Launch, sampling: Sampling | None) -> Micros | None:
    """When the launch has done the steps of its sample, if it works until then; None if it is no sample, or counts no steps."""
    if sampling is None or launch.works_us is None or not life.job.samples_us:
        return None
    return launch.works_us + life.job.takes_us(launch.configuration, life.job.work_us) * _steps(sampling) // STEPS


def is_under_way(launch: Launch) -> bool:
    """Whether the launch works, as far as its node knows."""
    return launch.signalled_us is None and launch.lost_us is None and launch.ended_us is None


def measurement(node: str, key: RunKey, whole_us: Micros, sampling: Sampling) -> RunMeasured:
    """The measurement of a complete sample; `whole_us`: how long all steps take, as the sample measures them."""
    steps = _steps(sampling)
    return RunMeasured(node, key, steps, whole_us // STEPS, whole_us * steps // STEPS, STEPS)
