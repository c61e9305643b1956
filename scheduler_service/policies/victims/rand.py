"""RAND: random best-effort runs leave until the trial fits (one of the policies that the FitGpp paper compares with)."""

import numpy as np

from scheduler_service.core.engine import Policy
from scheduler_service.core.messages import Plan, Rng
from scheduler_service.core.model import Job
from scheduler_service.core.state.state import State
from scheduler_service.policies.order import fifo
from scheduler_service.policies.order.trials_first import Serve
from scheduler_service.policies.victims.search import FitGppSettings, Scores, draw, field_for, plan_for, random_order
from scheduler_service.policies.victims.strict_trials import serve_trials


def rand(settings: FitGppSettings, serve: Serve = fifo.serve) -> Policy:
    """All settings but `s` count."""

    def victims(state: State, trial: Job, rng: Rng) -> Plan | None:
        return rand_victims(state, trial, settings, rng)

    return serve_trials(victims, serve, settings)


def rand_victims(state: State, trial: Job, settings: FitGppSettings, rng: Rng) -> Plan | None:
    """Every run that may go is as likely as any other. All scores are 0."""
    field = field_for(state, trial, settings.cap)
    if field is None:
        return None
    for rank in field.ranks():
        if not field.place_task(rank) and not draw(
            field, rank, random_order(field, rank, rng, settings.sparing), settings.sparing
        ):
            return None
    return plan_for(field, Scores(np.zeros(len(field.job)), 0.0, 0), settings, "rand")
