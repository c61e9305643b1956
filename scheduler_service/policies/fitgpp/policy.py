"""FitGpp's choice of victims: small best-effort runs with short grace periods (papers: section 3, Eqns 1-4).

With gangs, which the paper leaves to future work: a gang is one candidate, whose size is the sum of its tasks' sizes and
which releases on each node what its tasks hold there; a trial that is a gang has victims chosen for one task after the
other, the largest first, each with what those before it have left.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.messages import Plan, Rng
from scheduler_service.core.model import Decision, Job
from scheduler_service.core.state.holdings import runs_together
from scheduler_service.core.state.state import State
from scheduler_service.policies.fitgpp.plan_from_victims import Scores, plan_for
from scheduler_service.policies.fitgpp.preemption_stages import preempting
from scheduler_service.policies.fitgpp.victim_search import Field, draw, field_for, random_order
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.stages import Ranked


def fitgpp_victims(state: State, trial: Job, settings: PreemptionSettings, rng: Rng) -> Plan | None:
    """Eqn 4 with the score of Eqn 3."""
    field = field_for(state, trial, settings.cap)
    return None if field is None else least_score(field, score(field, settings.s), settings, rng, "fitgpp")


def least_score(field: Field, scores: Scores, settings: PreemptionSettings, rng: Rng, rule: str) -> Plan | None:
    """The run of least score among those that suffice alone; else random runs until they suffice; None if none do.

    One pass over the running best-effort jobs for each task of the trial, in C.
    """
    for rank in field.ranks():
        if field.place_task(rank):
            continue
        eligible = field.sufficient(rank) & field.free_to_go()
        if eligible.any():
            best = scores.score[eligible].min()
            ties = np.nonzero(eligible & (scores.score == best))[0]
            # Equal scores: the job that was submitted last, so that the order of the queue is disturbed least.
            field.release(int(ties[field.job[ties].argmax()]))
            field.place_task(rank)
        elif draw(field, rank, random_order(field, rank, rng, settings.sparing), settings.sparing):
            rule = "random"
        else:
            return None
    return plan_for(field, scores, settings, rule)


def score(field: Field, s: float) -> Scores:
    """Eqn 3 for every run in J: running best-effort jobs that this trial may preempt, whatever their preemption count.

    Maxima are over J; a zero maximum contributes 0.
    """
    max_size, max_grace = float(field.size.max()), int(field.grace.max())
    total: NDArray[np.float64] = field.size / max_size if max_size > 0 else np.zeros(len(field.size))
    if max_grace > 0:
        total = total + s * (field.grace / max_grace)
    return Scores(total, max_size, max_grace)


def by_score(state: State, trial: Job, able: Sequence[Job], settings: PreemptionSettings, _rng: Rng) -> Ranked:
    """Rank by the score of Eqn 3, the least first; of equals, the job that was submitted last."""
    slots = state.candidates.slots_of([run.key for job in able for run in runs_together(state, job.id)])
    if not len(slots):
        return Ranked([])
    field = Field(state, trial, slots, settings.cap)
    scores = score(field, settings.s)
    best = {int(job): float(value) for job, value in zip(field.job, scores.score, strict=True)}
    decision = Decision(
        trial=trial.id,
        node=int(field.node[0]),
        demand=trial.spec.demand,
        rule="fitgpp",
        s=settings.s,
        cap=settings.cap,
        max_size=scores.max_size,
        max_grace_us=scores.max_grace_us,
        considered=len(np.unique(field.unit)),
        candidates=(),
    )
    return Ranked(sorted((job for job in able if job.id in best), key=lambda job: (best[job.id], -job.id)), decision)


stages = preempting(fitgpp_victims, alone=by_score)
