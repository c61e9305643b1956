"""LRTP: the best-effort runs with the longest remaining time leave first (one of those that the FitGpp paper compares with).

How long a job will run is its estimate, but never longer than its time limit. One with neither ranks last: nobody knows that
it is long.
"""

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.engine import Policy
from scheduler_service.core.messages import Plan, Rng
from scheduler_service.core.model import Job
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.policies.order import fifo
from scheduler_service.policies.order.strict_trials import serve_trials
from scheduler_service.policies.order.trials_first import Serve
from scheduler_service.policies.victims.search import Field, FitGppSettings, Scores, draw, field_for, plan_for, pool_for


def lrtp(settings: FitGppSettings, serve: Serve = fifo.serve) -> Policy:
    """All settings but `s` count."""

    def victims(state: State, trial: Job, _rng: Rng) -> Plan | None:
        return lrtp_victims(state, trial, settings)

    return serve_trials(victims, serve, settings)


def lrtp_victims(state: State, trial: Job, settings: FitGppSettings) -> Plan | None:
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


def remaining(state: State, job: Job, now: Micros) -> Micros | None:
    """How much longer the job is expected to run, given that it runs on from now; None where nobody knows. It has taken longer
    than expected: 0. One that was told to leave is gone at the end of its grace period."""
    runs = state.runs_of(job.id)
    leaves = [run.stop_us + run.stop_grace_us for run in runs if run.stop_us is not None]
    if leaves:
        return max(max(leaves) - now, 0)
    expected = min(filter(None, (job.spec.estimate_us, job.time_limit_us)), default=None)
    if expected is None:
        return None
    began = [run.started_us for run in runs if run.started_us is not None]
    return max(expected - job.ran_us - (now - min(began) if began else 0), 0)
