"""What an agent would know and do, for the state machine: it spools its reports, obeys each order, and forgets everything at
a reboot."""

from dataclasses import dataclass, field

from scheduler_service.core.messages import (
    KnownRun,
    Launch,
    NodeSeen,
    Order,
    Parked,
    RunExited,
    Running,
    RunParked,
    RunParkRefused,
    RunReady,
    RunResumed,
    RunStarted,
    Warming,
)
from scheduler_service.core.model import RunKey, RunPhase, StopReason
from scheduler_service.core.model.inventory import Inventory
from scheduler_service.core.model.values import Vector
from tests.core.driver import inventory
from tests.core.specs import CAPACITIES

Report = RunStarted | RunReady | RunExited | RunParked | RunResumed | RunParkRefused

PARKS = (RunPhase.PARKING, RunPhase.PARKED, RunPhase.RESUMING)
LIVE = (RunPhase.STARTING, RunPhase.READY, RunPhase.RUNNING, RunPhase.STOPPING, RunPhase.WARMING, *PARKS)


class Launches:
    """What all agents together have done: which task was prepared, and where it can be reached."""

    def __init__(self) -> None:
        self.ready: dict[RunKey, str] = {}
        self.begun: set[RunKey] = set()


@dataclass(repr=False)
class Agent:
    name: str
    capacity: Vector
    launches: Launches
    boot: int = 1
    sequence: int = 0
    labels: tuple[tuple[str, str], ...] = ()
    faults: dict[int, str] = field(default_factory=dict)
    spool: list[Report] = field(default_factory=list)
    """Reports not yet acknowledged, oldest first."""
    inbox: list[Order] = field(default_factory=list)
    obeyed: list[Order] = field(default_factory=list)
    runs: dict[RunKey, RunPhase] = field(default_factory=dict)
    generations: dict[RunKey, int] = field(default_factory=dict)
    waiting: set[RunKey] = field(default_factory=set)
    """Tasks of gangs that were not told to go yet."""
    told: set[RunKey] = field(default_factory=set)
    """Runs of which the scheduler has acknowledged a report: these alone may be forgotten without being started again."""
    launched: set[RunKey] = field(default_factory=set)
    """Over all boots."""
    saving: set[RunKey] = field(default_factory=set)
    """Parked runs that were told to save and exit."""

    @property
    def boot_id(self) -> str:
        return f"{self.name}-{self.boot}"

    def __repr__(self) -> str:
        return f"{self.boot_id} with {self.runs}"

    def forget(self, key: RunKey) -> None:
        del self.runs[key], self.generations[key]
        self.obeyed = [order for order in self.obeyed if order.key != key]

    def reboot(self) -> None:
        self.boot += 1
        self.sequence = 0
        for memory in (self.spool, self.inbox, self.obeyed, self.runs, self.generations, self.waiting, self.told):
            memory.clear()

    def seen(self) -> NodeSeen:
        """Connecting drops what was on the way to it."""
        self.inbox.clear()
        known = tuple(KnownRun(key, phase, self.generations[key]) for key, phase in sorted(self.runs.items()))
        return NodeSeen(self.name, self.boot_id, self.inventory(self.capacity), known, labels=self.labels)

    def inventory(self, capacity: Vector) -> Inventory:
        """Nodes of the second kind of capacity have other devices."""
        model, memory_mib = ("T4", 16_384) if capacity == CAPACITIES[1] else ("A100", 40_960)
        return inventory(capacity, model, self.faults, memory_mib)

    def obey(self) -> None:
        order = self.inbox.pop(0)
        self.obeyed.append(order)
        key = order.key
        if order.generation <= self.generations.get(key, 0):
            return
        self.generations[key] = order.generation
        if isinstance(order.desired, Warming):
            if key not in self.runs:
                assert key not in self.launched, f"run {key} was started twice"
                self.launched.add(key)
                self.runs[key] = RunPhase.WARMING
        elif isinstance(order.desired, Launch):
            if self.runs.get(key) is RunPhase.WARMING:
                self.runs[key] = RunPhase.STARTING
            if key not in self.runs:
                assert key not in self.launched, f"run {key} was started twice"
                self.launched.add(key)
                self.runs[key] = RunPhase.STARTING
                if order.desired.gang is not None:
                    self.waiting.add(key)
            self._hear_gang(order.desired)
            self._hear_park(key, isinstance(order.desired, Parked))
        elif key not in self.runs:
            self.runs[key] = RunPhase.ENDED
            self._report(RunExited, key, yielded=True)
        elif self.runs[key] is not RunPhase.ENDED:
            self.saving.discard(key)
            if self.runs[key] is RunPhase.PARKED and order.desired.reason is StopReason.MIGRATED and order.desired.grace_us:
                self.saving.add(key)
            self.runs[key] = RunPhase.STOPPING

    def _hear_gang(self, launch: Launch) -> None:
        """What a task is told of its gang must be true, whichever of the others are still there."""
        gang, key, tasks = launch.gang, launch.run.key, len(launch.job.launch_spec.tasks())
        assert (gang is None) == (not launch.job.launch_spec.gang)
        if gang is None:
            return
        assert (gang.world_size, 0 <= gang.local_rank < gang.local_world_size) == (tasks, True), gang
        assert gang.nodes[gang.node_rank] == launch.run.node
        if isinstance(launch, Running):
            assert launch.job.rendezvous == self.launches.ready[key._replace(task=0)], "they would not meet"
            self.waiting.discard(key)

    def _hear_park(self, key: RunKey, parked: bool) -> None:
        """Parks a run, lets one go on that is about to be parked, or resumes one."""
        after = {
            RunPhase.RUNNING: RunPhase.PARKING if parked else RunPhase.RUNNING,
            RunPhase.PARKING: RunPhase.PARKING if parked else RunPhase.RUNNING,
            RunPhase.PARKED: RunPhase.PARKED if parked else RunPhase.RESUMING,
        }
        self.runs[key] = after.get(self.runs[key], self.runs[key])

    def move(self, key: RunKey, how: str, moved_mib: int = 1) -> None:
        """Ends a park or a resume: well, by a refusal, or with the loss of the process."""
        parks = self.runs[key] is RunPhase.PARKING
        if how == "refused" and parks:
            self.runs[key] = RunPhase.RUNNING
            self._report(RunParkRefused, key, why="a step takes too long")
        elif how == "lost":
            self._report(RunParkRefused, key, why="it crashed", lost=True)
            self.end(key, {"exit_signal": 9})
        elif parks:
            self.runs[key] = RunPhase.PARKED
            saves = how == "saves"
            self._report(RunParked, key, rung="cooperative", moved_bytes=moved_mib << 20, residue_bytes=5, saves=saves)
        else:
            self.runs[key] = RunPhase.RUNNING
            self._report(RunResumed, key, rung="driver")

    def stay_parked(self, key: RunKey) -> None:
        """A parked run that was to save and exit does not."""
        self.saving.discard(key)
        self.runs[key] = RunPhase.PARKED
        self._report(RunParkRefused, key, why="the disk is full")

    def prepare(self, key: RunKey) -> None:
        self.runs[key] = RunPhase.READY
        self.launches.ready[key] = f"{self.name}:{20_000 + key.run}"
        self._report(RunReady, key, address=self.name, port=20_000 + key.run)

    def warm(self, key: RunKey) -> None:
        """It stays as it is, and the agent says so again after a restart."""
        self.launches.ready[key] = f"{self.name}:{20_000 + key.run}"
        self._report(RunReady, key, address=self.name, port=20_000 + key.run)

    def begin(self, key: RunKey) -> None:
        assert key not in self.launches.begun, f"run {key} begins twice"
        self.launches.begun.add(key)
        self.runs[key] = RunPhase.RUNNING
        self._report(RunStarted, key)

    def end(self, key: RunKey, outcome: dict[str, object]) -> None:
        """What has not begun cannot have gone well."""
        if self.runs[key] in (RunPhase.STARTING, RunPhase.READY, RunPhase.WARMING) and not outcome:
            outcome = {"launch_error": "the folder is not writable"}
        told = self.runs[key] is RunPhase.STOPPING
        self.runs[key] = RunPhase.ENDED
        self._report(RunExited, key, **{"told": told} | outcome)

    def _report(self, kind: type[Report], key: RunKey, **facts: object) -> None:
        self.sequence += 1
        self.spool.append(kind(self.name, self.boot_id, self.sequence, key, **facts))  # type: ignore[arg-type]

    def in_phase(self, *phases: RunPhase) -> list[RunKey]:
        return sorted(key for key, phase in self.runs.items() if phase in phases)

    def to_prepare(self) -> list[RunKey]:
        return [key for key in self.in_phase(RunPhase.STARTING) if key in self.waiting]

    def to_begin(self) -> list[RunKey]:
        return [key for key in self.in_phase(RunPhase.STARTING, RunPhase.READY) if key not in self.waiting]
