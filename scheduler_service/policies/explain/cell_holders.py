"""The jobs that have the cells that a job waits for."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, islice

from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.queries import nodes_in
from scheduler_service.core.cells.request import requested_cells
from scheduler_service.core.messages import Wait
from scheduler_service.core.model import Job, Reason
from scheduler_service.core.model.tenants.virtual_clusters import Binding, Guarantee, VirtualCluster
from scheduler_service.core.model.values import Mask, Micros, mask_of
from scheduler_service.core.state.state import State
from scheduler_service.policies.explain.explanation import AHEAD_SHOWN, Blocker
from scheduler_service.policies.hived.guaranteed import sufficing

LOOKED_AT = 2_000
"""Cells, and runs in them, that are looked at, so that it takes no longer than some 20 ms: of more, not all are counted."""


def waits_for_cells(state: State, vc: VirtualCluster, job: Job, wait: Wait) -> Blocker:
    """Why it waits, with the jobs that have its virtual cluster's cells, if these are what it waits for."""
    blocker = Blocker(wait.reason, wait.detail)
    if wait.reason is not Reason.BEYOND_QUOTA:
        return blocker
    ends = {job_id: _end(state, job_id) for job_id in _holders(state, vc, job)}
    known = sorted((end, job_id) for job_id, end in ends.items() if end is not None)
    jobs = [*(job_id for _, job_id in known), *sorted(job_id for job_id, end in ends.items() if end is None)]
    first = known[0][0] if known else None
    return blocker._replace(holders=len(jobs), holder_jobs=tuple(jobs[:AHEAD_SHOWN]), first_end_us=first)


def _end(state: State, job_id: int) -> Micros | None:
    """When the job ends at the latest: by its time limit, or by the grace period if it is stopping. None: that is unknown."""
    leaves = [run.stop_us + run.stop_grace_us for run in state.runs_of(job_id) if run.stop_us is not None]
    return max(leaves) if leaves else state.jobs.rows[job_id].limit_us


def _holders(state: State, vc: VirtualCluster, job: Job) -> set[int]:
    """Jobs that have, or for which is kept, part of a cell that is large enough for a task of this one."""
    pools = state.pools
    assert pools is not None
    wanted: dict[int, Mask] = defaultdict(int)
    cells = chain.from_iterable(_cells(pools, vc, one) for one in job.in_each_configuration())
    for cell in islice(cells, LOOKED_AT):
        for node, mask in nodes_in(pools, cell):
            wanted[node] |= mask
    keys = (key for node in sorted(wanted) for key in sorted(state.runs_on.get(node, ())))
    runs = (state.runs.rows[key] for key in islice(keys, LOOKED_AT))
    found = {run.job_id for run in runs if run.guaranteed and mask_of(run.devices) & wanted[run.node]}
    for earmark in state.earmarks.rows.values():
        opportunistic = state.jobs.rows[earmark.job_id].spec.guarantee is Guarantee.OPPORTUNISTIC
        if not opportunistic and earmark.mask & wanted.get(earmark.node, 0):
            found.add(earmark.job_id)
    return found


def _cells(pools: Pools, vc: VirtualCluster, job: Job) -> Iterator[Binding]:
    for name, owner in sufficing(pools, vc, job):
        pool = pools.pools[name]
        wanted = requested_cells(job.spec, pool.shape, pools.share(name))
        smallest = 1 if isinstance(wanted, str) else min(need.leaves for need in wanted.needs)
        for level, called in enumerate(pool.shape.levels):
            if pool.shape.size(level) >= smallest:
                yield from (Binding(name, called, index, vc.id) for index in pool.bound_of(owner, level))
