"""Reclaims in small random hierarchies, compared with an exhaustive search: how many runs leave, and how many would have to.

What remains above the least is in docs/adr/0021-cells.md (Reclaims that cost more than they would have to).
"""

from collections import Counter
from itertools import count
from random import Random

from scheduler_service.core.cells.positions import positions
from scheduler_service.core.engine import step
from scheduler_service.core.messages import (
    CancelRequested,
    Event,
    NodeSeen,
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
from scheduler_service.core.model import Cluster, Earmark, Run, RunPhase
from scheduler_service.core.model.settings import PoolPlan, Settings
from scheduler_service.core.model.tenants.virtual_clusters import Binding, Guarantee, Owner, Quota
from scheduler_service.core.model.values import SECOND, mask_of
from scheduler_service.core.state.state import State
from scheduler_service.policies.hived.policy import cells
from tests.policies.least_evicted import least_as_good, least_evicted, opportunistic_jobs_of
from tests.policies.tenants import inventory, request


class Site:
    """Two to four nodes of four devices, with racks or without; two virtual clusters that own some of them. Its steps are not
    checked as a `Driver`'s are, of which there are others; so there can be many of them."""

    def __init__(self, seed: int) -> None:
        self.random, self.steps, self.reports = Random(seed), count(1), Counter[str]()
        racks = self.random.random() < 0.5
        nodes = self.random.choice([2, 4]) if racks else self.random.choice([2, 3, 4])
        self.names = tuple(f"n{i}" for i in range(nodes))
        self.state = State(Cluster("site", seed), Settings(pools=(PoolPlan("p", self.names, (("rack", 2),) if racks else ()),)))
        self.policy = cells()
        self.take(*(NodeSeen(name, "a", inventory("FOUR")) for name in self.names))
        sizes = {"device": 1, "switch": 2, "node": 4} | ({"rack": 8} if racks else {})
        for name in "AB":
            owned = [level for level, size in sizes.items() for _ in range(self.random.randint(0, nodes * 2 // size))]
            while isinstance(self.take(VcRequested(name, True, _quotas(owned))).replies[0], Exception):
                owned.remove(self.random.choice(owned))

    def take(self, *events: Event) -> Step:
        taken = self.tried(*events)
        self.adopt(taken)
        return taken

    def tried(self, *events: Event) -> Step:
        number = next(self.steps)
        return step(self.state, events, number * SECOND, Random(number), self.policy)

    def adopt(self, taken: Step) -> None:
        """And lets come up what was started."""
        self.state.adopt()
        up: list[Event] = []
        for order in taken.orders:
            match order.desired:
                case Prepared(_, run):
                    up.append(self.ready(run))
                case Running(_, run):
                    up.append(RunStarted(*self.report(run), run.key))
        if up:
            self.take(*up)

    def ready(self, run: Run) -> RunReady:
        return RunReady(*self.report(run), run.key, "host", 1)

    def report(self, run: Run) -> tuple[str, str, int]:
        name = self.names[run.node - 1]
        self.reports[name] += 1
        return name, "a", self.reports[name]

    def end(self, stopping: bool, job_ids: list[int]) -> None:
        for job_id in job_ids:
            runs = self.state.runs_of(job_id)
            self.take(*(RunExited(*self.report(run), run.key, yielded=stopping) for run in runs))

    def jobs(self, stopping: bool) -> list[int]:
        runs = self.state.runs.rows.values()
        return sorted({run.job_id for run in runs if (run.phase is RunPhase.STOPPING) == stopping})

    def submit(self, found: Counter[str]) -> None:
        rng = self.random
        sizes = [rng.randint(1, 4)] if rng.random() < 0.7 else [rng.randint(1, 4) for _ in range(rng.randint(2, 3))]
        guarantee = Guarantee.OPPORTUNISTIC if rng.random() < 0.55 else Guarantee.GUARANTEED
        vc, grace = rng.choice("AB"), rng.randint(0, 30)
        event = Submitted("ann", "", request(vc, *sizes, guarantee=guarantee, grace=grace))
        taken = self.tried(event)
        leave = {order.key for order in taken.orders if isinstance(order.desired, Stopped)}
        if leave and guarantee is Guarantee.GUARANTEED:
            self.state.undo()
            self.compare(found, taken, Owner(self.state.vc_ids[vc]), sizes, len(leave))
            taken = self.tried(event)
        self.adopt(taken)

    def compare(self, found: Counter[str], taken: Step, owner: Owner, sizes: list[int], leave: int) -> None:
        assert self.state.pools is not None
        pool, opportunistic_jobs = self.state.pools.pools["p"], opportunistic_jobs_of(self.state)
        least = least_evicted(pool, opportunistic_jobs, owner, sizes)
        assert least is not None
        kind = "gangs" if len(sizes) > 1 else "single tasks"
        found[f"reclaims for {kind}"] += 1
        found[f"runs for {kind}"] += leave
        found[f"more than the least for {kind}"] += leave > least
        found[f"runs above the least for {kind}"] += leave - least
        new = [row for _, _, _, row in taken.entries]
        kept = [row for row in new if isinstance(row, Earmark)]
        if len(sizes) == 1 and kept:
            (devices,), position = kept[-1].devices, self.state.pools.positions[kept[-1].node]
            binds = [(pool.shape.levels.index(row.level), row.index) for row in new if isinstance(row, Binding)]
            least = least_as_good(
                pool, opportunistic_jobs, owner, (position.slot, positions(position, mask_of(devices))), binds
            )
            above = any(level > pool.shape.node for level, _ in binds)
            found["as good and cheaper, rack" if above else "as good and cheaper"] += leave > least

    def live(self, found: Counter[str]) -> None:
        """One thing happens."""
        x = self.random.random()
        if x < 0.62:
            self.submit(found)
        elif x < 0.85:
            self.end(False, self.random.sample(running, 1) if (running := self.jobs(False)) else [])
        elif x < 0.95:
            self.end(True, self.jobs(True))
        elif jobs := sorted(self.state.jobs.rows):
            self.take(CancelRequested(self.random.choice(jobs)))


def _quotas(owned: list[str]) -> tuple[Quota, ...]:
    return tuple(Quota("p", level, cells) for level, cells in sorted(Counter(owned).items()))


def test_reclaims_cost_hardly_more_runs_than_they_would_have_to() -> None:
    """For one task the fewest runs leave of all places that are as good for its virtual cluster, up to the level of nodes.
    The rest is as counted here: a task takes the tightest unit whoever is there, of racks the one with the fewest leaves in use
    is bound, and the tasks of a gang are placed one after the other."""
    found: Counter[str] = Counter()
    for seed in range(60):
        site = Site(seed)
        for _ in range(60):
            site.live(found)
    assert +found == {
        "reclaims for single tasks": 65,
        "runs for single tasks": 94,
        "more than the least for single tasks": 5,
        "runs above the least for single tasks": 7,
        "as good and cheaper, rack": 1,
        "reclaims for gangs": 20,
        "runs for gangs": 37,
        "more than the least for gangs": 4,
        "runs above the least for gangs": 9,
    }
