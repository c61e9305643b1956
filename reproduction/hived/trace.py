"""HiveD's comparison on a real trace: Philly's virtual clusters as tenants (docs/reproduction.md).

The trace's cluster had far more GPUs than its jobs asked for, so they run on a smaller one here. A tenant's quota is
proportional to the GPU time that its jobs ask for. Jobs wider than their tenant's quota are left out, because they could never
run in a private cluster.
"""

from collections import Counter
from collections.abc import Mapping
from csv import writer
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from reproduction.hived.measures import NODE_GPUS
from reproduction.hived.plan import POOL, Scheme, case_of, separate_pools, tenant
from reproduction.hived.shared import COLUMNS, LATE, TITLES, compare_with_private, table_row
from reproduction.hived.simulated import see
from reproduction.studies import Simulated, Table
from scheduler_service.core.model.values import SECOND
from scheduler_service.sim.csv_rows import BadTrace, rows
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.workloads import Philly
from scheduler_service.sim.workloads.assuming import Trials
from scheduler_service.sim.workloads.distributions import Constant
from scheduler_service.sim.workloads.hived import DAY_S, apportion
from scheduler_service.sim.workloads.philly import COLUMNS as NEEDED

NODES = 50
TENANTS = 11
"""The number of virtual clusters, those with the most jobs; the other four have 300 at most."""
FROM_DAY, TO_DAY = 60, 105
"""Days in which the jobs ask for 70 % of 400 GPUs, the load that HiveD's paper gives for its cluster."""
SCHEMES: tuple[Scheme, ...] = ("private", "quota", "cells", "static")


class _Job(NamedTuple):
    submit_s: float
    vc: str
    gpus: int
    work_s: float


class Cut(NamedTuple):
    """The part of the trace that is simulated."""

    file: Path
    jobs: int
    too_wide: int
    asked: float
    """The share of the cluster that the jobs ask for while they arrive."""
    quotas: Mapping[str, int]
    """Quotas in nodes."""


def cut_trace(trace: Path, share: float, folder: Path) -> Cut:
    """Write a part of the trace to a file for the simulations. Raises BadTrace, also if those days have no job."""
    read = [
        _Job(row.micros("submit_s") / SECOND, row.text("vc"), row.amount("num_gpus"), row.micros("duration_s") / SECOND)
        for row in rows(trace, NEEDED)
    ]
    last = FROM_DAY + share * (TO_DAY - FROM_DAY)
    largest = {vc for vc, _ in Counter(job.vc for job in read).most_common(TENANTS)}
    taken = [job for job in read if job.vc in largest and FROM_DAY <= job.submit_s / DAY_S < last]
    if not taken:
        raise BadTrace(trace, 0, "submit_s", f"no job of its largest virtual clusters comes in days {FROM_DAY} to {last:g}")
    asked: dict[str, float] = {}
    for job in taken:
        asked[job.vc] = asked.get(job.vc, 0) + job.gpus * job.work_s
    quotas = dict(zip(asked, apportion(list(asked.values()), NODES, 1), strict=True))
    kept = [job for job in taken if job.gpus <= quotas[job.vc] * NODE_GPUS]
    folder.mkdir(parents=True, exist_ok=True)
    text, file = StringIO(), folder / "philly.csv"
    lines = writer(text, lineterminator="\n")
    lines.writerow(("submit_s", "vc", "num_gpus", "duration_s"))
    lines.writerows((f"{job.submit_s:.6f}", job.vc, job.gpus, f"{job.work_s:.6f}") for job in kept)
    file.write_text(text.getvalue(), encoding="utf-8")
    time_s = (last - FROM_DAY) * DAY_S * NODES * NODE_GPUS
    return Cut(file.absolute(), len(kept), len(taken) - len(kept), sum(job.gpus * job.work_s for job in kept) / time_s, quotas)


def trace_cases(of: Cut, seed: int) -> dict[Scheme, Case]:
    """Cases by scheme. Private clusters are one simulation here: all have nodes of their own, and lend none."""
    workload = Philly(
        file=of.file,
        trials=Trials(share=0),
        grace_s=Constant(value=30),
        cpus_per_gpu=0,
        memory_gib_per_gpu=0,
        gang_of=NODE_GPUS,
    )
    together = tuple(tenant(name, POOL, nodes) for name, nodes in of.quotas.items())
    alone, pools = separate_pools(of.quotas)
    return {
        "private": case_of(NODES, "cells", alone, workload, seed, "guaranteed", pools),
        "quota": case_of(NODES, "quota", together, workload, seed),
        "cells": case_of(NODES, "cells", together, workload, seed),
        "static": case_of(NODES, "cells", alone, workload, seed, pools=pools),
    }


def left_out(jobs: int) -> str:
    """The sentence about jobs that are too wide."""
    if jobs == 1:
        return "1 more is wider than what its virtual cluster owns, and left out."
    return f"{jobs:,} more are wider than what their virtual clusters own, and left out."


def trace_table(of: Cut, cases: Mapping[Scheme, Case], found: Simulated) -> Table:
    seen = {scheme: see([case], found) for scheme, case in cases.items()}
    shown = {
        scheme: table_row(
            it, None if scheme == "private" else compare_with_private(it, seen["private"], of.quotas), scheme != "quota"
        )
        for scheme, it in seen.items()
    }
    note = (
        f"{of.jobs:,} jobs of {len(of.quotas)} virtual clusters, which ask for {100 * of.asked:.0f} % of {NODES} nodes. "
        f"{left_out(of.too_wide)} {LATE}"
    )
    table = tuple((TITLES[scheme], shown[scheme]) for scheme in SCHEMES)
    return Table("hived-traces", "Philly's virtual clusters share a cluster", COLUMNS, table, note)
