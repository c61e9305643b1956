"""Moves inside a virtual cluster: a job keeps its kind. A guaranteed job moves within the cells of its virtual cluster, and an
opportunistic one on any idle cells, while no job waits for these. So a move touches no job's guarantee.
"""

from collections.abc import Iterator
from dataclasses import replace

from scheduler_service.core.messages import Bind, Migrate, Place, Plan
from scheduler_service.core.model import Job, Run
from scheduler_service.core.model.values import ZERO, Vector, add
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.memos import memo_of
from scheduler_service.policies.gandiva.migration import (
    are_alike,
    could_be_closer,
    is_slowed,
    may_move,
    moved_subject,
    name_of,
    onto_idle,
    why_closer,
    why_slow,
    with_room,
)
from scheduler_service.policies.gandiva.share_groups import is_ours
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.stages import Where


def wanted_in(state: State, where: Where, nodes: range, settings: Settings) -> Iterator[Plan]:
    """Jobs whose first task is on one of these nodes."""
    for node in nodes:
        here = {key.job_id for key in state.runs_on.get(node, ()) if state.runs.rows[key].vc == where.vc}
        for job_id in sorted(here):
            runs, job = state.runs_of(job_id), state.jobs.rows[job_id]
            if not runs or runs[0].node != node or not may_move(state, where.vc, job, settings):
                continue
            if any(run.guaranteed is not runs[0].guaranteed for run in runs):
                continue
            if not runs[0].guaranteed:
                plan = None if runs[0].group or _anybody_waits(state) else _opportunistic(state, where, job, runs, settings)
            elif runs[0].group:
                plan = _out_of_turns(state, where, job, runs)
            else:
                plan = _within_cells(state, where, job, runs, settings) or _move_apart(state, where, job, runs, settings)
                plan = plan or _closer(state, where, job, runs)
            if plan is not None:
                yield plan


def _anybody_waits(state: State) -> bool:
    return any(queue.first is not None for queues in state.queues.values() for queue in queues.values())


# ---- guaranteed jobs ---------------------------------------------------------------------------------------------------


def _at_once(state: State, where: Where, job: Job) -> tuple[tuple[Bind, ...], Place] | None:
    """The bindings and the place to start the job now in its own cells. None: others would have to leave."""
    plan = None if where.plan is None else where.plan(state, job.in_configuration(job.configuration))
    if not plan or not isinstance(place := plan[-1], Place) or place.share is not None:
        return None
    binds = tuple(action for action in plan[:-1] if isinstance(action, Bind))
    return (binds, place) if len(binds) == len(plan) - 1 else None


def _out_of_turns(state: State, where: Where, job: Job, runs: list[Run]) -> Plan | None:
    """A job that takes turns has cells of its virtual cluster to itself that came free."""
    group = state.share_groups.rows[runs[0].group]
    if len(group.rows) < 2 or not is_ours(state, group, where.vc) or (found := _at_once(state, where, job)) is None:
        return None
    binds, place = found
    why = (
        f"it takes turns on {name_of(state, runs[0].node)}, and has devices of {name_of(state, place.spots[0].node)} to itself"
    )
    return (*binds, Migrate(job.id, place.spots, why, guaranteed=True))


def _within_cells(state: State, where: Where, job: Job, runs: list[Run], settings: Settings) -> Plan | None:
    """Brings a gang on several servers together on one, and empties a server that is mostly free."""
    node, several = runs[0].node, len({run.node for run in runs}) > 1
    if not (several or (len(runs) == 1 and _mostly_free(state, node, settings))):
        return None
    if (found := _at_once(state, where, job)) is None:
        return None
    binds, place = found
    target = place.spots[0].node
    if {spot.node for spot in place.spots} != {target}:
        return None
    why = _why_together(state, target) if several else _why_emptied(state, node, target)
    return (*binds, Migrate(job.id, place.spots, why, guaranteed=True)) if why else None


# ---- opportunistic jobs ------------------------------------------------------------------------------------------------


def _opportunistic(state: State, where: Where, job: Job, runs: list[Run], settings: Settings) -> Plan | None:
    """As guaranteed jobs, onto what is idle anywhere."""
    node, several = runs[0].node, len({run.node for run in runs}) > 1
    if several or (len(runs) == 1 and _mostly_free(state, node, settings)):
        for target in with_room(state, job, _total(runs)):
            why = _why_together(state, target) if several else _why_emptied(state, node, target)
            if why and (plan := onto_idle(state, where, job, runs, target, why)) is not None:
                return plan
    return _move_apart(state, where, job, runs, settings) or _closer(state, where, job, runs)


# ---- both --------------------------------------------------------------------------------------------------------------


def _move_apart(state: State, where: Where, job: Job, runs: list[Run], settings: Settings) -> Plan | None:
    """A job that its neighbors slow down goes to an empty server with the same devices, once."""
    if memo_of(state, moved_subject(job.id)) is not None or not is_slowed(state, job, runs, settings):
        return None
    for target in with_room(state, job, runs[0].demand, state.loads().affinity == 0):
        if are_alike(state, runs[0].node, target):
            plan = onto_idle(state, where, job, runs, target, why_slow(state, job, target))
            if plan is not None:
                return plan
    return None


def _closer(state: State, where: Where, job: Job, runs: list[Run]) -> Plan | None:
    """A job goes to idle devices of its own server that are closer to each other than those that it has."""
    plan = onto_idle(state, where, job, runs, runs[0].node, "") if could_be_closer(runs) else None
    if plan is None or not isinstance(move := plan[-1], Migrate):
        return None
    why = why_closer(state, runs[0], move.spots[0].devices)
    return (*plan[:-1], replace(move, why=why)) if why else None


def _mostly_free(state: State, node: int, settings: Settings) -> bool:
    whole, free = state.free_resources.capacity_of(node).devices, state.idle_devices.get(node, 0).bit_count()
    return free * 100 >= whole * settings.defragment_free


def _why_together(state: State, target: int) -> str:
    return f"its tasks are on several servers, and {name_of(state, target)} has room for all"


def _why_emptied(state: State, node: int, target: int) -> str:
    """Empty: the job does not go there, as the server is not fuller than its own."""
    whole, free = state.free_resources.capacity_of(node).devices, state.idle_devices.get(node, 0).bit_count()
    there = state.idle_devices.get(target, 0).bit_count()
    fuller = (there, target) < (free, node) and there < state.free_resources.capacity_of(target).devices
    if not fuller or target == node or not are_alike(state, node, target):
        return ""
    return f"{free} of {whole} devices of {name_of(state, node)} are idle, and {name_of(state, target)} has room"


def _total(runs: list[Run]) -> Vector:
    total = ZERO
    for run in runs:
        total = add(total, run.demand)
    return total
