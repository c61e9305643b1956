"""Deadlines by which the tasks of a gang that takes turns must start. Each node starts its task in the turn of the gang, which
may be a whole cycle away."""

from scheduler_service.core.model import Job
from scheduler_service.core.model.rows import changed
from scheduler_service.core.model.sharing import ShareGroup
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State


def starts_in_turn(state: State, now: Micros, job: Job, group: int) -> Job:
    """The job, whose tasks are all ready and in this share group (0: none), with one more cycle of turns to start in. Its
    deadline stays if it takes no turns, or if all of its tasks have started."""
    holder = state.share_groups.rows.get(group)
    if holder is None or not holder.cycle_us or job.start_by_us is None:
        return job
    return changed(job, start_by_us=max(job.start_by_us, now + state.settings.gang_start_us + holder.cycle_us))


def rearranged(state: State, group: ShareGroup) -> None:
    """Extends start deadlines after the turns of a group have changed: gangs yet to start get a cycle of the new turns."""
    for job_id in sorted({key.job_id for key in group.members()}):
        job = state.jobs.rows[job_id]
        if job.start_by_us is not None and job.rendezvous:
            state.put(state.jobs, job_id, starts_in_turn(state, state.cluster.clock_us, job, group.id))
