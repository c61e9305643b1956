"""Clusters built row by row, so that a test can have any that the rules allow."""

from random import Random

from hypothesis import strategies as st

from scheduler_service.core.invariants import check
from scheduler_service.core.job import (
    Cluster,
    Job,
    JobClass,
    JobSpec,
    JobState,
    Node,
    NodeDevice,
    NodeState,
    Run,
    RunKey,
    RunPhase,
    StopReason,
)
from scheduler_service.core.rows import changed
from scheduler_service.core.state import State
from scheduler_service.core.values import SECOND, Vector, fits
from scheduler_service.policies.fitting import pick_devices

PHASES = (RunPhase.STARTING, RunPhase.RUNNING, RunPhase.RUNNING, RunPhase.STOPPING)


class Builder:
    """Adds nodes and runs to an empty state."""

    def __init__(self) -> None:
        self.state = State(Cluster("test", 0))

    def node(self, capacity: Vector) -> int:
        cluster = self.state.cluster
        number = cluster.next_node
        self.state.put(self.state.cluster_table, 0, changed(cluster, next_node=number + 1))
        self.state.put(self.state.nodes, number, Node(number, f"n{number}", "a", NodeState.UP, capacity, (), 0))
        for i in range(capacity.devices):
            self.state.put(self.state.devices, (number, i), NodeDevice(number, i, f"{i}", "gpu", 1))
        return number

    def silence(self, node: int) -> None:
        self.state.put(self.state.nodes, node, changed(self.state.nodes.rows[node], state=NodeState.SILENT))

    def job(self, demand: Vector, job_class: JobClass = JobClass.BEST_EFFORT, grace: int = 0, count: int = 0) -> Job:
        cluster = self.state.cluster
        job = Job(cluster.next_job, JobSpec(("true",), demand, job_class, grace * SECOND), "ann", "", 0)
        job = changed(job, preempted_for_trial=count)
        self.state.put(self.state.cluster_table, 0, changed(cluster, next_job=job.id + 1))
        self.state.put(self.state.jobs, job.id, job)
        return job

    def run(
        self,
        node: int,
        demand: Vector,
        *,
        grace: int = 0,
        count: int = 0,
        phase: RunPhase = RunPhase.RUNNING,
        trial: bool = False,
    ) -> RunKey | None:
        """None where the node has no room for it."""
        if not fits(demand, self.state.room.free(node)):
            return None
        job = self.job(demand, JobClass.TRIAL if trial else JobClass.BEST_EFFORT, grace, count)
        devices = pick_devices(self.state, node, demand.devices)
        run = Run(job.id, 1, node, devices, demand, phase, 0)
        if phase is RunPhase.STOPPING:
            run = changed(run, stop_reason=StopReason.CANCELLED, stop_us=0)
        for i in devices:
            self.state.put(self.state.devices, (node, i), changed(self.state.devices.rows[(node, i)], group=(run.key,)))
        self.state.put(self.state.jobs, job.id, changed(job, run=1, state=JobState(phase + 1)))
        self.state.put(self.state.runs, run.key, run)
        return run.key

    def trial(self, demand: Vector) -> Job:
        return self.job(demand, JobClass.TRIAL)

    def done(self) -> State:
        check(self.state)
        self.state.adopt()
        return self.state


CAPACITIES = st.builds(Vector, st.integers(1, 12), st.integers(1, 12), st.integers(0, 8))
AMOUNTS = st.builds(Vector, st.integers(0, 6), st.integers(0, 6), st.integers(0, 4))


@st.composite
def clusters(draw: st.DrawFn) -> State:
    """Some nodes, one of them perhaps silent, with runs of all kinds on them."""
    built = Builder()
    nodes = [built.node(capacity) for capacity in draw(st.lists(CAPACITIES, min_size=1, max_size=4))]
    for _ in range(draw(st.integers(0, 14))):
        built.run(
            draw(st.sampled_from(nodes)),
            draw(AMOUNTS),
            grace=draw(st.sampled_from((0, 0, 1, 2, 5))),
            count=draw(st.integers(0, 2)),
            phase=draw(st.sampled_from(PHASES)),
            trial=draw(st.integers(0, 4)) == 0,
        )
    if draw(st.booleans()):
        built.silence(draw(st.sampled_from(nodes)))
    state = built.state
    state.adopt()
    return state


def seeded(seed: int = 0) -> Random:
    return Random(seed)
