"""Randomly drawn jobs: kinds of jobs, with a distribution for each property of a job."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from random import Random
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from scheduler_service.core.model import JobClass, JobSpec, ShareMode, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, WHOLE, Vector
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.limits import MOST_JOBS, MOST_TASKS, range_validator
from scheduler_service.sim.workloads import arriving
from scheduler_service.sim.workloads.assuming import COMMAND, SITE_GRACE_S
from scheduler_service.sim.workloads.distributions import Amount, Constant, Distribution, Model, bound_above

NOTHING = Constant(value=0)
SITE_GRACE = Constant(value=SITE_GRACE_S)
ONE = Constant(value=1)
MOST_USERS = 100_000
LEAST_ESTIMATE = 0.01
"""The least estimate, relative to the work, whatever its error."""


class User(Model):
    name: str = Field(min_length=1)
    weight: float = Field(
        default=1, ge=0, le=1e9, description="how many of the jobs are this user's, against the other users' weights"
    )
    vc: str = Field(default="", description="the virtual cluster that the user belongs to")


def _count_is_users(value: Any) -> Any:
    if isinstance(value, int) and value > MOST_USERS:
        raise ValueError(f"there are at most {MOST_USERS:,} users")
    return [{"name": f"user-{n}"} for n in range(1, value + 1)] if isinstance(value, int) else value


Users = Annotated[tuple[User, ...], BeforeValidator(_count_is_users), Field(min_length=1)]
"""Users with weights, or a number of users who submit equally many jobs."""


class Kind(Model):
    """Jobs that share all properties that are not drawn. Demands are those of each task."""

    name: str = ""
    share: Annotated[float, range_validator(1e-9, 1e9)] = Field(
        default=1, description="how many of the jobs are of this kind, against the other kinds' shares"
    )
    trial: bool = False
    work_s: Amount
    grace_s: Amount = SITE_GRACE
    cpus: Amount = NOTHING
    memory_gib: Amount = NOTHING
    gpus: Amount = NOTHING
    gpu_fraction: Annotated[float, range_validator(0, 0.999999)] = Field(
        default=0, description="the part of one GPU that each job shares with others; 0: whole GPUs"
    )
    gpu_memory_gib: Annotated[float, range_validator(0, 1e6)] = Field(
        default=0, description="the most memory of a shared GPU that each job uses; 0: what goes with its fraction"
    )
    sharing: Literal["sliced", "packed"] | None = Field(
        default=None, description="how a GPU is shared; null: sliced with a fraction, packed with memory alone"
    )
    tasks: Amount = ONE
    users: Users = (User(name="user"),)
    estimate_error: float | None = Field(
        default=None, ge=0, le=100, description="relative deviation of the users' estimates; none: they give none"
    )

    @model_validator(mode="after")
    def _somebody_submits(self) -> "Kind":
        if not sum(user.weight for user in self.users):
            raise ValueError("users: one weight must be more than 0")
        if bound_above(self.tasks, MOST_TASKS).most() > MOST_TASKS:
            raise ValueError(f"tasks: a job has {MOST_TASKS} at most")
        if self.part is not None and self.tasks != ONE:
            raise ValueError("tasks: a job that asks for a part of a GPU has one")
        if self.part is None and self.sharing is not None:
            raise ValueError("sharing: give gpu_fraction or gpu_memory_gib, too")
        if self.sharing == "sliced" and not self.gpu_fraction:
            raise ValueError("sharing: a sliced job has a gpu_fraction")
        return self

    @property
    def part(self) -> dict[str, Any] | None:
        """The part of a device, as fields of a spec; None: jobs have whole devices."""
        if not (self.gpu_fraction or self.gpu_memory_gib):
            return None
        sliced = self.sharing == "sliced" if self.sharing else bool(self.gpu_fraction)
        return {
            "gpu_fraction_ppm": round(self.gpu_fraction * WHOLE),
            "gpu_memory_mib": round(self.gpu_memory_gib * 1024),
            "share": ShareMode.SLICED if sliced else ShareMode.PACKED,
        }


class Generated(Model):
    """Jobs of some kinds, mixed at random."""

    kind: Literal["generated"] = "generated"
    jobs: int = Field(ge=1, le=MOST_JOBS)
    kinds: tuple[Kind, ...] = Field(min_length=1)
    arrivals: arriving.Generated = arriving.Closed()


def jobs(model: Generated, seed: int) -> Iterator[SimJob]:
    """Yield jobs without times. GPUs and tasks are rounded to whole ones."""
    rng = Random(f"{seed}:jobs")
    makers = [_maker(kind, rng) for kind in model.kinds]
    sums = list(accumulate(kind.share for kind in model.kinds))
    for _ in range(model.jobs):
        yield makers[_pick(sums, rng)]()


def _pick(sums: list[float], rng: Random) -> int:
    return 0 if len(sums) == 1 else min(bisect_right(sums, rng.random() * sums[-1]), len(sums) - 1)


def _maker(kind: Kind, rng: Random) -> Callable[[], SimJob]:
    like = JobSpec(COMMAND, Vector(), JobClass.TRIAL if kind.trial else JobClass.BEST_EFFORT, name=kind.name)
    users = kind.users
    weights = list(accumulate(user.weight for user in users))
    work, grace, cpus, memory = (
        _draw_function(kind.work_s),
        _draw_function(kind.grace_s),
        _draw_function(kind.cpus),
        _draw_function(kind.memory_gib),
    )
    if kind.part is not None:
        like = with_changes(like, **kind.part)
    gpus, tasks, error = (
        _draw_function(ONE if like.shares else kind.gpus),
        _draw_function(bound_above(kind.tasks, MOST_TASKS)),
        kind.estimate_error,
    )

    def make_job() -> SimJob:
        work_us = max(round(work(rng) * SECOND), 1)
        grace_us = round(grace(rng) * SECOND)
        demand = Vector(round(cpus(rng) * 1000), round(memory(rng) * 1024), round(gpus(rng)))
        count = round(tasks(rng))
        facts: dict[str, Any] = {"grace_us": grace_us}
        if error is not None:
            facts["estimate_us"] = max(round(work_us * (max(rng.gauss(1, error), LEAST_ESTIMATE) if error else 1)), 1)
        if count > 1:
            facts["gang"] = (TaskGroup(count, demand),)
            demand = Vector(*(count * amount for amount in demand))
        user = users[_pick(weights, rng)]
        return SimJob(with_changes(like, demand=demand, **facts), work_us, 0, user.name, user.vc)

    return make_job


def _draw_function(distribution: Distribution) -> Callable[[Random], float]:
    if isinstance(distribution, Constant):
        value = distribution.value
        return lambda _: value
    draw: Callable[[Random], float] = distribution.draw
    return draw
