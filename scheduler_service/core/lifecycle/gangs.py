"""Gangs start in two phases: every task is prepared, and when all are ready they are told where they meet, and begin.

This has a time limit: if it passes, all tasks are released, and tried elsewhere. A gang that takes turns begins in its turn, so
it has a cycle more.
"""

from scheduler_service.core.allocation.share_groups import starts_in_turn
from scheduler_service.core.allocation.transitions import stop_job
from scheduler_service.core.lifecycle.node_health import strike_for_node
from scheduler_service.core.model import EventKind, Job, Reason, Run, RunPhase, StopReason
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event


def task_ready(state: State, now: Micros, run: Run, ready_at: str) -> None:
    """A task is prepared. With the last one the gang is told to begin, and where rank 0 is. Before that, a task whose agent was
    restarted may say again where it is."""
    job = state.jobs.rows[run.job_id]
    if not (run.phase.to_launch or run.phase.counts_for_gang) or job.rendezvous:
        return
    state.put(state.runs, run.key, with_changes(run, phase=RunPhase.READY, ready_at=ready_at))
    if state.ready[job.id] == len(job.launch_spec.tasks()):
        first = state.runs.rows[min(state.active[job.id])]
        begins = with_changes(job, rendezvous=first.ready_at)
        state.put(state.jobs, job.id, starts_in_turn(state, now, begins, run.group))
        log_event(state, now, job.id, EventKind.GANG_READY, run=job.run, node=first.node, text=f"meets at {first.ready_at}")


def gang_late(state: State, now: Micros, job: Job) -> None:
    """Releases a gang if not all of its tasks have started in time. The nodes of those that have not are avoided."""
    tasks = state.runs_of(job.id)
    slow = [task for task in tasks if task.started_us is None and (job.rendezvous or task.phase.to_launch)]
    nodes = tuple(sorted({task.node for task in slow}))
    names = ", ".join(state.nodes.rows[node].name for node in nodes)
    detail = f"{len(slow)} of {len(tasks)} tasks were not ready in time, on {names}"
    for node in nodes:
        strike_for_node(state, now, node, job.id, "had a task here that was not ready in time")
    stop_job(
        state,
        now,
        with_changes(job, verdict=Reason.GANG_NOT_READY, detail=detail, avoid=nodes),
        StopReason.GANG,
        Reason.GANG_NOT_READY,
    )


def all_started(state: State, job: Job) -> Job:
    """The job, whose start has no deadline any more once all of its tasks run."""
    if job.start_by_us is None or state.begun.get(job.id, 0) < len(state.active[job.id]):
        return job
    failed = job.verdict is not Reason.NONE  # the nodes where it failed are to be avoided
    return with_changes(job, start_by_us=None, avoid=job.avoid if failed else ())
