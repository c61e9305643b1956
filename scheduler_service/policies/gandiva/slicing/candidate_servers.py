"""The servers on which a job could share devices, in the order in which they are looked at."""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.model import Job
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.slicing.mates import Mates, outranked_devices, outranks
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.stages import Where

LOOKED_AT = 8
"""Servers of each kind that are looked at for a job."""


def servers_by_load(state: State, job: Job, where: Where, settings: Settings, mates: Mates = Mates.EQUALS) -> Iterator[int]:
    """The servers that are looked at: those of the job's affinity first, in each case those with the lowest load first."""
    tasks = job.spec.tasks()
    loads, among = state.loads(), state.suitable_for(job.spec)
    whole, free = state.free_resources.capacities(among)[2], state.free_resources.offered_resources(among)
    least = Vector(*(min(need[i] for need in tasks) for i in range(3)))
    asked = least.devices if job.spec.gang else job.spec.demand.devices
    may = (free[2] >= 0) & (whole >= max(least.devices, 1))
    may &= (free[0] >= least.cpu_milli) & (free[1] >= least.memory_mib)
    crowded = loads.requested + asked > whole * settings.oversubscription
    if Mates.OUTRANKED in mates:
        held = outranked_devices(state, job)
        may &= (held > 0) | bool(job.spec.gang)  # other tasks of a gang may have idle devices
        may &= (held + free[2] >= least.devices) | (Mates.EQUALS in mates)
    else:
        may &= ~crowded
    may[0] = False
    if where.nodes is not None:
        may &= _mask_of_nodes(where.nodes, len(may))
    first, most = max(task.devices for task in tasks), max(LOOKED_AT, len(tasks))
    alike = loads.affinity == first
    for kind in (may & alike, may & ~alike):
        nodes = _lowest_first(loads.requested, whole, kind)
        if mates == Mates.EQUALS | Mates.OUTRANKED:
            nodes = (node for node in nodes if not crowded[node] or _has_turns_left(state, job, node, asked, settings))
        yield from islice(nodes, most)


def servers_with_room(state: State, job: Job, where: Where, held: NDArray[np.int64]) -> list[int]:
    """The servers that have enough for a task of the job, with what others hold of their devices; the least loaded first."""
    tasks, among = job.spec.tasks(), state.suitable_for(job.spec)
    least = Vector(*(min(need[i] for need in tasks) for i in range(3)))
    whole, free = state.free_resources.capacities(among)[2], state.free_resources.offered_resources(among)
    may = (free[2] >= 0) & (held + free[2] >= max(least.devices, 1))
    may &= (free[0] >= least.cpu_milli) & (free[1] >= least.memory_mib)
    may[0] = False
    if where.nodes is not None:
        may &= _mask_of_nodes(where.nodes, len(may))
    return list(_lowest_first(state.loads().requested, whole, may))


def _mask_of_nodes(nodes: Sequence[int], count: int) -> NDArray[np.bool_]:
    chosen = np.zeros(count, np.bool_)
    chosen[[node for node in nodes if node < count]] = True
    return chosen


def _lowest_first(requested: NDArray[np.int64], whole: NDArray[np.int64], may: NDArray[np.bool_]) -> Iterator[int]:
    ids = np.nonzero(may)[0]
    order = np.argsort(requested[ids] / whole[ids], kind="stable")
    return (int(node) for node in ids[order])


def _has_turns_left(state: State, job: Job, node: int, asked: int, settings: Settings) -> bool:
    """Whether the runs of the server ask for few enough devices, without those that have no turns while the job is there."""
    runs = (state.runs.rows[key] for key in state.runs_on.get(node, ()))
    others = sum(run.demand.devices for run in runs if not outranks(job, state.jobs.rows[run.job_id]))
    return others + asked <= state.nodes.rows[node].capacity.devices * settings.oversubscription
