"""Time of simulating FitGpp's workload on one core: 2^16 jobs on 84 nodes under each policy, 2^19 under FIFO.

As in the paper: decisions once a minute, one trial at a time waits for its victims, and the submit times that result from a
load of 2.0 under FIFO are used for the other policies, too.
"""

from benchmarks.figures import Figure, figure
from benchmarks.scratch import scratch
from benchmarks.simulations import Took, apart
from scheduler_service.sim.experiments.cases import Case, Nodes, Policy
from scheduler_service.sim.workloads import FitGpp

BENCH = "sim_fitgpp"
JOBS = 1 << 16
MANY = 1 << 19


def run() -> list[Figure]:
    figures = []
    with scratch() as folder:
        times = folder / "times"
        for policy in ("fifo", "fitgpp", "lrtp", "rand"):
            took = apart(case(policy, JOBS), record=times) if policy == "fifo" else apart(case(policy, JOBS), times)
            figures += _figures(f"{policy}, 2^16 jobs", took, at_most=8)
    return figures + _figures("fifo, 2^19 jobs", apart(case("fifo", MANY)), at_most=80, peak=600)


def case(policy: str, jobs: int) -> Case:
    return Case(
        cluster=(Nodes(nodes=84, cpus=32, memory_gib=256, gpus=8),),
        workload=FitGpp(jobs=jobs),
        policy=Policy(name=policy, trials_in_flight=1),
        decide_every=60,
    )


def _figures(what: str, took: Took, at_most: float, peak: float | None = None) -> list[Figure]:
    return [
        figure(BENCH, what, took.seconds, "s", at_most=at_most),
        figure(BENCH, f"{what}, an event", took.seconds / took.events * 1e6, "us"),
        figure(BENCH, f"{what}, resident at most", took.peak_mib, "MiB", at_most=peak),
    ]
