"""Which simulations Gandiva's evaluation takes, as data: the clusters, the policies, and the cases of each part."""

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
"""In which all policies have the same jobs."""
ALL_PARTS = (*PARTS, "search", "shared")
ON_TRACES: tuple[Part, ...] = ("measured",)
"""Parts that take files."""

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
"""Settings: Figure 9 has no packing, section 6.3 has no migrations, and on the trace jobs do not change places on their servers
only to get the same."""
MINUTE = 60.0
STABLE = (20 * MINUTE, 200 * MINUTE)
"""In which the paper averages the utilisation."""


def servers(count: int, model: str, gpu_memory_gib: float) -> Nodes:
    """Section 6: 12 cores, 448 GB, four GPUs on two sockets."""
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
    """An equal mix of P40s and P100s, as far as that can be."""
    return (servers(p40, "p40", 24), servers(p100, "p100", 16))


FOUR = (servers(1, "p100", 16),)
EXPERIMENT = cluster(23, 22)
"""180 GPUs."""
TRACE = cluster(13, 12)
"""100 GPUs."""
MEASURED = (servers(13, "p100", 16), servers(12, "v100", 16))
"""100 GPUs of models that Gavel's authors measured."""


SIX = GandivaSlicing(long_min=120, short_min=40)
"""With 4/6 of a GPU, the short jobs stay for an hour."""


GROWING = GandivaGrowing()


class Traces(NamedTuple):
    """Where the files are."""

    philly: Path
    rates: Path
    pairs: Path


class Study(NamedTuple):
    """How much is simulated."""

    jobs: int = 1000
    """Of the experiment."""
    hours: float = 2
    """In which these come."""
    seeds: tuple[int, ...] = (1, 2, 3)
    trace_jobs: int = 8800
    days: float = 8.25
    """In which the jobs of the trace come."""
    trace_seeds: tuple[int, ...] = (1,)
    measured_jobs: int = 2000
    """Of Philly's, at Gavel's rates."""
    search_seeds: tuple[int, ...] = (1, 2, 3)
    shared_days: float = 1.5
    """In which others' jobs come."""
    shared_at_min: float = 1440
    """When the searches beside them begin."""
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
    """Those of the titles that there are."""
    known = registry.for_simulations()
    return [name for name in TITLES if name in known]


def cases(study: Study, part: Part, policy: str) -> list[Case]:
    """One for each seed. Feedback comes with a job's first turn, so slices are exact where that is measured."""
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
    assert study.traces is not None  # the command says so
    philly, rates, pairs = (file.absolute() for file in study.traces)
    real = GavelKinds(file=philly, rates=rates, jobs=study.measured_jobs, from_s=35 * 86400)
    sharing = Sharing(rates="gavel", throughputs=rates, pairs=pairs)
    return [Case(cluster=MEASURED, workload=real, policy=of, sharing=sharing)]
