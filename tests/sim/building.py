"""Small simulated sites and jobs, and what is asked of the lives that come of them."""

from collections.abc import Iterable, Iterator, Sequence

from scheduler_service.core.invariants import check
from scheduler_service.core.model import JobClass, JobSpec, StopReason, TaskGroup
from scheduler_service.core.model.inventory import Device, Inventory
from scheduler_service.core.model.values import SECOND, Micros, Vector
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.sim.experiments.job_outcomes import Life
from scheduler_service.sim.jobs import Load, SimJob
from scheduler_service.sim.world import Site, World

MINUTE = 60 * SECOND


def node(devices: int, cpu: int = 0) -> Inventory:
    """A node of which only devices count, unless it has CPUs too."""
    return Inventory(Vector(cpu, 0, devices), (), tuple(Device(d, f"GPU-{d}", "gpu", 0) for d in range(devices)))


def papers_nodes(count: int) -> tuple[Inventory, ...]:
    """Of the FitGpp paper's cluster."""
    capacity = Vector(32_000, 256 << 10, 8)
    return tuple(Inventory(capacity, (), tuple(Device(d, f"{n}/{d}", "gpu", 16 << 10) for d in range(8))) for n in range(count))


def site(policy: str, *nodes: Inventory, **facts: object) -> Site:
    return Site(nodes, stages(policy, PreemptionSettings()).policy, **facts)  # type: ignore[arg-type]


def job(
    gpus: int, minutes: float, at: float = 0, trial: bool = False, grace: float = 1, tasks: int = 0, limit: float = 0
) -> SimJob:
    """Times are in minutes. With tasks: a gang of so many, each of which needs so many GPUs."""
    group = (TaskGroup(tasks, Vector(0, 0, gpus)),) if tasks else ()
    spec = JobSpec(
        ("x",),
        Vector(0, 0, gpus * (tasks or 1)),
        JobClass.TRIAL if trial else JobClass.BEST_EFFORT,
        round(grace * MINUTE),
        gang=group,
        time_limit_us=round(limit * MINUTE),
    )
    return SimJob(spec, round(minutes * MINUTE), round(at * MINUTE))


class Listed:
    """Arrivals of jobs in whatever order, all of which are there before: a plain `arriving.Timed`."""

    def __init__(self, jobs: Iterable[SimJob]) -> None:
        self._jobs = sorted(jobs, key=lambda job: job.submit_us)
        self._taken = 0

    def next_us(self, now: Micros, _load: Load) -> Micros | None:
        return max(now, self._jobs[self._taken].submit_us) if self._taken < len(self._jobs) else None

    def take(self, now: Micros, _load: Load) -> Sequence[SimJob]:
        first = self._taken
        while self._taken < len(self._jobs) and self._jobs[self._taken].submit_us <= now:
            self._taken += 1
        return self._jobs[first : self._taken]


def lived(site: Site, jobs: Sequence[SimJob]) -> list[Life]:
    """The lives of all jobs, in the order in which they were submitted; in every step the invariants hold."""
    world = World(site, Listed(jobs))
    while (at := world.next_us()) is not None:
        world.advance(at)
        check(world.state)
    assert not world.state.jobs.rows
    lives = list(world.lives.values())
    for life in lives:
        right(life)
    return lives


def right(life: Life) -> None:
    """What holds of every life that is over, whatever happened in it."""
    assert life.end_us is not None
    before = life.submit_us
    for launch in life.launches:
        assert launch.ended_us is not None
        times = (launch.placed_us, launch.began_us, launch.ended_us)
        known = [at for at in times if at is not None]
        assert known == sorted(known)
        assert launch.placed_us >= before
        before = launch.ended_us
    if life.launches:
        assert life.end_us == before
    assert life.done_us == life.job.work_us
    worked = sum(life.job.does_us(launch.configuration, launch.worked_us()) for launch in life.launches)
    assert worked == life.done_us + life.lost_us
    if not life.job.times_us:  # else another configuration may take less time than its work counts
        assert life.wait_us() >= life.lost_us


def begins(life: Life) -> list[int]:
    return [launch.began_us for launch in life.launches if launch.began_us is not None]


def stops(life: Life) -> list[int]:
    return [launch.signalled_us for launch in life.launches if launch.signalled_us is not None]


def minutes(*times: int | None) -> list[float]:
    return [at / MINUTE for at in times if at is not None]


def intervals_us(life: Life) -> Iterator[Micros]:
    """From each preemption's signal to the beginning of the next run, the grace period included (FitGpp, table 2)."""
    since: Micros | None = None
    for launch in life.launches:
        if launch.began_us is not None and since is not None:
            yield launch.began_us - since
            since = None
        if launch.why in (None, StopReason.PREEMPTED) and since is None:
            since = launch.signalled_us
