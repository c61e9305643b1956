"""Policies of the registry, by their names."""

from functools import partial

from scheduler_service.core.engine import Policy
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.options import PreemptionSettings


def _made(name: str, settings: PreemptionSettings) -> Policy:
    return stages(name, settings).policy


fitgpp, lrtp, rand = (partial(_made, name) for name in ("fitgpp", "lrtp", "rand"))
