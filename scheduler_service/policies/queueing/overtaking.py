"""Every waiting job is looked at, in order: one that does not fit holds up none behind it, but may preempt runs.

A job that waits may be overtaken again and again. A policy that serves like this needs an order that brings waiting jobs
forward, or large jobs may starve.
"""

from heapq import merge
from itertools import islice

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Rng, Wait
from scheduler_service.core.model import Job, JobState, Reason
from scheduler_service.core.model.jobs import Needs
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.core.state.state import State
from scheduler_service.policies.memo_updates import Notes, Remembers, memo_updates
from scheduler_service.policies.placing.first_fit import leaves_queue, no_room, place, place_on_earmarks, start_on_earmarks
from scheduler_service.policies.stages import Choose

LOOKED_AT = 1000
"""Jobs of the queue that are looked at in one step."""
_Kind = tuple[Needs, tuple[int, ...]]


def overtaking(choose: Choose = lambda _state, _job, _rng: None, remember: Remembers = lambda _state, _job: ()) -> Policy:
    """The loop of a site without virtual clusters, whose jobs are all in one order. `choose` says how room is made for a job
    that does not fit, and `remember` what is noted of jobs."""

    def serve(state: State, rng: Rng) -> Proposals:
        yield from start_on_earmarks(state, place_on_earmarks)
        yield from _serve(state, choose, rng)

    return memo_updates(serve, Notes(remember))


def _serve(state: State, choose: Choose, rng: Rng) -> Proposals:
    """Serve the queue. What a job asks for in vain, those behind it do, too: there is ever less, and they may preempt fewer."""
    in_vain: dict[_Kind, Wait] = {}
    waiting = merge(*(state.waiting("", lane) for lane in OWN_LANES))
    for job_id in [key[-1] for key in islice(waiting, LOOKED_AT)]:
        job = state.jobs.rows[job_id]
        kind = job.needs(), job.avoid
        if job_id in state.earmarks_of:
            continue
        if (known := in_vain.get(kind)) is not None:
            if job.reason is not known.reason:
                yield (Wait(job_id, known.reason, known.detail),)
            continue
        while _waits(job) and (action := place(state, job)) is not None and (yield (action,)) is None:
            job = state.jobs.rows[job_id]  # an array begins one element after the other
        if not _waits(job):
            continue
        wait = no_room(state, job)
        plan = None if leaves_queue(wait) else choose(state, job, rng)
        if plan is None or (yield (*plan, Wait(job_id, Reason.WAITING_FOR_VICTIMS))) is not None:
            yield (wait,)
            in_vain[kind] = wait


def _waits(job: Job) -> bool:
    return job.state is JobState.QUEUED and job.reason is not Reason.ARRAY_LIMIT
