"""Resumes parked jobs whose own devices are not idle: on others of their nodes, or else where they would start now."""

from collections import Counter
from collections.abc import Callable

from scheduler_service.core.cells.closeness import closest_devices
from scheduler_service.core.enact import enact
from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Migrate, Place, Rng, Spot
from scheduler_service.core.model import Job, Run
from scheduler_service.core.model.values import mask_of
from scheduler_service.core.operations.moving_parked import may_move
from scheduler_service.core.state.state import State

Find = Callable[[State, Job], Place | None]
"""Finds where a job would start now; None: nowhere."""


def resuming_elsewhere(serve: Policy, find: Find) -> Policy:
    """A policy that first moves those that wait for their own devices, in the order in which they were parked. Like preempted
    jobs, they come before the queues: they hold memory meanwhile."""

    def move_and_serve(state: State, rng: Rng) -> Proposals:
        yield from _move_waiting(state, find)
        yield from serve(state, rng)

    return lambda state, rng: (move_and_serve if state.waiting_operations else serve)(state, rng)


def _move_waiting(state: State, find: Find) -> Proposals:
    in_vain = set()
    for number in sorted(state.waiting_operations):
        operation = state.operations.rows[number]
        job = state.jobs.rows[operation.job_id]
        if not may_move(state, operation):
            continue
        needs = job.needs(), job.configuration
        move = _on_its_nodes(state, job)
        if move is None and needs not in in_vain:
            move = _move_anywhere(state, job, find)
            if move is None:
                in_vain.add(needs)
        if move is not None:
            yield (move,)


def resume_elsewhere(state: State, job: Job, find: Find) -> Migrate | None:
    """Resume a parked job where there is room. None: there is no room, or it cannot be moved."""
    operation = state.operations.rows[state.operation_of[job.id]]
    if not may_move(state, operation):
        return None
    return _on_its_nodes(state, job) or _move_anywhere(state, job, find)


def _on_its_nodes(state: State, job: Job) -> Migrate | None:
    """On idle devices of the nodes where its runs are. Not for a job that asks for devices of one cell."""
    runs, cells = state.runs_of(job.id), job.launch_spec.cells
    if cells.levels or cells.within or cells.pin or not all(run.placed_on for run in runs):
        return None
    taken: Counter[int] = Counter()
    spots = []
    for run in runs:
        devices = _pick_idle(state, job, run, taken[run.node])
        if len(devices) < len(run.placed_on) or not state.is_usable(job.launch_spec, run.node):
            return None
        taken[run.node] |= mask_of(devices)
        spots.append(Spot(run.node, devices))
    move = Migrate(job.id, tuple(spots), "other devices of its node are idle")
    return move if _would_do(state, move) else None


def _pick_idle(state: State, job: Job, run: Run, taken: int) -> tuple[int, ...]:
    idle = state.idle_devices.get(run.node, 0) & ~state.kept_devices.get(run.node, 0) & ~taken
    least = job.launch_spec.device_memory_mib
    for index in range(idle.bit_length()) if least else ():
        if idle >> index & 1 and state.devices.rows[run.node, index].memory_mib < least:
            idle &= ~(1 << index)
    return closest_devices(state.device_tree(run.node), idle, len(run.placed_on))


def _move_anywhere(state: State, job: Job, find: Find) -> Migrate | None:
    """The move to where the job would start now, in the configuration in which it runs."""
    place = find(state, job.in_configuration(job.configuration))
    if place is None or place.share is not None:
        return None
    move = Migrate(job.id, place.spots, "its own devices are taken, and there is room")
    return move if _would_do(state, move) else None


def _would_do(state: State, move: Migrate) -> bool:
    with state.supposing():
        return enact(state, (move,), state.cluster.clock_us) is None
