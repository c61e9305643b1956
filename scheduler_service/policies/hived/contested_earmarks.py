"""Earmarks of one job that another of its virtual cluster may take before the first starts on them.

A job that overflowed is reclaimed for one behind it, if that has a right to the cells. Once it has left, it waits in its queue,
before the other, which could start now. If the other started, it would be preempted in the same step.
"""

from collections.abc import Iterator
from itertools import islice

from scheduler_service.core.model import EarmarkPhase, Job
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.core.state.preemption_rights import claim_of, why_not
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages_within

LOOKED_AT = 16
"""The first jobs of each queue that may be before the one that could start."""


def contested_vcs(state: State) -> list[int]:
    """Virtual clusters in which a job could start on what is kept for it, and another waits that may take that; in order of
    their ids."""
    found = set[int]()
    for job_id, earmarks in state.earmarks_of.items():
        job = state.jobs.rows[job_id]
        vc = state.vc_ids.get(job.spec.vc)
        if vc is None or vc in found or job.spec.guarantee is Guarantee.OPPORTUNISTIC:
            continue
        starts = all(state.earmarks.rows[earmark].phase is EarmarkPhase.READY for earmark in earmarks)
        preempts = stages_within(state.vcs.rows[vc].policy).victims is not None
        if starts and preempts and any(_may_take(state, job, other) for other in _waiting(state, job.spec.vc)):
            found.add(vc)
    return sorted(found)


def _waiting(state: State, vc: str) -> Iterator[Job]:
    """The first jobs of the virtual cluster that wait for cells of its own, and for which nothing is kept."""
    for lane in OWN_LANES:
        for queue in state.queues.get((vc, lane), {}).values():
            keys = islice(queue, LOOKED_AT)
            yield from (state.jobs.rows[key[-1]] for key in keys if key[-1] not in state.earmarks_of)


def _may_take(state: State, job: Job, other: Job) -> bool:
    """Whether the other job may take what is kept for the job, which costs no work."""
    claim = claim_of(state, other)
    return claim is not None and why_not(state, claim, other, job, ()) is None
