"""The jobs that hold the cells of a virtual cluster, or are about to."""

from collections.abc import Iterator

from scheduler_service.core.model import Earmark, Job
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, VirtualCluster
from scheduler_service.core.state.state import State


def holders(state: State, vc: VirtualCluster) -> list[tuple[Job, int]]:
    """The jobs of the virtual cluster that run in its cells, or for which something is kept there, and in which configuration;
    in the order of their ids."""
    running = {key.job_id for key in state.guaranteed_runs.get(vc.name, ())}
    found = {job_id: state.jobs.rows[job_id].configuration for job_id in running}
    for job_id in state.earmarks_of:
        job = state.jobs.rows[job_id]
        if job.spec.vc == vc.name and job.spec.guarantee is not Guarantee.OPPORTUNISTIC:
            found[job_id] = next(kept_for(state, job)).configuration
    return [(state.jobs.rows[job_id], found[job_id]) for job_id in sorted(found)]


def kept_for(state: State, job: Job) -> Iterator[Earmark]:
    """The earmarks of the job."""
    return (state.earmarks.rows[earmark_id] for earmark_id in sorted(state.earmarks_of.get(job.id, ())))
