"""For people: which running jobs a job that waits would have preempted, and why it may not."""

from collections.abc import Callable, Iterable, Iterator

from scheduler_service.core.enact import WAITING
from scheduler_service.core.messages import Wait
from scheduler_service.core.model import Job, JobClass, Reason
from scheduler_service.core.state.holdings import jobs_together
from scheduler_service.core.state.preemption_rights import RULES, Rule, Spared, claim_of, spared_reason, why_not
from scheduler_service.core.state.state import State

NOT_ENOUGH = "every run that may be preempted, together, would not make room"
"""The detail of NOTHING_TO_PREEMPT."""
SHOWN = 4
"""The most spared jobs that are named in the reason and in the story."""
_LOOKED_AT = 256
"""Running jobs that are looked at."""
_CAPPED = "was preempted for trials as often as it may be ({count}; fitgpp_cap is {cap})"
_TOO_SMALL = "may be preempted, and does not make room, alone or with others"
Spares = Callable[[State, Job], bool]
"""Whether the policy's own budget spares a job."""


def nothing_to_preempt(wait: Wait, job: Job, why: Callable[[], str]) -> Wait:
    """Return the reason of a job that may preempt others and can preempt none. It is that of the moment when the job began to
    wait; an explanation has the present one. `wait`: why it waits apart from that. `why`: who is spared."""
    if job.reason is Reason.NOTHING_TO_PREEMPT:
        return Wait(job.id, job.reason, job.detail)
    if job.reason not in WAITING:
        return wait  # why it came back to its queue stays its reason
    return Wait(job.id, Reason.NOTHING_TO_PREEMPT, why())


def why_spared(
    state: State,
    claimant: Job,
    cap: int | None,
    shown: int,
    among: Iterable[int] | None = None,
    spares: Spares = lambda _state, _job: False,
) -> str:
    """The first jobs that hold something on nodes that the claimant could use, each with why it is spared; empty: nothing runs
    there. `cap`: how often a job may be preempted for trials; None: any number of times. `among`: the jobs that might be
    preempted for it; None: all that run."""
    looked = state.active if among is None else among
    found = list(_spared_jobs(state, claimant, cap, looked, spares))
    named = [f"job {job_id} {why}" for job_id, why in found[:shown]]
    if len(found) > shown:
        named.append(f"and {len(found) - shown} more")
    return "; ".join(named)


def _spared_jobs(
    state: State, claimant: Job, cap: int | None, among: Iterable[int], spares: Spares
) -> Iterator[tuple[int, str]]:
    claim = claim_of(state, claimant)
    if claim is None:
        return
    rule, ways = RULES[claim], claimant.in_each_configuration()

    def why_itself(job: Job) -> str:
        """Why the job itself is spared; empty: only the jobs that share its devices may be a reason."""
        runs = state.runs_of(job.id)
        if rule.best_effort and job.spec.job_class is not JobClass.BEST_EFFORT:
            return "is a trial, too"
        if (refused := why_not(state, claim, claimant, job, runs)) is not None:
            return refused.removeprefix(f"job {job.id} ")
        return _not_now(state, job, rule) or _in_bounds(state, job, rule, cap, spares)

    looked = 0
    for job_id in sorted(among):
        if not any(state.is_usable(one.spec, run.node) for one in ways for run in state.runs_of(job_id)):
            continue
        job, looked = state.jobs.rows[job_id], looked + 1
        said = why_itself(job)
        if not said:
            others = (state.jobs.rows[other] for other in jobs_together(state, job_id) if other != job_id)
            said = next(
                (f"shares devices with job {other.id}, which {its}" for other in others if (its := why_itself(other))), ""
            )
        yield job_id, said or _TOO_SMALL
        if looked == _LOOKED_AT:
            return


def _not_now(state: State, job: Job, rule: Rule) -> str:
    """Why a job may not be preempted at the moment; empty: it may."""
    facts = {fact for run in state.runs_of(job.id) if (fact := spared_reason(state, run, job)) is not None}
    if not rule.bounded:
        return Spared.EXITS_SOON.value if Spared.EXITS_SOON in facts else ""
    if Spared.GUARDED in facts:
        return "has not run for its guaranteed time yet (min_run)"
    if facts:
        return min(fact.value for fact in facts)
    return "is on a silent node" if job.id in state.unreachable else ""


def _in_bounds(state: State, job: Job, rule: Rule, cap: int | None, spares: Spares) -> str:
    """Which budget spares a job; empty: none does."""
    if rule.capped and cap is not None and job.preempted_for_trial >= cap:
        return _CAPPED.format(count=job.preempted_for_trial, cap=cap)
    return "was preempted as often as the policy's budget allows" if spares(state, job) else ""
