"""Heads of queues: the job for which those behind it wait, computed from the state and shown to readers."""

from collections.abc import Iterable, Sequence
from itertools import islice
from operator import itemgetter

from scheduler_service.core.model import Job, JobState, Reason
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.state.queue_keys import OWN_LANES, Lane, Named, lanes_of, queues_in
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages_within
from scheduler_service.policies.hived.opportunistic import looked_at

LOOKED_AT = 1000
"""Jobs of a queue that are examined for the one that blocks the others."""
_ONLY_AT_HEAD = frozenset({Reason.NONE, Reason.NO_ROOM, Reason.NOTHING_TO_PREEMPT, Reason.BEYOND_QUOTA, Reason.CELLS_FAULTY})

Queue = tuple[str, Lane] | tuple[str, Lane, Named]
"""Virtual cluster (empty: there are none) and lane; or also what its jobs name."""
_job = itemgetter(-1)
"""Returns the job of a queue entry."""
Heads = dict[Queue, int]
"""Queue -> the job for which those behind it wait, or 0."""


def heads_of(state: State) -> Heads:
    """Return for each queue the job for which those behind it wait."""
    heads: Heads = {}
    for (vc, lane), queues in state.queues.items():
        if state.vc_orders.get(vc, state.site_order).overtakes:
            continue  # no job there waits for the first
        heads[vc, lane] = _first_in_the_way(state, _in_turn(state, vc, lane))
        for named, queue in queues.items():
            heads[vc, lane, named] = _first_in_the_way(state, map(_job, queue)) if len(queues) > 1 else heads[vc, lane]
    return heads


def _in_turn(state: State, vc: str, lane: Lane) -> Iterable[int]:
    """The jobs as they are served. For idle cells this is not the order of the queue where trials come first."""
    if lane is Lane.OPPORTUNISTIC and (vc_id := state.vc_ids.get(vc)) is not None:
        row = state.vcs.rows[vc_id]
        if stages_within(row.policy).trials_first:
            return [job.id for job in looked_at(state, row)]
    return map(_job, state.waiting(vc, lane))


def _first_in_the_way(state: State, jobs: Iterable[int]) -> int:
    """The first for which those behind it wait: not for one that has room kept for it, or that never will have cells."""
    for job_id in islice(jobs, LOOKED_AT):
        if job_id not in state.earmarks_of and state.jobs.rows[job_id].reason is not Reason.NEVER_IN_QUOTA:
            return job_id
    return 0


def with_reason(job: Job, heads: Heads) -> Job:
    """With its reason, where that follows from its place in the queue: those behind the first wait for the first.

    The first of its lane, at which the policy has not looked, waits for the first of the other lane. In a virtual cluster
    it is the same, once for each pool or pin that is named; what is only opportunistic is in a queue of its own there. A job
    that waits for nodes that nobody before it could use names itself as the cause, and is behind nobody.
    """
    if job.cause_job == job.id:
        return with_changes(job, cause_job=0)
    waits = job.held or job.eligible_us is not None or job.waits_for
    if job.state is JobState.QUEUED and job.reason in _ONLY_AT_HEAD and not waits:
        own, others = _queues_of(job)
        head = next((job.id for queue in own if heads.get(queue) == job.id), heads.get(own[0], 0))
        if head == job.id and job.reason is Reason.NONE:
            head = next((heads[other] for other in others if heads.get(other, job.id) != job.id), 0)
        if head and head != job.id:
            return with_changes(job, reason=Reason.BEHIND, cause_job=head, detail="")
    return job


def _queues_of(job: Job) -> tuple[Sequence[Queue], Sequence[Queue]]:
    """The queues in which it waits for cells, and those that are served together with these."""
    vc, lane = job.spec.vc, lanes_of(job)[0]
    if lane is Lane.OPPORTUNISTIC:
        return [(vc, lane)], []
    own: list[Queue] = [(vc, lane, named) for named in queues_in(lane, job)]
    return own, [(vc, lane), *((vc, other) for other in OWN_LANES if other is not lane)]
