"""How close the devices of a task are, and how fragmented idle ones, on the Philly trace: by three rules of placement.

Nodes have two sockets of two switches of two GPUs. Jobs start in the order in which they come, under each rule in the same
way. `EBB_PHILLY` names the trace's file, as for sim_philly: its part in the project has hardly a job of several devices.
"""

from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

from benchmarks.figures import Figure, figure
from benchmarks.sim_philly import named_trace
from scheduler_service.core.cells.closeness import closeness
from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Place, Plan, Rng, Spot
from scheduler_service.core.model import Job
from scheduler_service.core.model.inventory import Device, Inventory
from scheduler_service.core.model.values import SECOND, Micros, Vector, first_of, mask_of
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.core.state.state import State
from scheduler_service.policies.placing.first_fit import place, place_on_first_node
from scheduler_service.policies.queueing.in_order import serve_in_order
from scheduler_service.sim.csv_rows import Skipped
from scheduler_service.sim.workloads import Philly, arrivals_of
from scheduler_service.sim.workloads.assuming import Trials
from scheduler_service.sim.world import Site, World

BENCH = "affinity"
PATHS = ((0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0), (1, 1), (1, 1))
NODES = (80, 140)
"""Too few for the jobs at times, and enough at all times."""
Rule = Callable[[State, Job], Place | None]


def first_devices(state: State, job: Job) -> Place | None:
    """A job of one task on the first node that has room, and there on the first idle devices."""
    spec = job.spec
    if spec.gang:
        return place(state, job)
    node = state.free_resources.first_fit(spec.demand, state.suitable_for(spec))
    if node is None:
        return None
    return Place(job.id, (Spot(node, first_of(state.idle_devices.get(node, 0), spec.demand.devices)),))


RULES: dict[str, Rule] = {
    "the closest": place,
    "the first node, there the closest": place_on_first_node,
    "the first node, there the first": first_devices,
}


class Seen:
    """Observations of a simulation while it runs."""

    def __init__(self) -> None:
        self.within: Counter[tuple[int, str]] = Counter()
        """Tasks by number of devices and the smallest part of the node that contains all of them."""
        self.idle = self.fragments = 0
        """Idle device-microseconds, and those of them on nodes that were partly in use."""
        self._at: Micros = 0
        self._now = 0, 0

    def placed(self, state: State, action: Place) -> None:
        for node, devices in action.spots:
            if 1 < len(devices) < len(PATHS):
                self.within[len(devices), closeness(state.device_tree(node), mask_of(devices))[0]] += 1

    def decided(self, state: State) -> None:
        """It is called after each decision: what is idle stays so until the next one, all but what ends before."""
        took, self._at = state.cluster.clock_us - self._at, state.cluster.clock_us
        self.idle += took * self._now[0]
        self.fragments += took * self._now[1]
        counts = [mask.bit_count() for mask in state.idle_devices.values()]
        self._now = sum(counts), sum(count for count in counts if count < len(PATHS))


def run() -> list[Figure]:
    file = named_trace()
    if file is None:
        print("EBB_PHILLY names no file of the trace, without which nothing is to be seen here")
        return []
    workload = Philly(file=file, jobs=20_000, cpus_per_gpu=0, memory_gib_per_gpu=0, trials=Trials(share=0))
    cases = ((nodes, name, rule) for nodes in NODES for name, rule in RULES.items())
    return [
        line for nodes, name, rule in cases for line in _figures(f"{nodes} nodes, {name}", *_simulated(workload, nodes, rule))
    ]


def _simulated(workload: Philly, nodes: int, rule: Rule) -> tuple[Seen, float]:
    """Return the observations, and the mean waiting time of jobs in hours."""
    seen, waits = Seen(), list[Micros]()

    def policy(state: State, _rng: Rng) -> Proposals:
        proposals = serve_in_order(state, OWN_LANES, rule)
        answer: str | None = None
        while (plan := _next(proposals, answer)) is not None:
            answer = yield plan
            for action in plan if answer is None else ():
                if isinstance(action, Place):
                    seen.placed(state, action)
        seen.decided(state)

    devices = tuple(Device(index, f"{index}", "P100", 16_384, path) for index, path in enumerate(PATHS))
    inventory = Inventory(Vector(64_000, 1 << 19, len(PATHS)), ("socket", "switch"), devices)
    site = Site((inventory,) * nodes, policy)
    arrivals = arrivals_of(workload, 0, Path(), None, site.nodes, Skipped())
    World(site, arrivals, lambda life: waits.append(life.launches[0].placed_us - life.job.submit_us)).run()
    return seen, sum(waits) / len(waits) / 3600 / SECOND


def _next(proposals: Generator[Plan, str | None, object], answer: str | None) -> Plan | None:
    try:
        return proposals.send(answer)
    except StopIteration:
        return None


def _figures(name: str, seen: Seen, wait_h: float) -> list[Figure]:
    figures = []
    for devices, part in ((2, "switch"), (4, "socket")):
        all_ = sum(count for (number, _), count in seen.within.items() if number == devices)
        figures.append(
            figure(BENCH, f"{name}: tasks of {devices} within one {part}", 100 * seen.within[devices, part] / all_, "%")
        )
    figures.append(figure(BENCH, f"{name}: of idle GPUs, on nodes in use in part", 100 * seen.fragments / seen.idle, "%"))
    return [*figures, figure(BENCH, f"{name}: mean wait", wait_h, "h")]
