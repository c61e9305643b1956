"""Which runs are preempted together, and what they release.

A run that holds its devices alone, or a gang, is preempted as one. So is a share group with all jobs in it: what members
release one by one is of no use before the last of them has exited. A member that is made ready while its job runs elsewhere
gives way: its job is not preempted with the group.
"""

from collections.abc import Iterable

from scheduler_service.core.model import Run
from scheduler_service.core.model.sharing import ShareGroup
from scheduler_service.core.model.values import ZERO, Mask, Vector, add, mask_of
from scheduler_service.core.state.tables import Tables


def group_of(state: Tables, job_id: int) -> ShareGroup | None:
    """Return the share group of the job's runs; None: they hold their devices alone, or it has no runs."""
    if not state.share_groups.rows:
        return None
    key = next(iter(state.active.get(job_id, ())), None)
    return None if key is None else state.share_groups.rows.get(state.runs.rows[key].group)


def jobs_together(state: Tables, job_id: int) -> tuple[int, ...]:
    """Return the jobs that are preempted or reclaimed together with this one, including it, in order."""
    group = group_of(state, job_id)
    return (job_id,) if group is None else tuple(sorted({run.job_id for run in _executing(state, group)}))


def runs_together(state: Tables, job_id: int) -> list[Run]:
    """Return the runs that are preempted or reclaimed with the job: its own, and those of all members of its share group."""
    group = group_of(state, job_id)
    return state.runs_of(job_id) if group is None else _executing(state, group)


def made_ready(state: Tables, job_id: int) -> list[Run]:
    """Return the members of the job's share group that wait for the end of the run before them, which is elsewhere."""
    group = group_of(state, job_id)
    members = () if group is None else group.members()
    return [run for key in members if (run := state.runs.rows[key]).awaits]


def _executing(state: Tables, group: ShareGroup) -> list[Run]:
    return [run for key in group.members() if not (run := state.runs.rows[key]).awaits]


def first_of_each(state: Tables, job_ids: Iterable[int]) -> list[int]:
    """Return these jobs, in order, without those that are preempted together with an earlier one."""
    if not state.share_groups.rows:
        return list(job_ids)
    first: list[int] = []
    seen: set[int] = set()
    for job_id in job_ids:
        if job_id not in seen:
            first.append(job_id)
            seen.update(jobs_together(state, job_id))
    return first


def members_on(state: Tables, group: ShareGroup, node: int) -> list[Run]:
    """Return the members of the group on the node, in order."""
    return [run for key in group.members() if (run := state.runs.rows[key]).node == node]


def holding(state: Tables, run: Run) -> Vector:
    """Return what comes free on the node when the run and all that are preempted with it have ended. The first executing member
    of a share group on a node counts for the group and all of its members there, and the others for nothing, so that sums over
    them are right."""
    if not run.group:
        return run.charged if run.parked_mib else run.demand
    group = state.share_groups.rows[run.group]
    here = members_on(state, group, run.node)
    if next((other.key for other in here if not other.awaits), None) != run.key:
        return ZERO
    total = Vector(devices=len(group.devices_on(run.node)))
    for member in here:
        total = add(total, member.charged)
    return total


def devices_released(state: Tables, runs: Iterable[Run]) -> dict[int, Mask]:
    """Return, by node, the devices that no run holds once these runs have ended. Devices of a share group are released only if
    no other member uses them."""
    ending = {run.key: run for run in runs}
    found: dict[int, Mask] = {}
    for run in ending.values():
        mask = mask_of(run.devices)
        if run.group:
            for other in members_on(state, state.share_groups.rows[run.group], run.node):
                if other.key not in ending:
                    mask &= ~mask_of(other.devices)
        found[run.node] = found.get(run.node, 0) | mask
    return found


def resources_released(state: Tables, runs: list[Run]) -> Vector:
    """Return the total resources that come free once exactly these runs have ended."""
    total, shared = ZERO, [run for run in runs if run.group]
    for run in runs:
        total = add(total, run.charged)
    masks = devices_released(state, shared) if shared else {}
    return add(total, Vector(devices=sum(mask.bit_count() for mask in masks.values())))
