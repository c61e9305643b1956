"""The simulations that compare all four papers, as data: a cluster, a workload, and the policies alone and combined."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from scheduler_service.presets import SIMULATED
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.sharing.config import Sharing
from scheduler_service.sim.site import Nodes, Policy
from scheduler_service.sim.virtual_clusters import VirtualCluster
from scheduler_service.sim.workloads import GavelChoices
from scheduler_service.sim.workloads.gavel_choices import Tenant, tenants
from scheduler_service.sim.workloads.hived import apportion

FROM_DAY = 64
"""First day of the trace to use: several virtual clusters are busy then, and 4 of 10 jobs are short."""
NODES: Mapping[str, int] = {"v100": 4, "p100": 5, "k80": 5}
"""Number of nodes of four GPUs, by model: 56 GPUs in all."""
LONGEST_S = 6 * 3600
MEASURE_S = 300
TENANTS = 3


class Traces(NamedTuple):
    """The files of the traces."""

    philly: Path
    rates: Path
    pairs: Path


class Way(NamedTuple):
    """A way to schedule the cluster."""

    title: str
    policy: str
    inside: tuple[str, ...] = ()
    """The policies inside virtual clusters: one for each tenant, or one for all."""


MIXED = "HiveD, with each virtual cluster's own"
ALONE = (
    Way("FIFO", "fifo"),
    Way("FitGpp", "fitgpp"),
    Way("AlloX", "allox"),
    Way("Gandiva", "gandiva"),
    Way("HiveD", "cells", ("fifo",)),
)
INSIDE = (
    Way("HiveD, FitGpp in each", "cells", ("fitgpp",)),
    Way("HiveD, AlloX in each", "cells", ("allox",)),
    Way("HiveD, Gandiva in each", "cells", ("gandiva",)),
)


def own_policies(found: Mapping[str, Tenant]) -> dict[str, str]:
    """The policy of each virtual cluster: FitGpp for the one with the largest share of trials, AlloX for the one of the others
    that asks for the most GPU time, and Gandiva for the rest."""
    by_trials = sorted(found, key=lambda vc: (-found[vc].trials / found[vc].jobs, vc))
    by_asked = sorted(by_trials[1:], key=lambda vc: (-found[vc].asked_s, vc))
    return {by_trials[0]: "fitgpp", **{vc: "gandiva" if place else "allox" for place, vc in enumerate(by_asked)}}


def workload(traces: Traces, jobs: int) -> GavelChoices:
    return GavelChoices(
        file=traces.philly.absolute(),
        rates=traces.rates.absolute(),
        from_s=FROM_DAY * 86400,
        jobs=jobs,
        longest_s=LONGEST_S,
        vcs=TENANTS,
    )


def ways(found: Mapping[str, Tenant]) -> tuple[Way, ...]:
    own = own_policies(found)
    return (*ALONE, *INSIDE, Way(MIXED, "cells", tuple(own[vc] for vc in found)))


def cases(traces: Traces, jobs: int, seed: int) -> tuple[dict[Way, Case], dict[str, Tenant]]:
    """The case of each way, and the tenants. Raises BadTrace."""
    of = workload(traces, jobs)
    found = tenants(of.file, of)
    sharing = Sharing(
        rates="gavel",
        throughputs=traces.rates.absolute(),
        pairs=traces.pairs.absolute(),
        assume_use=True,
        measure_every=MEASURE_S,
    )
    made = {}
    for way in ways(found):
        made[way] = Case(
            cluster=tuple(_nodes(model, count) for model, count in NODES.items()),
            workload=of,
            policy=Policy.model_validate({"name": way.policy, "label": way.title, **SIMULATED["site"]}),
            seed=seed,
            virtual_clusters=_virtual_clusters(found, way.inside),
            sharing=sharing,
        )
    return made, found


def _nodes(model: str, count: int) -> Nodes:
    return Nodes(nodes=count, cpus=12, memory_gib=448, gpus=4, gpu_memory_gib=16, model=model, tree=(("socket", 2),))


def _virtual_clusters(found: Mapping[str, Tenant], inside: tuple[str, ...]) -> tuple[VirtualCluster, ...]:
    """Virtual clusters that own nodes of each model in proportion to the GPU time that their jobs ask for, and at least one."""
    if not inside:
        return ()
    asked = [tenant.asked_s for tenant in found.values()]
    owned = {model: apportion(asked, count, 1) for model, count in NODES.items()}
    return tuple(
        VirtualCluster(
            name=vc,
            owns=tuple((f"{model}-2x2", (("node", counts[place]),)) for model, counts in owned.items()),
            policy=inside[place % len(inside)],
        )
        for place, vc in enumerate(found)
    )
