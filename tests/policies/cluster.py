"""Clusters built row by row, so that a test can have any that the rules allow."""

from collections.abc import Sequence
from functools import reduce
from random import Random

from hypothesis import strategies as st

from scheduler_service.core.invariants import check
from scheduler_service.core.model import (
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
    TaskGroup,
)
from scheduler_service.core.model.launch_time import limit_at
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, ZERO, Vector, add, fits, sub
from scheduler_service.core.state.state import State
from scheduler_service.policies.placing.closest import pick_devices

PHASES = (RunPhase.STARTING, RunPhase.RUNNING, RunPhase.RUNNING, RunPhase.STOPPING)


class Builder:
    """Adds nodes and runs to an empty state."""

    def __init__(self) -> None:
        self.state = State(Cluster("test", 0))

    def node(self, capacity: Vector) -> int:
        cluster = self.state.cluster
        number = cluster.next_node
        self.state.put(self.state.cluster_table, 0, with_changes(cluster, next_node=number + 1))
        self.state.put(self.state.nodes, number, Node(number, f"n{number}", "a", NodeState.UP, capacity, (), 0))
        for i in range(capacity.devices):
            self.state.put(self.state.devices, (number, i), NodeDevice(number, i, f"{i}", "gpu", 1))
        return number

    def silence(self, node: int) -> None:
        self.state.put(self.state.nodes, node, with_changes(self.state.nodes.rows[node], state=NodeState.SILENT))

    def job(self, demand: Vector, job_class: JobClass = JobClass.BEST_EFFORT, grace: int = 0, count: int = 0) -> Job:
        cluster = self.state.cluster
        job = Job(cluster.next_job, JobSpec(("true",), demand, job_class, grace * SECOND), "ann", "", 0)
        job = with_changes(job, preempted_for_trial=count)
        self.state.put(self.state.cluster_table, 0, with_changes(cluster, next_job=job.id + 1))
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
        if not fits(demand, self.state.free_resources.free(node)):
            return None
        job = self.job(demand, JobClass.TRIAL if trial else JobClass.BEST_EFFORT, grace, count)
        devices = pick_devices(self.state, node, demand.devices)
        run = Run(job.id, 1, node, devices, demand, phase, 0)
        if phase is RunPhase.STOPPING:
            run = with_changes(run, stop_reason=StopReason.CANCELLED, stop_us=0)
        self.state.put(self.state.jobs, job.id, with_changes(job, run=1, state=JobState(phase + 1)))
        self.state.put(self.state.runs, run.key, run)
        return run.key

    def gang(self, places: Sequence[tuple[int, Vector]], *, grace: int = 0, count: int = 0) -> int | None:
        """A running job with a task on each of the nodes; None where they have no room for it."""
        free = {node: self.state.free_resources.free(node) for node, _ in places}
        for node, demand in places:
            if not fits(demand, free[node]):
                return None
            free[node] = sub(free[node], demand)
        total = reduce(add, (demand for _, demand in places), ZERO)
        groups = tuple(TaskGroup(1, demand) for _, demand in places)
        job = self.job(total, grace=grace, count=count)
        gang = with_changes(job, spec=with_changes(job.spec, gang=groups), run=1, state=JobState.RUNNING, rendezvous="n1:1")
        self.state.put(self.state.jobs, job.id, gang)
        for rank, (node, demand) in enumerate(places):
            devices = pick_devices(self.state, node, demand.devices)
            run = Run(job.id, 1, node, devices, demand, RunPhase.RUNNING, 0, task=rank)
            self.state.put(self.state.runs, run.key, run)
        return job.id

    def expect(self, key: RunKey | None, *, estimate: int = 0, limit: int = 0, ran: int = 0, began: int = 0) -> None:
        """How long the job of this run is to take, and has taken; in seconds."""
        if key is None:
            return
        job, run = self.state.jobs.rows[key.job_id], self.state.runs.rows[key]
        spec = with_changes(job.spec, estimate_us=estimate * SECOND)
        row = with_changes(job, spec=spec, time_limit_us=limit * SECOND, ran_us=ran * SECOND)
        self.state.put(self.state.jobs, job.id, row)
        if run.phase is RunPhase.RUNNING:
            started = with_changes(run, started_us=began * SECOND)
            self.state.put(self.state.runs, key, started)
            self.state.put(
                self.state.jobs, job.id, with_changes(row, limit_us=limit_at(row, [started], self.state.cluster.clock_us))
            )

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
