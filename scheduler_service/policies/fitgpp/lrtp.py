"""LRTP: the best-effort runs with the longest remaining time leave first (one of those that the FitGpp paper compares with).

How long a job will run is its estimate, but never longer than its time limit. A job with neither ranks last, since it is not
known to be long.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.messages import Plan, Rng
from scheduler_service.core.model import Job
from scheduler_service.core.state.state import State
from scheduler_service.policies.fitgpp.plan_from_victims import Scores, plan_for
from scheduler_service.policies.fitgpp.preemption_stages import preempting
from scheduler_service.policies.fitgpp.victim_search import Field, draw, field_for, pool_for
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.remaining_time import remaining
from scheduler_service.policies.stages import Ranked


def lrtp_victims(state: State, trial: Job, settings: PreemptionSettings) -> Plan | None:
    """Among equals, the job that was submitted last. A candidate's score is its remaining time in seconds, negative, as the
    lowest goes first; 0 where it is unknown."""
    field = field_for(state, trial, settings.cap)
    if field is None:
        return None
    score = _scores(state, field)
    for rank in field.ranks():
        if not field.place_task(rank):
            order = sorted(pool_for(field, rank, settings.sparing), key=lambda place: (score[place], -field.job[place]))
            if not draw(field, rank, order, settings.sparing):
                return None
    return plan_for(field, Scores(score, 0.0, 0), settings, "lrtp")


def _scores(state: State, field: Field) -> NDArray[np.float64]:
    now = state.cluster.clock_us
    return np.array([-(remaining(state, state.jobs.rows[job], now) or 0) / 1e6 for job in field.job.tolist()])


def longest_first(state: State, _trial: Job, able: Sequence[Job], _settings: PreemptionSettings, _rng: Rng) -> Ranked:
    now = state.cluster.clock_us
    longest = {job.id: remaining(state, job, now) for job in able}
    return Ranked(sorted(able, key=lambda job: (-(longest[job.id] or 0), -job.id)))


stages = preempting(lambda state, trial, settings, _rng: lrtp_victims(state, trial, settings), longest_first)
