"""Workloads of a simulated cluster: generators, and readers and writers of traces of real clusters."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from random import Random
from typing import Annotated

from pydantic import Field

from scheduler_service.core.model import Node, NodeState
from scheduler_service.core.model.inventory import Inventory
from scheduler_service.core.model.values import add
from scheduler_service.core.state.resources.free_resources import FreeResources
from scheduler_service.sim.csv_rows import BadTrace as BadTrace
from scheduler_service.sim.csv_rows import Skipped as Skipped
from scheduler_service.sim.jobs import Arrivals, SimJob
from scheduler_service.sim.workloads import (
    allox,
    arriving,
    fitgpp,
    gandiva,
    gandiva_search,
    gandiva_shared,
    gavel,
    gavel_choices,
    gavel_kinds,
    generated,
    hived,
    jobs_csv,
    openb,
    philly,
    sacct,
)
from scheduler_service.sim.workloads.allox import Allox as Allox
from scheduler_service.sim.workloads.allox import AlloxExperiment as AlloxExperiment
from scheduler_service.sim.workloads.allox import AlloxLongJobs as AlloxLongJobs
from scheduler_service.sim.workloads.arriving import NeedsCapacity as NeedsCapacity
from scheduler_service.sim.workloads.assuming import File
from scheduler_service.sim.workloads.fitgpp import FitGpp as FitGpp
from scheduler_service.sim.workloads.gandiva import Gandiva as Gandiva
from scheduler_service.sim.workloads.gandiva import GandivaGrowing as GandivaGrowing
from scheduler_service.sim.workloads.gandiva import GandivaSlicing as GandivaSlicing
from scheduler_service.sim.workloads.gandiva import GandivaTrace as GandivaTrace
from scheduler_service.sim.workloads.gandiva_search import GandivaSearch as GandivaSearch
from scheduler_service.sim.workloads.gandiva_shared import GandivaShared as GandivaShared
from scheduler_service.sim.workloads.gavel import Gavel as Gavel
from scheduler_service.sim.workloads.gavel_choices import GavelChoices as GavelChoices
from scheduler_service.sim.workloads.gavel_kinds import GavelKinds as GavelKinds
from scheduler_service.sim.workloads.generated import Generated as Generated
from scheduler_service.sim.workloads.hived import Hived as Hived
from scheduler_service.sim.workloads.jobs_csv import Csv as Csv
from scheduler_service.sim.workloads.jobs_csv import Unwritable as Unwritable
from scheduler_service.sim.workloads.jobs_csv import write as write
from scheduler_service.sim.workloads.jobs_csv import write_to as write_to
from scheduler_service.sim.workloads.openb import Openb as Openb
from scheduler_service.sim.workloads.philly import Philly as Philly
from scheduler_service.sim.workloads.sacct import Sacct as Sacct

TOO_LARGE = "would not fit on this cluster, even if it were empty"

Interchangeable = Allox | AlloxLongJobs | AlloxExperiment | Gavel | GavelChoices
"""Workloads whose jobs have several configurations."""
OfKinds = gandiva.OfPaper | GandivaSearch | GandivaShared | GavelKinds
"""Workloads whose jobs are of kinds that `sharing` knows."""
Workload = Annotated[
    FitGpp | Philly | Openb | Sacct | Csv | Generated | Hived | Interchangeable | OfKinds, Field(discriminator="kind")
]


def jobs_of(
    workload: Workload, seed: int, folder: Path, nodes: Sequence[Inventory] = (), skipped: Skipped | None = None
) -> Iterator[SimJob]:
    """Yield the workload's jobs in order of arrival; for a closed loop, which does not know the times, all with the time 0.

    Relative paths count from `folder`. `nodes` are the cluster's: arrivals at a load depend on them, and a job that would not
    fit on them, all of them empty, is skipped and counted in `skipped`. Raises BadTrace and NeedsCapacity.
    """
    counted = Skipped() if skipped is None else skipped

    def with_times(jobs: arriving.Jobs) -> Iterator[SimJob]:
        capacity = reduce(add, (inventory.capacity for inventory in nodes)) if nodes else None
        return arriving.with_arrival_times(jobs, workload.arrivals, seed, capacity)

    if isinstance(workload, FitGpp):
        return with_times(lambda: _fitting(fitgpp.jobs(workload.jobs, seed, workload.trials, workload.grace), nodes, counted))
    if isinstance(workload, Generated):
        return with_times(lambda: _fitting(generated.jobs(workload, seed), nodes, counted))
    if isinstance(workload, Hived):  # times are not shifted to the first job: a tenant alone has the same times
        return _fitting(hived.jobs(workload, seed, folder), nodes, counted)
    if isinstance(workload, gandiva.OfPaper):
        return _fitting(gandiva.jobs(workload, seed), nodes, counted)
    if isinstance(workload, GandivaSearch):
        return _fitting(gandiva_search.jobs(workload), nodes, counted)
    if isinstance(workload, GandivaShared):
        return _fitting(gandiva_shared.jobs(workload, seed), nodes, counted)
    if isinstance(workload, Allox | AlloxLongJobs):
        return _fitting(allox.jobs(workload, seed), nodes, counted)
    if isinstance(workload, AlloxExperiment):
        return _fitting(allox.experiment(workload, seed), nodes, counted)
    kept = _trace_jobs(workload, seed, folder, nodes, counted)
    return with_times(lambda: kept)


_READERS: Mapping[type[File], Callable[..., Iterator[SimJob]]] = {
    Philly: philly.read,
    Openb: openb.read,
    Sacct: sacct.read,
    Csv: jobs_csv.read,
}


def _trace_jobs(
    workload: Philly | Openb | Sacct | Csv | Gavel | GavelChoices | GavelKinds,
    seed: int,
    folder: Path,
    nodes: Sequence[Inventory],
    skipped: Skipped,
) -> list[SimJob]:
    """A trace's jobs in the order of their times."""
    if isinstance(workload, Gavel):
        jobs = gavel.read(workload, folder, seed, skipped)
    elif isinstance(workload, GavelChoices):
        jobs = gavel_choices.read(workload, folder, seed, skipped)
    elif isinstance(workload, GavelKinds):
        jobs = gavel_kinds.read(workload, folder / workload.file, folder, seed, skipped)
    else:
        jobs = _READERS[type(workload)](workload, folder / workload.file, seed, skipped)
    kept = sorted(_fitting(jobs, nodes, skipped), key=lambda job: job.submit_us)
    if workload.resample:
        assert workload.jobs is not None  # the model has checked it
        return Random(f"{seed}:resample").choices(kept, k=workload.jobs) if kept else []
    if workload.jobs is not None and len(kept) > workload.jobs:
        skipped[f"came after the first {workload.jobs:,}"] = len(kept) - workload.jobs
    return kept[: workload.jobs]


def _fitting(jobs: Iterable[SimJob], nodes: Sequence[Inventory], skipped: Skipped) -> Iterator[SimJob]:
    """Yield the jobs that the engine would not refuse as too large. The count is set, not added to: jobs may be drawn twice."""
    if not nodes:
        yield from jobs
        return
    room = FreeResources()
    for number, inventory in enumerate(nodes, 1):
        room.set_node(number, Node(number, "", "", NodeState.UP, inventory.capacity, (), 0))
    fits_one, fits_all = room.could_ever_fit, cache(room.could_ever_fit_all)
    too_large = 0
    for job in jobs:
        spec = job.spec
        ways = spec.in_each_configuration() if spec.alternatives else (spec,)
        if all(fits_all(one.tasks()) if one.gang else fits_one(one.demand) for one in ways):
            yield job
        else:
            too_large += 1
            skipped[TOO_LARGE] = too_large


def whole_trace(workload: Workload) -> Workload:
    """All jobs of a trace of which a seed draws some; any other workload unchanged."""
    if isinstance(workload, File) and workload.resample:
        return workload.model_copy(update={"resample": False, "jobs": None, "arrivals": arriving.Recorded()})
    return workload


def times_from(workload: Workload) -> str | None:
    """The policy under which submit times are recorded for all others; None if they are not recorded."""
    return workload.arrivals.times_from if isinstance(workload.arrivals, arriving.Closed) else None


def arrivals_of(
    workload: Workload,
    seed: int,
    folder: Path,
    times_us: Sequence[int] | None = None,
    nodes: Sequence[Inventory] = (),
    skipped: Skipped | None = None,
    change: Callable[[SimJob], SimJob] | None = None,
) -> Arrivals:
    """The arrivals for a World. With `times_us` the jobs come at these times, which the same workload had under another policy,
    in the order of the workload; else at the workload's own. `change` is applied to each job; the rest is as for `jobs_of`."""
    counted = Skipped() if skipped is None else skipped
    jobs = jobs_of(workload, seed, folder, nodes, counted)
    jobs = map(change, jobs) if change is not None else jobs
    if times_us is not None:
        return arriving.Timed(arriving.at_times(jobs, times_us, counted))
    return arriving.arrivals(jobs, workload.arrivals)
