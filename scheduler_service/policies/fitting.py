"""Where a job fits: plain vector fitting, first node first."""

from collections.abc import Iterator

from scheduler_service.core.job import Job, JobClass, Reason
from scheduler_service.core.messages import Place, Wait
from scheduler_service.core.state import State
from scheduler_service.core.values import add, fits


def place(state: State, job: Job) -> Place | None:
    """Puts the job on the first node that has room, counting what is kept for it there. None: nowhere."""
    node = _first_node(state, job)
    return None if node is None else Place(job.id, node, pick_devices(state, node, job.spec.demand.devices))


def _first_node(state: State, job: Job) -> int | None:
    first = state.room.first_fit(job.spec.demand)
    operation_id = state.earmark_of.get(job.id)
    if operation_id is not None:
        earmark = state.operations.rows[operation_id]
        here = add(state.room.free(earmark.node), earmark.kept)
        if state.room.is_up(earmark.node) and fits(job.spec.demand, here) and (first is None or earmark.node < first):
            return earmark.node
    return first


def pick_devices(state: State, node: int, count: int) -> tuple[int, ...]:
    """The first `count` idle devices of the node."""
    return tuple(index for index, _ in zip(_set_bits(state.idle_devices.get(node, 0)), range(count), strict=False))


def _set_bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def queued(state: State, job_class: JobClass, skip: int) -> Job | None:
    """The job that stands behind `skip` others in the queue of its class."""
    queue = state.queues[job_class]
    return state.jobs.rows[queue[skip][1]] if skip < len(queue) else None


def no_room(state: State, job: Job) -> Wait:
    """Why the first of a queue waits. TOO_LARGE: no node could ever take it, and it must not block the others."""
    if state.nodes.rows and not state.room.could_ever_fit(job.spec.demand):
        return Wait(job.id, Reason.TOO_LARGE, "no node of the cluster is large enough, even when empty")
    return Wait(job.id, Reason.NO_ROOM)
