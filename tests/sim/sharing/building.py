"""Small sites whose jobs share devices, a policy by which they take turns, and one that packs."""

from collections.abc import Sequence
from dataclasses import replace

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Place, Rng, Share, Spot
from scheduler_service.core.model import JobSpec, RunKey, TaskGroup
from scheduler_service.core.model.inventory import Device, Inventory
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.state.queue_keys import Lane
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.slicing.mates import Mates
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.gandiva.slicing.take_turns import take_turns
from scheduler_service.policies.placing.first_fit import place
from scheduler_service.policies.queueing.in_order import head_of
from scheduler_service.policies.stages import Where
from scheduler_service.sim.experiments.job_outcomes import Life
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.sharing.model import Proportional, gandiva
from scheduler_service.sim.sharing.setup import Setup, Switching
from scheduler_service.sim.world import Site, World
from tests.sim.building import MINUTE, Listed, right

PAPER = Setup(gandiva(interference=False))
FREE = Setup(Proportional())
SLICES = Settings()
MEMORY_MIB = 24 << 10


def node(devices: int = 1, tree: Sequence[str] = ()) -> Inventory:
    """With memory for what is parked. With a tree of a socket and a switch, each GPU is on a switch of its own."""
    paths = [(index * 2 // devices, index) if tree else () for index in range(devices)]
    gpus = tuple(Device(index, f"GPU-{index}", "p40", MEMORY_MIB, paths[index]) for index in range(devices))
    return Inventory(Vector(64_000, 512 << 10, devices), tuple(tree), gpus)


def job(minutes: float, at: float = 0, kind: str = "", gpus: int = 1, tasks: int = 0) -> SimJob:
    gang = (TaskGroup(tasks, Vector(1000, 1024, gpus)),) if tasks else ()
    count = tasks or 1
    spec = JobSpec(("x",), Vector(1000 * count, 1024 * count, gpus * count), grace_us=30 * SECOND, name=kind, gang=gang)
    return SimJob(spec, round(minutes * MINUTE), round(at * MINUTE), kind=kind)


def turns(state: State, _rng: Rng) -> Proposals:
    """First come, first served. A job that finds no idle device has turns of a minute on devices with few users."""
    while (job := head_of(state, {Lane.BEST_EFFORT: 0})) is not None:
        alone = place(state, job)
        action = alone if alone is not None else next(iter(take_turns(state, job, Where(), SLICES, Mates.EQUALS) or ()), None)
        if not isinstance(action, Place):
            return
        if (share := action.share) is not None:
            action = replace(action, share=replace(share, period_us=MINUTE * len(share.rows)))
        if (yield (action,)) is not None:
            return


def packing(state: State, _rng: Rng) -> Proposals:
    """Each job that finds no idle device is packed with those on the first device."""
    for queued in sorted(job.id for job in state.jobs.rows.values() if not state.runs_of(job.id)):
        alone = place(state, state.jobs.rows[queued])
        if alone is not None:
            yield (alone,)
            continue
        key = RunKey(queued, state.jobs.rows[queued].run + 1)
        others = tuple(sorted(run.key for run in state.runs.rows.values() if run.node == 1 and 0 in run.devices))
        limits = tuple((each, 4096) for each in (*others, key))
        row = Row(tuple(sorted((*others, key))))
        yield (Place(queued, (Spot(1, (0,)),), share=Share((row,), limits)),)


def world(jobs: Sequence[SimJob], *nodes: Inventory, setup: Setup | None = PAPER, policy=turns, **facts: object) -> World:  # type: ignore[no-untyped-def]
    """To its end, checked."""
    made = World(Site(nodes, policy, sharing=setup, **facts), Listed(jobs))  # type: ignore[arg-type]
    made.run()
    for life in made.lives.values():
        right(life)
    return made


def ends(of: World) -> list[float]:
    """When each job ended, in minutes, in the order in which they were submitted."""
    return [life.end_us / MINUTE for life in of.lives.values() if life.end_us is not None]


def worked_us(lives: Sequence[Life]) -> int:
    """Times devices."""
    return sum(life.job.work_us * life.job.spec.demand.devices for life in lives)


def slow(seconds: float, exact: bool = False, every: float | None = None, noise: float = 0) -> Setup:
    """Parking takes so long, and resuming as long again."""
    us = round(seconds * SECOND)
    measures = None if every is None else round(every * SECOND)
    return Setup(gandiva(interference=False), Switching(us, us), exact, measures, noise)
