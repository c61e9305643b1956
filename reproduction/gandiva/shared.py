"""Figure 18 of the Gandiva paper: two searches for a configuration, each on 8 GPUs, on a cluster with other load.

Both policies run in virtual clusters, which give each search its GPUs and reclaim them from the others. With FIFO in each, jobs
wait as under the paper's capacity scheduler; with Gandiva in each, they take turns, and the user runs the best ones alone.
"""

from collections.abc import Mapping, Sequence

from reproduction.gandiva.plan import BASELINE, GANDIVA, TITLES, TRACE
from reproduction.gandiva.published import SHARED, SLICING_ALONE
from reproduction.studies import Table, estimate_text, number
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.experiments.estimates import Group
from scheduler_service.sim.sharing.config import Sharing
from scheduler_service.sim.site import Policy
from scheduler_service.sim.virtual_clusters import VirtualCluster
from scheduler_service.sim.workloads import GandivaSearch, GandivaShared, GandivaTrace
from scheduler_service.sim.workloads.gandiva_shared import OTHERS, name_of

EACH_NODES = 2
"""Nodes of four GPUs for each search."""
POSITIONS = (40, 36)
"""Positions of the right configurations; like the numbers below, fitted to the paper's Gandiva times and a speedup of 7."""
SEARCH = GandivaSearch(
    jobs=40, gpus=40, more=1, evaluation_min=2.4, promising=0.68, found_after=0.6, job_gpus=2, job_kind="vgg16", position=40
)
BEST = {"exclusive": 2, "live": 8}
"""Two jobs run alone, and two jobs take turns on two GPUs."""
JOBS_A_DAY = GandivaTrace().jobs / GandivaTrace().days
P40_NODES, P100_NODES = (group.nodes for group in TRACE)


def workload(days: float, at_min: float, exclusive: bool) -> GandivaShared:
    of = SEARCH.model_copy(update=BEST) if exclusive else SEARCH
    return GandivaShared(
        others=GandivaTrace(jobs=round(JOBS_A_DAY * days), days=days),
        searches=tuple(of.model_copy(update={"position": position}) for position in POSITIONS),
        at_min=at_min,
    )


def cases(days: float, at_min: float, seeds: Sequence[int]) -> dict[str, list[Case]]:
    """Cases by policy. Others' jobs arrive for this many days, and the searches begin at this minute."""
    found = {}
    for policy in (BASELINE, GANDIVA):
        found[policy] = [
            Case(
                cluster=TRACE,
                workload=workload(days, at_min, policy == GANDIVA),
                policy=Policy(name="cells", label=f"{TITLES[policy]} in each virtual cluster"),
                virtual_clusters=_virtual_clusters(policy),
                sharing=Sharing(),
                seed=seed,
            )
            for seed in seeds
        ]
    return found


def _virtual_clusters(policy: str) -> tuple[VirtualCluster, ...]:
    p40, p100 = "p40-2x1x2", "p100-2x1x2"
    searches = [name_of(place) for place in range(len(POSITIONS))]
    left = P100_NODES - EACH_NODES * len(searches)
    owned = dict.fromkeys(searches, ((p100, (("node", EACH_NODES),)),))
    return (
        *(VirtualCluster(name=name, owns=owns, policy=policy) for name, owns in owned.items()),
        VirtualCluster(name=OTHERS, owns=((p40, (("node", P40_NODES),)), (p100, (("node", left),))), policy=policy),
    )


def table(groups: Mapping[str, Group]) -> Table:
    rows = []
    for place, printed in enumerate(SHARED, 1):
        base, ours = (groups[policy].estimate(f"search.{place}.found_min") for policy in (BASELINE, GANDIVA))
        faster = "-" if base is None or ours is None else f"{base.mean / ours.mean:.1f}"
        shown = (
            number(printed.fifo),
            estimate_text(base),
            number(printed.gandiva),
            estimate_text(ours),
            f"{printed.faster:g}",
            faster,
        )
        rows.append((f"search {place}", shown))
    columns = ("paper, FIFO", "FIFO", "paper, Gandiva", "Gandiva", "paper, speedup", "speedup")
    note = f"In the paper time slicing alone is {SLICING_ALONE:g} times as fast; the rest is better locality."
    return Table("figure-18", "Figure 18: minutes until two searches on a loaded cluster are over", columns, tuple(rows), note)
