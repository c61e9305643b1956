"""Cost of a request for cells, decided and enacted in memory, in clusters as large as HiveD's simulated one (section 5.4).

Both readings of it: 8 pods of 256 nodes, and of 1,024. Five levels, four virtual clusters that own half of everything as pods
and half as smaller cells; a fifth of the requests is opportunistic; runs end at random, so that 55 % of the GPUs are in use.
The sizes are 1, 2, 4 or 8 GPUs, as HiveD's Go code was measured, or one whole cell of a level up to the node, as in the paper;
or gangs of 2, 4 or 8 whole nodes, the paper's jobs of 16 GPUs or more (table 2).
"""

from pathlib import Path
from random import Random
from time import thread_time_ns

from benchmarks.figures import Figure, figure, quantile
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.shape import leaves
from scheduler_service.core.engine import step
from scheduler_service.core.messages import (
    CancelRequested,
    Event,
    Prepared,
    RunExited,
    Running,
    RunReady,
    RunStarted,
    Step,
    Stopped,
    Submitted,
    VcRequested,
)
from scheduler_service.core.model import (
    Cluster,
    JobClass,
    JobSpec,
    Node,
    NodeDevice,
    NodeState,
    Run,
    RunKey,
    StopReason,
    TaskGroup,
)
from scheduler_service.core.model.settings import PoolPlan, Settings
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest, Guarantee, Owner, Quota
from scheduler_service.core.model.values import SECOND, Vector, times
from scheduler_service.core.state.state import State
from scheduler_service.policies.hived.policy import cells

PODS, VCS, LOAD, REQUESTS = 8, 4, 0.55, 10_000
NODE = Vector(64_000, 512 << 10, 8)
CELLS = ("device", "switch", "socket", "node")
WIDTHS = (2, 4, 8)
"""Nodes of a gang."""
SINGLE, WHOLE, GANGS = KINDS = ("1/2/4/8 GPUs", "whole cells", "gangs of 2/4/8 nodes")


class Cluster8:
    """Eight pods, loaded by a stream of requests."""

    def __init__(self, nodes: int, seed: int = 1) -> None:
        """`nodes` of each pod."""
        self.random = Random(seed)
        memory = _resident_mib()
        names = tuple(f"node-{i:05}" for i in range(PODS * nodes))
        plan = PoolPlan("p", names, (("pod", nodes),))
        rows: list[tuple[str, object, object]] = []
        for i, name in enumerate(names, 1):
            rows.append(("node", i, Node(i, name, "boot", NodeState.UP, NODE, ("socket", "switch"), 0)))
            for d in range(NODE.devices):
                device = NodeDevice(i, d, f"{name}-{d}", "gpu", 80 << 10, (d // 4, d // 2 % 2))
                rows.append(("device", (i, d), device))
        before = thread_time_ns()
        self.state = State(Cluster("bench", seed, next_node=len(names) + 1), Settings(pools=(plan,)))
        self.state.restore(iter(rows))
        self.seconds, self.mib = (thread_time_ns() - before) / 1e9, _resident_mib() - memory
        self.policy = cells()
        self.now, self.names, self.sequences = 0, names, dict.fromkeys(names, 0)
        self.running: list[RunKey] = []
        self.told: list[RunKey] = []
        self.used, self.total = 0, NODE.devices * len(names)
        self.reclaims = self.needless = 0
        for vc in range(VCS):
            owned = {"pod": 1, "node": nodes // 2, "socket": nodes // 2, "switch": nodes // 2, "device": nodes}
            self.take(VcRequested(f"vc{vc}", True, tuple(Quota("p", level, count) for level, count in owned.items())))

    def take(self, *events: Event) -> Step:
        taken = self._step(*events)
        self._adopt(taken)
        return taken

    def _step(self, *events: Event) -> Step:
        self.now += SECOND
        return step(self.state, events, self.now, self.random, self.policy)

    def _adopt(self, taken: Step) -> None:
        self.state.adopt()
        gathering: list[Event] = []
        for order in taken.orders:
            match order.desired:
                case Prepared(_, run):
                    self._runs(run)
                    gathering.append(RunReady(*self._report(run), run.key, self.names[run.node - 1], 29_500))
                case Running(_, run, gang):
                    if gang is None:
                        self._runs(run)
                    else:
                        gathering.append(RunStarted(*self._report(run), run.key))
                case Stopped(reason=StopReason.RECLAIMED):
                    self.told.append(order.key)
        if gathering:
            self.take(*gathering)

    def _runs(self, run: Run) -> None:
        if not run.task:
            self.running.append(run.key)
        self.used += run.demand.devices

    def _report(self, run: Run) -> tuple[str, str, int]:
        """The next one of the run's node."""
        name = self.names[run.node - 1]
        self.sequences[name] += 1
        return name, "boot", self.sequences[name]

    def request(self, kind: str) -> float:
        """Takes one, and all that follows from it; returns its microseconds."""
        vc = f"vc{self.random.randrange(VCS)}"
        level = self.random.choice(CELLS) if kind == WHOLE else ""
        devices = NODE.devices if kind == GANGS else 1 << (CELLS.index(level) if level else self.random.randrange(4))
        guarantee = Guarantee.OPPORTUNISTIC if self.random.random() < 0.2 else Guarantee.GUARANTEED
        demand = Vector(4_000 * devices, (16 << 10) * devices, devices)
        gang = (TaskGroup(self.random.choice(WIDTHS), demand),) if kind == GANGS else ()
        asked = CellRequest(levels=(level,) if level else ())
        total = times(demand, gang[0].size) if gang else demand
        spec = JobSpec(("train",), total, JobClass.BEST_EFFORT, 0, gang=gang, vc=vc, guarantee=guarantee, cells=asked)
        event = Submitted("ann", "", spec)
        begin = thread_time_ns()
        taken = self._step(event)
        took = (thread_time_ns() - begin) / 1000
        if any(isinstance(order.desired, Stopped) for order in taken.orders):
            self.state.undo()
            self.reclaims += 1
            self.needless += not gang and self._was_needless(vc, devices, level)
            taken = self._step(event)
        self._adopt(taken)
        self._follow()
        return took

    def _follow(self) -> None:
        """End the preempted runs and cancel their jobs; then end others until the load is reached."""
        while self.told:
            key = self.told.pop()
            if key.job_id in self.state.jobs.rows:
                self._over(key, yielded=True)
            if key.job_id in self.state.jobs.rows:
                self.take(CancelRequested(key.job_id))
        while self.used > LOAD * self.total:
            self._over(self.running[self.random.randrange(len(self.running))], yielded=False)

    def _over(self, key: RunKey, yielded: bool) -> None:
        """All tasks of a launch are."""
        at = self.running.index(key._replace(task=0))
        self.running[at] = self.running[-1]
        self.running.pop()
        runs = self.state.runs_of(key.job_id)
        self.used -= sum(run.demand.devices for run in runs)
        self.take(*(RunExited(*self._report(run), run.key, yielded=yielded) for run in runs))

    # ---- evictions -----------------------------------------------------------------------------------------------------

    def _was_needless(self, vc: str, devices: int, level: str) -> bool:
        """Whether idle leaves, with nobody on them, were to be had by right: in a cell that is bound to the virtual cluster, or
        in one that could be bound to it with everybody else's promises kept. Looks at every cell there is."""
        pools = self.state.pools
        assert pools is not None
        pool, owner = pools.pools["p"], Owner(self.state.vc_ids[vc])
        number = pool.shape.levels.index(level) if level else -1
        for slot in range(len(self.names)):
            for mask, whose in pool.units_at(slot).items():
                if whose == owner and _has(pool, slot, mask, devices, number):
                    return True
        return any(self._could_bind(pool, owner, at, devices, number) for at in range(len(pool.shape.levels)))

    def _could_bind(self, pool: Pool, owner: Owner, level: int, devices: int, number: int) -> bool:
        if pool.shape.size(level) < devices or not pool.promises.free_of(owner, level):
            return False
        for index in range(self.total // pool.shape.size(level)):
            inside = leaves(pool.shape, level, index)
            if any(bound & mask for slot, mask in inside for bound in pool.units_at(slot)):
                continue
            if any(_has(pool, slot, mask, devices, number) for slot, mask in inside):
                before = pool.shortfall()
                pool.bind(level, index, owner)
                kept = pool.shortfall() == before
                pool.unbind(level, index)
                if kept:
                    return True
        return False


def _has(pool: Pool, slot: int, mask: int, devices: int, number: int) -> bool:
    """Whether so many leaves of these are idle, or (a level's number) a whole cell of them."""
    idle = pool.idle_leaves(slot) & mask
    if number < 0:
        return idle.bit_count() >= devices
    whole = (1 << devices) - 1
    return any(idle >> first & whole == whole for first in range(0, pool.shape.devices, devices))


def _resident_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024


def measure(cluster: Cluster8, requests: int, kind: str) -> list[float]:
    """Microseconds of each request, ascending, once the cluster is loaded."""
    while cluster.used < LOAD * cluster.total - NODE.devices * (max(WIDTHS) if kind == GANGS else 1):
        cluster.request(kind)
    cluster.reclaims = cluster.needless = 0
    return sorted(cluster.request(kind) for _ in range(requests))


def run() -> list[Figure]:
    figures = []
    for nodes in (256, 1_024):
        for kind in KINDS:
            cluster = Cluster8(nodes)
            gpus = f"{cluster.total:,} GPUs"
            if kind == SINGLE:
                figures += [
                    figure("cells", f"building the state, {gpus}", cluster.seconds, "s", at_most=3),
                    figure("cells", f"memory of the state, {gpus}", cluster.mib, "MiB", at_most=1024),
                ]
            took = measure(cluster, REQUESTS, kind)
            what = f"{gpus}, {kind}"
            print(f"{what}: {cluster.reclaims} of {REQUESTS} requests had opportunistic runs leave")
            p50, mean, p99 = quantile(took, 0.5), sum(took) / len(took), quantile(took, 0.99)
            most = (300, 400, 2_000) if kind == GANGS else (100, 200, 2_000)
            figures += [
                figure("cells", f"{name} of a request, {what}", value, "us", at_most=limit)
                for name, value, limit in zip(("p50", "mean", "p99"), (p50, mean, p99), most, strict=True)
            ]
            if kind != GANGS:
                figures.append(figure("cells", f"needless evictions in {REQUESTS:,}, {what}", cluster.needless, "", at_most=40))
    return figures


if __name__ == "__main__":
    for measured in run():
        print(measured)
