"""Cost of finding the runs to preempt for a job of a virtual cluster, and the cells in which a run may be promoted.

In each case a policy supposes that runs have ended, that jobs lose their earmarks or their guarantee, or that cells are bound.
A cluster of 64 nodes with 8 GPUs each is full; one request is decided and enacted in memory, undone, and repeated.
"""

from collections.abc import Callable
from random import Random
from time import thread_time_ns

from benchmarks.figures import Figure, figure, quantile
from scheduler_service.core.engine import step
from scheduler_service.core.messages import Accepted, Event, NodeSeen, Running, RunStarted, Step, Submitted, VcRequested
from scheduler_service.core.model import Cluster, JobClass, JobSpec, TaskGroup
from scheduler_service.core.model.inventory import Device, Inventory
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest, Guarantee, Quota, VcPolicy
from scheduler_service.core.model.values import SECOND, Vector, times
from scheduler_service.core.state.state import State
from scheduler_service.policies.hived.policy import cells

NODES, DEVICES, REPEATS = 64, 8, 30
POOL = "gpu-2x2x2"
CAPACITY = Vector(4_000 * DEVICES, (16 << 10) * DEVICES, DEVICES)
OPPORTUNISTIC, OVERFLOW, GUARANTEED = Guarantee.OPPORTUNISTIC, Guarantee.OVERFLOW, Guarantee.GUARANTEED


class Site:
    """A cluster, and virtual clusters in it. What is placed runs at once."""

    def __init__(self) -> None:
        self.state = State(Cluster("bench", 1), Settings(pools=()))
        self.policy = cells()
        self.now = 0
        self.sequences: dict[int, int] = {}
        paths = [(d // 4, d // 2 % 2) for d in range(DEVICES)]
        for i in range(NODES):
            devices = tuple(Device(d, f"{i}-{d}", "gpu", 80 << 10, path) for d, path in enumerate(paths))
            self.take(NodeSeen(f"node-{i:02}", "boot", Inventory(CAPACITY, ("socket", "switch"), devices)))

    def step(self, *events: Event) -> Step:
        return step(self.state, events, self.now, Random(self.now), self.policy)

    def take(self, *events: Event) -> Step:
        """A step that is adopted, and another for what starts with it."""
        self.now += SECOND
        taken = self.step(*events)
        self.state.adopt()
        started: list[Event] = []
        for order in taken.orders:
            if isinstance(order.desired, Running):
                self.sequences[order.node] = self.sequences.get(order.node, 0) + 1
                name = self.state.nodes.rows[order.node].name
                started.append(RunStarted(name, "boot", self.sequences[order.node], order.key))
        if started:
            self.take(*started)
        return taken

    def vc(self, name: str, level: str, count: int, policy: VcPolicy = VcPolicy()) -> None:  # noqa: B008  # it is frozen
        new = name not in self.state.vc_ids
        self.take(VcRequested(name, new, (Quota(POOL, level, count),), policy=policy))

    def ask(self, vc: str, devices: int, **wants: object) -> int:
        reply = self.take(request(vc, devices, **wants)).replies[0]  # type: ignore[arg-type]
        assert isinstance(reply, Accepted), reply
        return reply.job_id

    def cost(self, *events: Event) -> list[float]:
        """Microseconds of the step that takes these events, each time."""
        took = []
        self.now += SECOND
        for _ in range(REPEATS):
            begin = thread_time_ns()
            taken = self.step(*events)
            took.append((thread_time_ns() - begin) / 1000)
            assert not taken.refused, taken.refused
            self.last = taken
            self.state.undo()
        return took


def request(
    vc: str,
    devices: int,
    tasks: int = 1,
    trial: bool = False,
    priority: int = 0,
    guarantee: Guarantee = GUARANTEED,
    lazy: bool = False,
) -> Submitted:
    demand = Vector(4_000 * devices, (16 << 10) * devices, devices)
    gang = (TaskGroup(tasks, demand),) if tasks > 1 else ()
    job_class = JobClass.TRIAL if trial else JobClass.BEST_EFFORT
    spec = JobSpec(
        ("train",),
        times(demand, tasks),
        job_class,
        SECOND,
        gang=gang,
        vc=vc,
        priority=priority,
        guarantee=guarantee,
        cells=CellRequest(lazy=lazy),
    )
    return Submitted("ann", "", spec)


def opportunistic(policy: str, devices: int) -> Callable[[], list[float]]:
    """A trial, or a job of higher priority, for which runs of one GPU each have to leave others' idle cells."""

    def measured() -> list[float]:
        site = Site()
        site.vc("a", "node", 1, VcPolicy(policy))
        site.vc("b", "node", NODES - 1)
        for _ in range(NODES * DEVICES):
            site.ask("a", 1, guarantee=OPPORTUNISTIC)
        took = site.cost(request("a", devices, trial=True, priority=1, guarantee=OPPORTUNISTIC))
        assert len(site.last.orders) >= devices
        return took

    return measured


def in_vain(policy: str) -> Callable[[], list[float]]:
    """The same, for more than there is."""

    def measured() -> list[float]:
        site = Site()
        site.vc("a", "node", NODES // 2, VcPolicy(policy))
        site.vc("b", "node", NODES // 2)
        for _ in range(NODES // 2):
            site.ask("b", DEVICES)
        for _ in range(NODES // 2 * DEVICES):
            site.ask("a", 1, guarantee=OPPORTUNISTIC)
        took = site.cost(request("a", DEVICES, NODES // 2 + 1, trial=True, priority=1, guarantee=OPPORTUNISTIC))
        assert not site.last.orders
        return took

    return measured


def waiting(count: int) -> Callable[[], list[float]]:
    """A trial that gets what is kept for others, who wait for opportunistic runs to leave."""

    def measured() -> list[float]:
        site = Site()
        site.vc("a", "node", NODES // 2, VcPolicy("fitgpp"))
        site.vc("b", "node", NODES // 2)
        for _ in range(NODES // 2 - count // 4):
            site.ask("a", DEVICES)
        for _ in range(NODES):
            site.ask("b", DEVICES, guarantee=OPPORTUNISTIC)
        for _ in range(count):
            site.ask("a", 2)
        assert len(site.state.earmarks_of) == count
        took = site.cost(request("a", DEVICES, trial=True))
        assert any(change.table == "earmark" and change.new is None for change in site.last.changes)
        return took

    return measured


def lazy(devices: int, tasks: int) -> Callable[[], list[float]]:
    """A job of higher priority, for which lazy runs of one GPU each lose their guarantee."""

    def measured() -> list[float]:
        site = Site()
        site.vc("a", "node", NODES // 2, VcPolicy("priority"))
        site.vc("b", "node", NODES // 2)
        for _ in range(NODES // 2 * DEVICES):
            site.ask("a", 1, lazy=True)
        took = site.cost(request("a", devices, tasks, priority=1))
        assert sum(change.table == "run" and change.old is not None for change in site.last.changes) >= devices * tasks
        return took

    return measured


def promoted(level: str, size: int) -> Callable[[], list[float]]:
    """Jobs of a node each that overflowed are promoted, as their virtual cluster gets cells for half of them."""

    def measured() -> list[float]:
        site = Site()
        site.vc("a", "node", NODES // 4)
        site.vc("b", "node", NODES // 4)
        for _ in range(NODES * 3 // 4):
            site.ask("a", DEVICES, guarantee=OVERFLOW)
        more = (Quota(POOL, "node", NODES // 4), Quota(POOL, level, NODES // 4 * DEVICES // size))
        took = site.cost(VcRequested("a", False, more))
        count = sum(change.table == "run" and change.new.guaranteed for change in site.last.changes)
        assert count == NODES // 4, count
        return took

    return measured


CASES: dict[str, Callable[[], list[float]]] = {
    "8 of 512 opportunistic runs leave, fitgpp": opportunistic("fitgpp", DEVICES),
    "8 of 512 opportunistic runs leave, lrtp": opportunistic("lrtp", DEVICES),
    "8 of 512 opportunistic runs leave, priority": opportunistic("priority", DEVICES),
    "256 opportunistic runs are not enough, fitgpp": in_vain("fitgpp"),
    "256 opportunistic runs are not enough, priority": in_vain("priority"),
    "4 of 4 that wait lose what is kept for them": waiting(4),
    "4 of 32 that wait lose what is kept for them": waiting(32),
    "8 lazy runs lose their guarantee": lazy(DEVICES, 1),
    "64 lazy runs lose their guarantee": lazy(DEVICES, 8),
    "16 jobs are promoted, a node each": promoted("node", 8),
    "16 jobs are promoted, 8 devices each": promoted("device", 1),
}


def run() -> list[Figure]:
    return [figure("suppositions", f"median, {name}", quantile(measured(), 0.5), "us") for name, measured in CASES.items()]


if __name__ == "__main__":
    for shown in run():
        print(f"{shown['metric']:70} {shown['value']:12,.0f} us")
