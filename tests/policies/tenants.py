"""Clusters of cells for tests: nodes with trees, virtual clusters, jobs that ask for cells."""

from collections.abc import Sequence
from typing import Any

from scheduler_service.core.errors import Refused
from scheduler_service.core.messages import (
    Accepted,
    NodeSeen,
    RunExited,
    RunReady,
    RunStarted,
    Step,
    Submitted,
    VcChanged,
    VcDeleteRequested,
    VcRequested,
)
from scheduler_service.core.model import Configuration, Job, JobClass, JobSpec, JobState, Reason, ShareMode, TaskGroup
from scheduler_service.core.model.inventory import Device, Inventory
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import PoolPlan, Settings
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest, Guarantee, Owner, Pin, Quota, Within
from scheduler_service.core.model.values import SECOND, ZERO, Vector, add
from scheduler_service.policies.hived.policy import cells
from tests.core.driver import Driver

TREES = {
    "DGX2": (("socket", "switch"), (2, 4, 2)),
    "P100": (("socket", "switch"), (2, 2, 2)),
    "CT1": ((), (2,)),
    "FOUR": (("switch",), (2, 2)),
    "SIX": (("switch",), (3, 2)),
}
"""Model -> levels, outermost first, and how many of the next each splits into."""
CPUS = {"CPU4": 4, "CPU6": 6}
"""Nodes without devices: how many CPUs they have."""
OPPORTUNISTIC, OVERFLOW = Guarantee.OPPORTUNISTIC, Guarantee.OVERFLOW


def inventory(model: str) -> Inventory:
    if model in CPUS:
        return Inventory(Vector(1000 * CPUS[model], 1024 * CPUS[model], 0))
    levels, fans = TREES[model]
    paths: list[tuple[int, ...]] = [()]
    for fan in fans:
        paths = [(*path, i) for path in paths for i in range(fan)]
    devices = tuple(Device(i, f"GPU-{i}", model, 16_384, path[:-1]) for i, path in enumerate(paths))
    return Inventory(Vector(4_000 * len(devices), 16_384 * len(devices), len(devices)), levels, devices)


class Tenants(Driver):
    """A cluster with virtual clusters; jobs are named by what they ask, and start as soon as they are placed."""

    def __init__(self, nodes: dict[str, str], plans: Sequence[PoolPlan] = (), **settings: Any) -> None:
        """`nodes`: name -> model, in the order in which they join."""
        super().__init__(cells(), Settings(pools=tuple(plans), **settings))
        for name, model in nodes.items():
            self.step(NodeSeen(name, "a", inventory(model)))

    def vc(self, name: str, *quotas: tuple[str, str, int], pins: Sequence[tuple[str, str, str, int]] = (), **more: Any) -> int:
        """Creates it; returns its id."""
        given = tuple(Quota(*quota) for quota in quotas)
        answer = self.reply(VcRequested(name, True, given, tuple(Pin(*pin) for pin in pins), **more))
        assert isinstance(answer, VcChanged), answer
        return answer.vc

    def doomed(self, name: str, pool: str, level: str) -> int:
        """How many of the free cells that it owns there is nothing healthy for, even if nobody else asks."""
        assert self.state.pools is not None
        cells = self.state.pools.pools[pool]
        return cells.count_doomed(Owner(self.state.vc_ids[name]), cells.shape.levels.index(level))

    def change(self, name: str, *quotas: tuple[str, str, int]) -> Step:
        return self.step(VcRequested(name, False, tuple(Quota(*quota) for quota in quotas)))

    def delete(self, name: str) -> Step:
        return self.step(VcDeleteRequested(name))

    def ask(self, vc: str, *sizes: int, **wants: Any) -> int:
        """Submits a job, with a task of each of these sizes; returns its id. Its tasks run if it was placed."""
        answer = self.asked(vc, *sizes, **wants)
        assert isinstance(answer, Accepted), answer
        self.begin(answer.job_id)
        return answer.job_id

    def refused(self, vc: str, *sizes: int, **wants: Any) -> Refused:
        answer = self.asked(vc, *sizes, **wants)
        assert isinstance(answer, Refused), answer
        return answer

    def asked(self, vc: str, *sizes: int, user: str = "ann", **wants: Any) -> Any:
        return self.reply(Submitted(user, "", request(vc, *sizes, **wants)))

    def ask_host(self, vc: str, cpu_milli: int, memory_mib: int, **wants: Any) -> Any:
        """The same for one task without devices; the answer, where it is a refusal."""
        spec = with_changes(request(vc, 1, cpus=True, **wants), demand=Vector(cpu_milli, memory_mib))
        answer = self.reply(Submitted("ann", "", spec))
        if not isinstance(answer, Accepted):
            return answer
        self.begin(answer.job_id)
        return answer.job_id

    def begin(self, *job_ids: int) -> None:
        """The tasks of jobs that were placed come up."""
        for job_id in job_ids:
            job = self.job(job_id)
            if job.state is not JobState.STARTING:
                continue
            ranks = range(len(job.launch_spec.tasks()))
            if job.launch_spec.gang:
                self.step(*(self.ready(job_id, rank) for rank in ranks))
            self.step(*(self.started(job_id, rank) for rank in ranks))

    def end(self, *job_ids: int) -> None:
        """The jobs' tasks, all of them, are over."""
        for job_id in job_ids:
            self.step(*[self.exited(job_id, run.task) for run in self.state.runs_of(job_id)])
        for job_id in sorted(self.state.jobs.rows):
            self.begin(job_id)

    def leave(self, *job_ids: int) -> None:
        """They save their work and go, as they were told to."""
        for job_id in job_ids:
            self.step(*[self.exited(job_id, run.task, yielded=True) for run in self.state.runs_of(job_id)])
        for job_id in sorted(self.state.jobs.rows):
            self.begin(job_id)

    def at(self, job_id: int) -> list[str]:
        """Where the job's tasks are, by rank: "node[first..last]" or "node[i]" or "node[i,j]"."""
        places = []
        for run in self.state.runs_of(job_id):
            first, last = run.devices[0], run.devices[-1]
            row = run.devices == tuple(range(first, last + 1))
            listed = f"{first}..{last}" if row and last > first else ",".join(str(i) for i in run.devices)
            places.append(f"{self.state.nodes.rows[run.node].name}[{listed}]")
        return places

    def guaranteed(self, job_id: int) -> bool:
        standing = {run.guaranteed for run in self.state.runs_of(job_id)}
        assert len(standing) == 1, f"job {job_id}: {standing}"
        return standing.pop()

    def waits(self, job_id: int) -> Reason:
        job: Job = self.job(job_id)
        assert job.state is JobState.QUEUED, job.state
        return job.reason

    def owned(self) -> dict[tuple[str, str, int], str]:
        """(pool, level, index) -> the virtual cluster that it is bound to."""
        return {key: self.state.vcs.rows[row.vc].name for key, row in self.state.bindings.rows.items()}


def request(
    vc: str,
    *sizes: int,
    guarantee: Guarantee = Guarantee.GUARANTEED,
    within: str | Within | tuple[Within, ...] = (),
    trial: bool = False,
    priority: int = 0,
    grace: int = 10,
    cpu: int = 1000,
    cpus: bool = False,
    memory: int = 0,
    estimate: float = 0,
    alternatives: Sequence[Configuration] = (),
    part: tuple[int, int, ShareMode] | None = None,
    **cell: Any,
) -> JobSpec:
    """A job as `other` describes its first configuration. `part`: the fraction of a device in millionths, the memory of it, and
    how it is shared."""
    first = other(*sizes, within=within, cpu=cpu, cpus=cpus, memory=memory, **cell)
    return JobSpec(
        ("true",),
        first.demand,
        JobClass.TRIAL if trial else JobClass.BEST_EFFORT,
        grace * SECOND,
        priority=priority,
        gang=first.gang,
        vc=vc,
        guarantee=guarantee,
        cells=first.cells,
        device_memory_mib=memory,
        estimate_us=round(estimate * SECOND),
        alternatives=tuple(alternatives),
        **({} if part is None else dict(zip(("gpu_fraction_ppm", "gpu_memory_mib", "share"), part, strict=True))),
    )


def elastic(vc: str, tasks: int, most: int, **wants: Any) -> JobSpec:
    """A job of one device for each task, with one task at least."""
    one = request(vc, 1, **wants)
    spec = with_changes(one, gang=(TaskGroup(1, one.demand),), min_tasks=1, max_tasks=most)
    return spec.with_tasks(tasks)


def other(
    *sizes: int,
    within: str | Within | tuple[Within, ...] = (),
    cpu: int = 1000,
    cpus: bool = False,
    memory: int = 0,
    estimate: float = 0,
    **cell: Any,
) -> Configuration:
    """A configuration with a task of each of these numbers of devices, or (`cpus`) of CPUs without any. `memory`: MiB of each
    device. `estimate`: seconds; 0: unknown."""
    demands = [Vector(1000 * size, 1024, 0) if cpus else Vector(cpu, 1024, size) for size in sizes]
    total = ZERO
    for demand in demands:
        total = add(total, demand)
    gang = tuple(TaskGroup(1, demand) for demand in demands) if len(sizes) > 1 else ()
    if isinstance(within, str):
        within = (Within(within),)
    elif isinstance(within, Within):
        within = (within,)
    return Configuration(total, gang, CellRequest(within=within, **cell), memory, estimate_us=round(estimate * SECOND))


__all__ = ["OPPORTUNISTIC", "OVERFLOW", "RunExited", "RunReady", "RunStarted", "Tenants", "elastic", "other", "request"]
