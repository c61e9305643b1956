"""A simulated setting of HiveD's evaluation: the data for its tables and figures.

The private clusters of all tenants count as one setting. Shared clusters are compared with it: a job that waits longer in a
shared cluster, although its tenant owns enough, has met a sharing anomaly (HiveD, section 2).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reproduction.hived import exchange as hived_exchange
from reproduction.hived import measures as hived_measures
from reproduction.studies import Simulated
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.experiments.history import Floats, History

DAY_US = 86_400_000_000
POINTS = 240
"""The number of points of a curve."""


class Seen(NamedTuple):
    """A setting's results."""

    history: History
    jobs: Any
    runs: Any
    nodes: int
    uses: hived_measures.Uses
    delays: Any
    traded: hived_exchange.Windows | None
    """None if no cells were exchanged."""

    def edges(self, step: int = POINTS) -> Floats:
        """Equal steps from the first submit to the last one."""
        return np.linspace(float(self.history.submit.min()), float(self.history.submit.max()), step + 1)

    def use(self) -> hived_exchange.Use:
        return hived_exchange.Use(self.uses, hived_measures.all_uses(self.history, self.runs), self.history.vcs[1])


def see(of: Iterable[Case], found: Simulated) -> Seen:
    """Read the results of a setting. Several cases are clusters that together count as one."""
    cases = list(of)
    folders = [found[case].folder for case in cases]
    nodes = [sum(group.nodes for group in case.cluster) for case in cases]
    jobs, runs = join_tables([read_tables(one) for one in folders], nodes)
    history = hived_measures.history_of((jobs, runs), sum(nodes))
    traded = hived_exchange.read_windows(folders[0], history.horizon) if cases[0].exchanges_cells else None
    delays = hived_measures.delays(history, jobs)
    return Seen(history, jobs, runs, sum(nodes), hived_measures.uses(history, runs), delays, traded)


def days(edges: Floats) -> list[float]:
    """The days from the first edge to each later one."""
    found: list[float] = ((edges[1:] - edges[0]) / DAY_US).tolist()
    return found


def join_tables(tables: Sequence[tuple[Any, Any]], nodes: Sequence[int]) -> tuple[Any, Any]:
    """Combine the tables of jobs and runs of several clusters into one, with job and node numbers in turn."""
    jobs, runs, first_job, first_node = [], [], 0, 0
    for (its_jobs, its_runs), count in zip(tables, nodes, strict=True):
        jobs.append(_shift_numbers(its_jobs, "job", first_job))
        runs.append(_moved_nodes(_shift_numbers(its_runs, "job", first_job), first_node))
        first_job += int(max(its_jobs["job"].to_numpy(), default=0))
        first_node += count
    return pa.concat_tables(jobs), pa.concat_tables(runs, promote_options="default")


def _shift_numbers(table: Any, name: str, by: int) -> Any:
    moved = pa.array(table[name].to_numpy() + np.int32(by))
    return table.set_column(table.column_names.index(name), name, moved)


def _moved_nodes(runs: Any, by: int) -> Any:
    lengths = pc.list_value_length(runs["nodes"]).to_numpy()
    ends = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    nodes = pa.array(pc.list_flatten(runs["nodes"]).to_numpy() + np.int32(by))
    return runs.set_column(runs.column_names.index("nodes"), "nodes", pa.ListArray.from_arrays(ends, nodes))


def read_tables(folder: Path) -> tuple[Any, Any]:
    """Read the tables of a case that a sweep kept in full."""
    return pq.read_table(folder / "jobs.parquet"), pq.read_table(folder / "runs.parquet")
