"""RAND: random best-effort runs leave until the trial fits (one of the policies that the FitGpp paper compares with)."""

import numpy as np

from scheduler_service.core.messages import Plan, Rng
from scheduler_service.core.model import Job
from scheduler_service.core.state.state import State
from scheduler_service.policies.fitgpp.plan_from_victims import Scores, plan_for
from scheduler_service.policies.fitgpp.preemption_stages import preempting
from scheduler_service.policies.fitgpp.victim_search import draw, field_for, random_order
from scheduler_service.policies.options import PreemptionSettings


def rand_victims(state: State, trial: Job, settings: PreemptionSettings, rng: Rng) -> Plan | None:
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


stages = preempting(rand_victims)
