"""Moves: jobs are migrated so that fewer take turns, gangs are on one server, jobs do not slow each other down, the devices of
a job are close to each other, and servers are emptied (Gandiva, section 4.2.2).

No job moves while another waits, since what is idle is for that one. A job stays for `move_pause` seconds before it moves
again, so that what moves cost is a small part of what jobs do, and there are at most `moves_per_hour` in all. Trials do not
move, nor jobs whose users say with whom they share.
"""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.cells.closeness import closeness, distance
from scheduler_service.core.messages import Migrate, Plan, Remember, Spot
from scheduler_service.core.model import Job, JobClass, JobState, Run, RunPhase
from scheduler_service.core.model.values import SECOND, ZERO, Vector, add, fits, mask_of
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.memos import Round, memo_of
from scheduler_service.policies.gandiva.slicing.probes import NAME
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.gandiva.slicing.take_turns import would_do
from scheduler_service.policies.placing.closest import pick_devices
from scheduler_service.policies.stages import Where

_LOOKED_AT = 4
"""Servers that are looked at as the destination of a job."""


def moved_subject(job_id: int) -> str:
    """The subject of the memo that says when a job was moved last."""
    return f"moved/{job_id}"


def move(state: State, vc: str, wanted: Iterable[Plan], now: Round, settings: Settings) -> Generator[Plan, str | None, Round]:
    """Makes the moves that are wanted. Returns the round with what is left of its hour."""
    clock = state.cluster.clock_us
    now = now.with_hour_at(clock)
    if any(first_waiting(state, vc)):
        return now
    for actions in wanted:
        action = actions[-1]
        assert isinstance(action, Migrate)
        if now.moves >= settings.moves_per_hour:
            break
        plan = (*actions, Remember(NAME, moved_subject(action.job_id), (clock,), action.job_id))
        if would_do(state, plan) and (yield plan) is None:
            now = now._replace(moves=now.moves + 1)
    return now


def wanted_on_site(state: State, nodes: range, settings: Settings) -> Iterator[Plan]:
    """Moves on a site without virtual clusters, of jobs that run on these nodes, or to them."""
    return ((action,) for action in _wanted_moves(state, "", nodes, settings))


def _wanted_moves(state: State, vc: str, nodes: range, settings: Settings) -> Iterator[Migrate]:
    for node in nodes:
        if state.free_resources.is_open(node) and (action := _out_of_turns(state, vc, node, settings)) is not None:
            yield action
    for node in nodes:
        here = {key.job_id for key in state.runs_on.get(node, ())}
        for job_id in sorted(here):
            job = state.jobs.rows[job_id]
            if not may_move(state, vc, job, settings):
                continue
            action = _bring_together(state, job, node) or _move_apart(state, job, node, settings) or _closer(state, job, node)
            if action is not None:
                yield action
        yield from _empty_server(state, vc, node, settings)


def first_waiting(state: State, vc: str) -> Iterator[Job]:
    """The first job of each queue."""
    for lane in OWN_LANES:
        for key in state.waiting(vc, lane):
            yield state.jobs.rows[key[-1]]
            break


def may_move(state: State, vc: str, job: Job, settings: Settings) -> bool:
    """Whether the job may be moved at all, and has stayed for long enough where it is."""
    if job.spec.vc != vc or job.spec.job_class is not JobClass.BEST_EFFORT or job.state is not JobState.RUNNING:
        return False
    if not job.spec.grace_us:
        return False  # it has no time to save its work
    if job.spec.shares or job.resize_to or job.id in state.operation_of or job.sampling is not None:
        return False
    runs, memo = state.runs_of(job.id), memo_of(state, moved_subject(job.id))
    since = max((run.started_us or 0 for run in runs), default=0)
    since = since if memo is None else max(since, int(memo.value[0]))
    unpromised = all(run.phase is RunPhase.RUNNING and run.key not in state.promised_by for run in runs)
    return unpromised and state.cluster.clock_us - since >= settings.move_pause * SECOND


def under_way(state: State, node: int) -> bool:
    """Whether a job of the server is being moved, or changes in another way."""
    return any(key.job_id in state.operation_of for key in state.runs_on.get(node, ()))


# ---- out of turns ------------------------------------------------------------------------------------------------------


def _out_of_turns(state: State, vc: str, node: int, settings: Settings) -> Migrate | None:
    """A job that takes turns elsewhere, on the server with the highest load, has idle devices of this node to itself."""
    idle = state.idle_devices.get(node, 0).bit_count()
    if not idle:
        return None
    loads, whole = state.loads(), state.free_resources.capacities()[2]
    over = np.nonzero(loads.requested > whole)[0]
    order = over[np.argsort(-loads.requested[over] / np.maximum(whole[over], 1), kind="stable")][:_LOOKED_AT]
    for source in map(int, order):
        for number in sorted(state.groups_on.get(source, ())):
            group = state.share_groups.rows[number]
            if len(group.rows) < 2:
                continue
            for job_id in sorted({key.job_id for key in group.members()}, reverse=True):
                job = state.jobs.rows[job_id]
                runs = state.runs_of(job_id)
                if len(runs) == 1 and runs[0].demand.devices <= idle and may_move(state, vc, job, settings):
                    why = f"it takes turns on {name_of(state, source)}, and has devices of {name_of(state, node)} to itself"
                    if (action := move_onto(state, job, runs, node, why)) is not None:
                        return action
    return None


# ---- together ----------------------------------------------------------------------------------------------------------


def _bring_together(state: State, job: Job, node: int) -> Migrate | None:
    """A gang that is on several servers goes to one that has room for all of it. `node`: that of its first task."""
    runs = state.runs_of(job.id)
    if len({run.node for run in runs}) < 2 or runs[0].node != node or any(run.group for run in runs):
        return None
    total = ZERO
    for run in runs:
        total = add(total, run.demand)
    for target in with_room(state, job, total):
        action = move_onto(
            state, job, runs, target, f"its tasks are on several servers, and {name_of(state, target)} has room for all"
        )
        if action is not None:
            return action
    return None


# ---- apart -------------------------------------------------------------------------------------------------------------


def _move_apart(state: State, job: Job, node: int, settings: Settings) -> Migrate | None:
    """A job that its neighbors slow down goes to an empty server with the same devices. If it was moved before and is slow all
    the same, its neighbors were not the reason."""
    runs, moved = state.runs_of(job.id), memo_of(state, moved_subject(job.id)) is not None
    if moved or not is_slowed(state, job, runs, settings):
        return None
    for target in with_room(state, job, runs[0].demand, state.loads().affinity == 0):
        if are_alike(state, node, target):
            return move_onto(state, job, runs, target, why_slow(state, job, target))
    return None


def is_slowed(state: State, job: Job, runs: list[Run], settings: Settings) -> bool:
    """Whether a job of one task, which has its devices alone, is slower with neighbors than it was at best."""
    profile = job.profile
    if profile is None or len(runs) != 1 or runs[0].group or not runs[0].given:
        return False
    others = (state.runs.rows[key] for key in state.runs_on.get(runs[0].node, ()) if key.job_id != job.id)
    neighbours = any(run.given and not run.is_parked for run in others)
    return neighbours and 100 * (profile.mini_batch_us - profile.best_us) > settings.slowed * profile.best_us


def why_slow(state: State, job: Job, target: int) -> str:
    """For the story: why the job goes to an empty server."""
    assert job.profile is not None  # it is slowed
    now, best = job.profile.mini_batch_us / 1000, job.profile.best_us / 1000
    times = f"{now:.4g} ms a mini-batch beside others, and {best:.4g} ms at best"
    return f"it takes {times}, and {name_of(state, target)} is empty"


# ---- closer ------------------------------------------------------------------------------------------------------------


def _closer(state: State, job: Job, node: int) -> Migrate | None:
    """A job goes to idle devices of its own server that are closer to each other than those that it has."""
    runs = state.runs_of(job.id)
    action = move_onto(state, job, runs, node, "") if could_be_closer(runs) else None
    if action is None or not (why := why_closer(state, runs[0], action.spots[0].devices)):
        return None
    return replace(action, why=why)


def could_be_closer(runs: list[Run]) -> bool:
    """Whether it is a job of one task, which has several devices alone."""
    return len(runs) == 1 and not runs[0].group and len(runs[0].devices) > 1


def why_closer(state: State, run: Run, devices: tuple[int, ...]) -> str:
    """For the story: that these devices of its server are closer to each other than those of the run. Empty: they are not."""
    tree, old, new = state.device_tree(run.node), mask_of(run.devices), mask_of(devices)
    if distance(tree, new) >= distance(tree, old):
        return ""
    (before, _), (after, linked) = closeness(tree, old), closeness(tree, new)
    better = f"share a {after}" if before != after else f"share a {after} with NVLink" if linked else ""
    return f"its devices share no more than the {before}, and idle ones of {name_of(state, run.node)} {better}"


# ---- servers that are emptied ------------------------------------------------------------------------------------------


def _empty_server(state: State, vc: str, node: int, settings: Settings) -> Iterator[Migrate]:
    """Jobs of a server that is mostly free go to servers in use that have fewer devices free."""
    whole = state.free_resources.capacity_of(node).devices
    free = state.idle_devices.get(node, 0).bit_count()
    if not whole or free == whole or free * 100 < whole * settings.defragment_free:
        return
    for job_id in sorted({key.job_id for key in state.runs_on.get(node, ())}):
        job, runs = state.jobs.rows[job_id], state.runs_of(job_id)
        if len(runs) != 1 or runs[0].group or not runs[0].demand.devices or not may_move(state, vc, job, settings):
            continue
        for target in with_room(state, job, runs[0].demand):
            there = state.idle_devices.get(target, 0).bit_count()
            in_use = there < state.free_resources.capacity_of(target).devices
            fuller = there < free or (there == free and target < node)
            if target == node or not in_use or not fuller or not are_alike(state, node, target):
                continue
            why = f"{free} of {whole} devices of {name_of(state, node)} are idle, and {name_of(state, target)} has room"
            if (action := move_onto(state, job, runs, target, why)) is not None:
                yield action
                return


def are_alike(state: State, one: int, other: int) -> bool:
    """Whether the devices are of one model, so that a job loses nothing by the move."""
    a, b = state.devices.rows.get((one, 0)), state.devices.rows.get((other, 0))
    return a is not None and b is not None and a.model == b.model


def with_room(state: State, job: Job, need: Vector, among: NDArray[np.bool_] | None = None) -> list[int]:
    """Servers with so much free (`among` these, or all), those with the fewest idle devices first."""
    offered = state.free_resources.offered_resources(state.suitable_for(job.spec))
    room = (offered[2] >= need.devices) & (offered[0] >= need.cpu_milli) & (offered[1] >= need.memory_mib)
    room[0] = False
    if among is not None:
        room &= among
    ids = np.nonzero(room)[0]
    return [int(node) for node in ids[np.argsort(offered[2][ids], kind="stable")[:_LOOKED_AT]]]


def move_onto(state: State, job: Job, runs: list[Run], node: int, why: str) -> Migrate | None:
    """All tasks of the job at this node, on idle devices. None: the node has not so much free."""
    total, taken, spots = ZERO, 0, list[Spot]()
    for run in runs:
        total = add(total, run.demand)
        devices = pick_devices(state, node, run.demand.devices, taken)
        if len(devices) < run.demand.devices:
            return None
        taken |= sum(1 << index for index in devices)
        spots.append(Spot(node, devices))
    if not (state.is_usable(job.spec, node) and fits(total, state.free_resources.free(node))):
        return None
    return Migrate(job.id, tuple(spots), why, any(run.guaranteed for run in runs))


def onto_idle(state: State, where: Where, job: Job, runs: list[Run], node: int, why: str) -> Plan | None:
    """As `move_onto`, in a virtual cluster, too: a guaranteed job stays in cells that are its virtual cluster's."""
    if where.onto is None:
        action = None if where.vc else move_onto(state, job, runs, node, why)
        return None if action is None else (action,)
    found = where.onto(state, job, node, runs[0].guaranteed)
    if found is None:
        return None
    binds, spots = found
    return (*binds, Migrate(job.id, spots, why, runs[0].guaranteed))


def place_to_move(state: State, job: Job) -> tuple[Spot, ...] | None:
    """Idle devices of one other server for all tasks of a running job; None: there are none."""
    runs = state.runs_of(job.id)
    total = ZERO
    for run in runs:
        total = add(total, run.demand)
    here = {run.node for run in runs}
    moves = (move_onto(state, job, runs, node, "") for node in with_room(state, job, total) if node not in here)
    return next((move.spots for move in moves if move is not None), None)


def name_of(state: State, node: int) -> str:
    return state.nodes.rows[node].name
