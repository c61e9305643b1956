"""Which jobs may preempt which runs: one table, used by policies, by `enact` and by explanations.

A claim is the right by which a job preempts others to get their resources. The table says which runs each claim may take,
and its limits. A job without a claim in the table may preempt no run.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from operator import le, lt
from typing import Any, NamedTuple

from scheduler_service.core.model import Job, JobClass, Run
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.core.state.tables import Tables


class Rule(NamedTuple):
    """Which runs a claim may take. `own`: only those of the claimant's virtual cluster; `opportunistic`: only those without a
    guarantee; `best_effort`: no trials; `outranks(victim's priority, claimant's)`; `behind`: only those that are behind the
    claimant by the order of their queue; `bounded`: by the minimum run time; `capped`: by P (FitGpp, Eqn 4)."""

    own: bool
    opportunistic: bool
    best_effort: bool
    outranks: Callable[[Any, Any], Any]
    behind: bool
    bounded: bool
    capped: bool


def _any(_victim: object, _claimant: object) -> bool:
    return True


RULES = {
    #                           own,   opportunistic, best_effort, outranks, behind, bounded, capped
    Claim.GUARANTEED: Rule(False, True, False, _any, False, False, False),
    Claim.TRIAL: Rule(True, False, True, le, False, True, True),
    Claim.OPPORTUNISTIC_TRIAL: Rule(True, True, True, le, False, True, True),
    Claim.PRIORITY: Rule(True, False, False, lt, False, False, False),
    Claim.REORDER: Rule(True, False, True, _any, True, True, False),
}


class Spared(Enum):
    """Why no job with a `bounded` claim may preempt a run now."""

    NOT_BEST_EFFORT = "is not best-effort"
    NOT_SERVED = "is from before virtual clusters were turned on or off"
    EXITS_SOON = "is stopping already"
    GUARDED = "has not run for its guaranteed time yet"
    PARKED = "is parked, or is being parked or resumed"
    FAULTY = "holds a faulty device"


def claim_of(state: Tables, job: Job) -> Claim | None:
    """Return the right by which a queued job preempts runs in its virtual cluster, or on a site without any; None: no right."""
    claim = state.order_for(job).claim
    if claim is not None or job.spec.job_class is not JobClass.TRIAL:
        return claim
    return Claim.OPPORTUNISTIC_TRIAL if job.spec.guarantee is Guarantee.OPPORTUNISTIC else Claim.TRIAL


def spared_reason(state: Tables, run: Run, job: Job) -> Spared | None:
    """Return why no job with a `bounded` claim may preempt the run; None: that depends on the claimant. The answer depends only
    on the run and its job: the index of candidates is built from it."""
    if job.spec.job_class is not JobClass.BEST_EFFORT:
        return Spared.NOT_BEST_EFFORT
    if not run.phase.preemptible:
        return Spared.EXITS_SOON if run.phase.exits_soon else Spared.PARKED
    if run.guarded_us is not None:
        return Spared.GUARDED
    if not state.serves(job):
        return Spared.NOT_SERVED
    return Spared.FAULTY if state.holds_faulty(run) else None


def why_not(state: Tables, claim: Claim, claimant: Job, job: Job, runs: Iterable[Run]) -> str | None:
    """Return why the claim does not reach this job's runs, by the table; None: it does. `spared_reason` checks limits of
    time."""
    rule = RULES[claim]
    if rule.own and job.spec.vc != claimant.spec.vc:
        return f"job {job.id} is another virtual cluster's"
    if rule.best_effort and job.spec.job_class is not JobClass.BEST_EFFORT:
        return f"job {job.id} is not best-effort"
    if not rule.outranks(job.priority, claimant.priority):
        return f"job {job.id} has too high a priority to make room for job {claimant.id}"
    if rule.behind and state.place_of(job) <= state.place_of(claimant):
        return f"job {job.id} is not behind job {claimant.id} in the queue"
    content = rule.opportunistic or claimant.spec.guarantee is Guarantee.OPPORTUNISTIC
    if content and any(run.guaranteed for run in runs):
        return f"job {job.id} is guaranteed, and job {claimant.id} may have opportunistic runs stopped alone"
    return None
