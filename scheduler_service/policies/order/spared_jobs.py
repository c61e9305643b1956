"""For people: which running jobs a trial would have preempted, and why it may not."""

from collections.abc import Iterator

from scheduler_service.core.model import Job
from scheduler_service.core.state.eligibility import RULES, Spared, claim_of, spared, why_not
from scheduler_service.core.state.state import State

_LOOKED_AT = 256
"""Running jobs that are looked at."""
_CAPPED = "was preempted for trials as often as it may be ({count}; fitgpp_cap is {cap})"
_TOO_SMALL = "may be preempted, and does not make room, alone or with others"


def why_spared(state: State, trial: Job, cap: int | None, shown: int) -> str:
    """The first jobs that hold something on nodes that the trial could use, each with why it is spared; empty: nothing runs
    there. `cap`: how often a job may be preempted for trials; None: any number of times."""
    found = list(_spared(state, trial, cap))
    named = [f"job {job_id} {why}" for job_id, why in found[:shown]]
    if len(found) > shown:
        named.append(f"and {len(found) - shown} more")
    return "; ".join(named)


def _spared(state: State, trial: Job, cap: int | None) -> Iterator[tuple[int, str]]:
    claim = claim_of(state, trial)
    if claim is None:
        return
    ways = trial.in_each_configuration()
    looked = 0
    for job_id in sorted(state.active):
        runs = state.runs_of(job_id)
        if not any(state.is_usable(one.spec, run.node) for one in ways for run in runs):
            continue
        job = state.jobs.rows[job_id]
        looked += 1
        why = next((why for run in runs if (why := spared(state, run, job)) is not None), None)
        refused = why_not(state, claim, trial, job, runs)
        if why is Spared.GUARDED:
            yield job_id, "has not run for its guaranteed time yet (min_run)"
        elif refused is not None and why is not Spared.NOT_BEST_EFFORT:
            yield job_id, refused.removeprefix(f"job {job_id} ")
        elif why is Spared.NOT_BEST_EFFORT:
            yield job_id, "is a trial, too"
        elif why is not None:
            yield job_id, why.value
        elif RULES[claim].capped and cap is not None and job.preempted_for_trial >= cap:
            yield job_id, _CAPPED.format(count=job.preempted_for_trial, cap=cap)
        else:
            yield job_id, _TOO_SMALL
        if looked == _LOOKED_AT:
            return
