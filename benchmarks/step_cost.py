"""Cost of a step: it must depend on what the step changes, not on the number of live jobs.

Clusters under FitGpp, loaded until jobs queue, so that trials have to preempt; then a stream of exits, starts and submits
of both classes, one event per step. A step is timed from the event to the adopted state. Report numbers and job IDs are
determined outside the timed part.
"""

from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from time import thread_time_ns

from benchmarks.figures import Figure, figure, quantile
from scheduler_service.core.engine import step
from scheduler_service.core.messages import Event, Launch, NodeSeen, RunExited, RunStarted, Step, Stopped, Submitted
from scheduler_service.core.model import Cluster, JobClass, JobSpec, RunKey, StopReason
from scheduler_service.core.model.inventory import Device, Inventory
from scheduler_service.core.model.values import SECOND, Micros, Vector
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.options import PreemptionSettings

LARGE_NODE = Vector(128_000, 1 << 20, 8)
PAPER_NODE = Vector(32_000, 256 << 10, 8)
BOOT = "boot"


class Stream:
    """A cluster under load: each event follows from what the steps before it ordered."""

    def __init__(self, nodes: int, capacity: Vector, seed: int = 1, policy: str = "fitgpp") -> None:
        self.random = Random(seed)
        made = stages(policy, PreemptionSettings())
        self.state = State(Cluster("bench", seed), order_of=order_of(made))
        self.policy = made.policy
        self.capacity = capacity
        self.now = 0
        self.rows_put = 0
        """The number of rows written by the last step."""
        self.sequences: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.to_start: deque[tuple[int, RunKey]] = deque()
        self.to_stop: deque[tuple[int, RunKey]] = deque()
        self.running: list[tuple[int, RunKey]] = []
        self.at: dict[RunKey, int] = {}
        """The index of each run in `running`."""
        for i in range(nodes):
            name = f"node-{i:05}"
            self.names[i + 1] = name
            self.sequences[name] = 0
            devices = tuple(Device(d, f"{name}-gpu-{d}", "gpu", 80 << 10) for d in range(capacity.devices))
            self.take(NodeSeen(name, BOOT, Inventory(capacity, (), devices)))

    def take(self, *events: Event, after: Micros = SECOND) -> Step:
        self.now += after
        taken = step(self.state, events, self.now, self.random, self.policy)
        self.rows_put = len(self.state.journal.entries)
        self.state.adopt()
        for order in taken.orders:
            if isinstance(order.desired, Launch):
                if order.generation > 1:  # a running launch gets another share plan
                    continue
                self.to_start.append((order.node, order.key))
            elif isinstance(order.desired, Stopped) and order.desired.reason is StopReason.PREEMPTED:
                self.to_stop.append((order.node, order.key))
        return taken

    def fill(self, live: int) -> None:
        """Submits until so many jobs are live, and lets what was started begin."""
        while len(self.state.jobs.rows) < live:
            self.take(self.submit(JobClass.BEST_EFFORT))
        while self.to_start:
            self.take(self.start())

    def submit(self, job_class: JobClass) -> Submitted:
        devices = self.random.choice((1, 1, 2, 2, 4) if job_class is JobClass.TRIAL else (1, 1, 1, 2, 2, 4, 8))
        part = Vector(*(amount * devices // self.capacity.devices for amount in self.capacity))
        grace = self.random.randrange(0, 1200) * SECOND
        return Submitted("ann", "", JobSpec(("train",), part, job_class, grace))

    def start(self) -> RunStarted:
        node, key = self.to_start.popleft()
        self.at[key] = len(self.running)
        self.running.append((node, key))
        return RunStarted(self.names[node], BOOT, self._sequence(node), key)

    def exit(self) -> RunExited:
        """A run that was told to stop; else any."""
        if self.to_stop:
            node, key = self.to_stop.popleft()
            return self._over(node, key, yielded=True)
        return self._over(*self.running[self.random.randrange(len(self.running))], yielded=False)

    def _over(self, node: int, key: RunKey, yielded: bool) -> RunExited:
        place = self.at.pop(key, None)
        if place is not None:
            last = self.running.pop()
            if last[1] != key:
                self.running[place] = last
                self.at[last[1]] = place
        else:  # it was told to stop before it began
            self.to_start.remove((node, key))
        return RunExited(self.names[node], BOOT, self._sequence(node), key, yielded=yielded)

    def _sequence(self, node: int) -> int:
        name = self.names[node]
        self.sequences[name] += 1
        return self.sequences[name]

    def events(self, live: int) -> Iterator[Event]:
        """Keeps the number of live jobs; one submit in three is a trial."""
        while True:
            if self.to_start:
                yield self.start()
            elif self.to_stop or (len(self.state.jobs.rows) >= live and self.running):
                yield self.exit()
            else:
                yield self.submit(JobClass.TRIAL if self.random.random() < 1 / 3 else JobClass.BEST_EFFORT)


def measure(stream: Stream, live: int, steps: int) -> list[float]:
    """Microseconds of each step, ascending: processor time, so that other work on the machine does not count."""
    events = stream.events(live)
    times = []
    for _ in range(steps):
        event = next(events)
        begin = thread_time_ns()
        stream.take(event)
        times.append((thread_time_ns() - begin) / 1000)
    return sorted(times)


def _large(live: int, steps: int, report: Callable[[str], None]) -> list[float]:
    stream = Stream(5_000, LARGE_NODE)
    stream.fill(live)
    times = measure(stream, live, steps)
    used = sum(run.demand.devices for run in stream.state.runs.rows.values())
    report(f"{live} live jobs: {len(stream.state.runs.rows)} running on {used} of {5_000 * 8} GPUs")
    return times


def run() -> list[Figure]:
    few = _large(2_000, 4_000, print)
    many = _large(20_000, 4_000, print)
    small = Stream(84, PAPER_NODE)
    small.fill(500)
    paper = measure(small, 500, 20_000)
    p50, of_few = quantile(many, 0.5), quantile(few, 0.5)
    return [
        figure("step_cost", "p50 of a step, 5,000 nodes, 2,000 live jobs", of_few, "us", at_most=200),
        figure("step_cost", "p50 of a step, 5,000 nodes, 20,000 live jobs", p50, "us", at_most=200),
        figure("step_cost", "p99 of a step, 5,000 nodes, 20,000 live jobs", quantile(many, 0.99), "us", at_most=2_000),
        figure("step_cost", "p50 at 20,000 live jobs over p50 at 2,000", p50 / of_few, "x", at_most=2),
        figure("step_cost", "mean of a step, 84 nodes, 500 live jobs", sum(paper) / len(paper), "us", at_most=60),
    ]


if __name__ == "__main__":
    for measured in run():
        print(measured)
