"""AlloX on real devices: Philly's jobs on three models of GPU, with the rates that Gavel's authors measured.

The paper leaves more than two kinds of resources, and jobs of several devices, for future work.
"""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from scheduler_service.sim.site import Nodes
from scheduler_service.sim.workloads import Gavel
from scheduler_service.sim.workloads.gavel import DEVICES, rates_of


class Cluster(NamedTuple):
    nodes: Mapping[str, int]
    """Number of nodes of eight GPUs, by model. The numbers are assumptions."""
    jobs: int
    """The maximum number of jobs of the trace to simulate."""

    def cluster(self) -> tuple[Nodes, ...]:
        return tuple(Nodes(nodes=self.nodes[name], gpus=8, model=name) for name in DEVICES)


CLUSTERS: Mapping[str, Cluster] = {
    "devices": Cluster({"v100": 16, "p100": 24, "k80": 32}, 5000),
    "busy-devices": Cluster({"v100": 8, "p100": 12, "k80": 16}, 2000),
}
"""The cluster of each part of the evaluation. The first 5,000 jobs need as much in 2.6 days as 510 P100s give, much of it in a
few jobs that run for days. Queues are long on the second cluster, so a simulation of AlloX takes longer there."""
FROM_S = 35 * 86400
"""The same start as the slices of the trace on which other simulators were run."""
TENANTS = 11
"""Virtual clusters of the trace with more than 300 jobs."""


def workload(philly: Path, rates: Path, jobs: int, error: float) -> Gavel:
    return Gavel(file=philly.absolute(), rates=rates.absolute(), from_s=FROM_S, jobs=jobs, error=error)


def weights(rates: Path) -> list[float]:
    """How much faster jobs are on one GPU of each device than on a K80: the mean over the kinds of job that run on both."""
    alone = [of for of in rates_of(rates.absolute())[1] if of[-1]]
    return [fmean(of[at] / of[-1] for of in alone) for at in range(len(DEVICES))]
