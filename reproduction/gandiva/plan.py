"""The simulations of Gandiva's evaluation, as data: the clusters, the policies, and the cases of each part."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from scheduler_service.policies import registry
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.sharing.config import Sharing
from scheduler_service.sim.site import Nodes, Policy
from scheduler_service.sim.workloads import Gandiva, GandivaGrowing, GandivaSlicing, GandivaTrace, GavelKinds

Part = Literal["slicing", "growing", "experiment", "trace", "measured"]
PARTS: tuple[Part, ...] = get_args(Part)
"""Parts in which all policies have the same jobs."""
ALL_PARTS = (*PARTS, "search", "shared")
ON_TRACES: tuple[Part, ...] = ("measured",)
"""Parts that need files."""

BASELINE, TURNS, GANDIVA = "fifo", "round-robin", "gandiva"
TITLES = {BASELINE: "FIFO", TURNS: "round robin", GANDIVA: "Gandiva"}
_STAY = (("rotate", 0.0),)
_OWN: Mapping[tuple[Part, str], tuple[tuple[str, float], ...]] = {
    ("slicing", GANDIVA): (("packing", 0.0),),
    ("experiment", TURNS): _STAY,
    ("experiment", GANDIVA): (("migration", 0.0), ("growth", 0.0)),
    ("trace", TURNS): _STAY,
    ("trace", GANDIVA): _STAY,
}
"""Settings that differ from the defaults. Figure 9 has no packing, section 6.3 has no migrations, and on the trace jobs do not
rotate within their servers if that gains them nothing."""
MINUTE = 60.0
STABLE = (20 * MINUTE, 200 * MINUTE)
"""The time over which the paper averages the utilization."""


def servers(count: int, model: str, gpu_memory_gib: float) -> Nodes:
    """Servers as in section 6: 12 cores, 448 GB, four GPUs on two sockets."""
    return Nodes(
        nodes=count,
        cpus=12,
        memory_gib=448,
        gpus=4,
        gpu_memory_gib=gpu_memory_gib,
        model=model,
        tree=(("socket", 2), ("switch", 1)),
    )


def cluster(p40: int, p100: int) -> tuple[Nodes, ...]:
    """A cluster of about as many P40s as P100s."""
    return (servers(p40, "p40", 24), servers(p100, "p100", 16))


FOUR = (servers(1, "p100", 16),)
EXPERIMENT = cluster(23, 22)
"""A cluster of 180 GPUs."""
TRACE = cluster(13, 12)
"""A cluster of 100 GPUs."""
MEASURED = (servers(13, "p100", 16), servers(12, "v100", 16))
"""A cluster of 100 GPUs of models that Gavel's authors measured."""


SIX = GandivaSlicing(long_min=120, short_min=40)
"""While six jobs share four GPUs, each has 4/6 of a GPU, so the short jobs stay for an hour."""


GROWING = GandivaGrowing()


class Traces(NamedTuple):
    """The files of the traces."""

    philly: Path
    rates: Path
    pairs: Path


class Study(NamedTuple):
    """The amount to simulate."""

    jobs: int = 1000
    """Jobs of the experiment."""
    hours: float = 2
    """Hours in which these jobs arrive."""
    seeds: tuple[int, ...] = (1, 2, 3)
    trace_jobs: int = 8800
    days: float = 8.25
    """Days in which the jobs of the trace arrive."""
    trace_seeds: tuple[int, ...] = (1,)
    measured_jobs: int = 2000
    """Jobs of Philly's trace, at Gavel's rates."""
    search_seeds: tuple[int, ...] = (1, 2, 3)
    shared_days: float = 1.5
    """Days in which the other users' jobs arrive."""
    shared_at_min: float = 1440
    """The minute at which the searches on the shared cluster begin."""
    shared_seeds: tuple[int, ...] = (1, 2, 3)
    traces: Traces | None = None


QUICK = Study(
    jobs=250,
    hours=0.5,
    seeds=(1,),
    trace_jobs=500,
    days=0.5,
    measured_jobs=300,
    search_seeds=(1,),
    shared_days=0.1,
    shared_at_min=60,
    shared_seeds=(1,),
)


def policies() -> list[str]:
    """Return the policies in TITLES that the simulator knows."""
    known = registry.for_simulations()
    return [name for name in TITLES if name in known]


def cases(study: Study, part: Part, policy: str) -> list[Case]:
    """Return a case for each seed. Feedback comes with a job's first turn, so slices are exact in the part that measures it."""
    of = Policy(name=policy, label=TITLES[policy], settings=_OWN.get((part, policy), ()))
    if part == "slicing":
        while_six = (SIX.at_min * MINUTE, (SIX.at_min + SIX.short_min) * MINUTE)
        sharing = Sharing(interference=False, stable=while_six)
        return [Case(cluster=FOUR, workload=SIX, policy=of, sharing=sharing)]
    if part == "growing":
        return [Case(cluster=FOUR, workload=GROWING, policy=of, sharing=Sharing(interference=False))]
    if part == "experiment":
        sharing = Sharing(slices="exact", interference=False, stable=STABLE)
        jobs = Gandiva(jobs=study.jobs, hours=study.hours)
        return [Case(cluster=EXPERIMENT, workload=jobs, policy=of, sharing=sharing, seed=seed) for seed in study.seeds]
    if part == "trace":
        trace = GandivaTrace(jobs=study.trace_jobs, days=study.days)
        return [Case(cluster=TRACE, workload=trace, policy=of, sharing=Sharing(), seed=seed) for seed in study.trace_seeds]
    assert part == "measured"
    assert study.traces is not None  # the command has checked it
    philly, rates, pairs = (file.absolute() for file in study.traces)
    real = GavelKinds(file=philly, rates=rates, jobs=study.measured_jobs, from_s=35 * 86400)
    sharing = Sharing(rates="gavel", throughputs=rates, pairs=pairs)
    return [Case(cluster=MEASURED, workload=real, policy=of, sharing=sharing)]
