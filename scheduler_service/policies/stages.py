"""What a policy is made of. Explanations are made from the same stages as decisions."""

from collections.abc import Callable
from typing import NamedTuple

from scheduler_service.core.engine import Policy
from scheduler_service.core.messages import Plan, Rng
from scheduler_service.core.model import Job
from scheduler_service.core.state.state import State
from scheduler_service.policies import registry
from scheduler_service.policies.options import FitGppSettings, Options

Victims = Callable[[State, Job, Rng], Plan | None]
"""Which runs must leave so that a trial can start, as a plan; None where nothing that may be preempted would make room."""


class Stages(NamedTuple):
    policy: Policy
    victims: Victims | None
    """Which runs leave for a trial; None: nobody is preempted, and trials stand in one queue with all others."""
    passed_by: Callable[[State], bool] = lambda _: False
    """See `victims.strict_trials.passed_by`."""


def stages(
    name: str, settings: FitGppSettings, backfilled: bool = False, exchange: str = "balanced", promotes: bool = True
) -> Stages:
    """The stages of a policy of the registry. Raises ValueError for a name that is not in it."""
    return registry.factory(name)(Options(settings, backfilled, exchange, promotes))
