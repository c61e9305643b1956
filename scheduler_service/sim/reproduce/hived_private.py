"""Private clusters: each tenant alone on as many nodes as it owns, and what comes of all of them as one.

This is what a shared cluster is measured against: a job that waits longer there than here, although its tenant owns enough,
has met a sharing anomaly (HiveD, section 2).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scheduler_service.sim.cases import Case
from scheduler_service.sim.workloads import Hived


def private(shared: Case, quotas: Mapping[str, int]) -> dict[str, Case]:
    """A case for each tenant: its own jobs, which come when they do in the shared cluster, on its own nodes. Jobs that ask for
    more than all of them are skipped, and counted. Raises ValueError if the cluster has nodes of several kinds."""
    if not isinstance(shared.workload, Hived) or len(shared.cluster) != 1:
        raise ValueError("private clusters are made of a `hived` workload on nodes that are all alike")
    (nodes,), jobs = shared.cluster, shared.workload
    return {
        name: shared.model_copy(
            update={
                "cluster": (nodes.model_copy(update={"nodes": quotas[name]}),),
                "workload": jobs.model_copy(update={"tenants": (name,)}),
            }
        )
        for name in jobs.counts()
    }


def joined(tables: Sequence[tuple[Any, Any]], nodes: Sequence[int]) -> tuple[Any, Any]:
    """The tables of jobs and of runs of several clusters as those of one: jobs and nodes have numbers of their own, in turn."""
    import pyarrow as pa

    jobs, runs, first_job, first_node = [], [], 0, 0
    for (its_jobs, its_runs), count in zip(tables, nodes, strict=True):
        jobs.append(_moved(its_jobs, "job", first_job))
        runs.append(_moved_nodes(_moved(its_runs, "job", first_job), first_node))
        first_job += int(max(its_jobs["job"].to_numpy(), default=0))
        first_node += count
    return pa.concat_tables(jobs), pa.concat_tables(runs)


def _moved(table: Any, name: str, by: int) -> Any:
    import pyarrow as pa

    moved = pa.array(table[name].to_numpy() + np.int32(by))
    return table.set_column(table.column_names.index(name), name, moved)


def _moved_nodes(runs: Any, by: int) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.list_value_length(runs["nodes"]).to_numpy()
    ends = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    nodes = pa.array(pc.list_flatten(runs["nodes"]).to_numpy() + np.int32(by))
    return runs.set_column(runs.column_names.index("nodes"), "nodes", pa.ListArray.from_arrays(ends, nodes))


def kept(folder: Path) -> tuple[Any, Any]:
    """The tables of a case that a sweep kept with all it has."""
    import pyarrow.parquet as pq

    return pq.read_table(folder / "jobs.parquet"), pq.read_table(folder / "runs.parquet")
