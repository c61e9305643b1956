"""The policies that a site can choose, each put together from its stages. Explanations are made from the same stages."""

from collections.abc import Callable
from typing import NamedTuple

from scheduler_service.core.engine import Policy
from scheduler_service.core.messages import Plan, Rng
from scheduler_service.core.model import Job
from scheduler_service.core.state.state import State
from scheduler_service.policies.cells.by_count import by_count
from scheduler_service.policies.cells.policy import cells
from scheduler_service.policies.exchange.stage import MATCHES
from scheduler_service.policies.order import backfill, fifo
from scheduler_service.policies.order.trials_first import Serve, Victims
from scheduler_service.policies.victims.fitgpp import fitgpp, fitgpp_victims
from scheduler_service.policies.victims.lrtp import lrtp, lrtp_victims
from scheduler_service.policies.victims.rand import rand, rand_victims
from scheduler_service.policies.victims.scores import CHOICES, preempting
from scheduler_service.policies.victims.search import FitGppSettings
from scheduler_service.policies.victims.strict_trials import passed_by


class Stages(NamedTuple):
    policy: Policy
    victims: Victims | None
    """Which runs leave for a trial; None: nobody is preempted, and trials stand in one queue with all others."""
    passed_by: Callable[[State], bool] = lambda _: False
    """See `strict_trials.passed_by`."""


def stages(
    name: str, settings: FitGppSettings, backfilled: bool = False, exchange: str = "balanced", promotes: bool = True
) -> Stages:
    """`name` is cells (for virtual clusters, which each have a policy of their own), quota, fifo, fitgpp, lrtp, rand or one of
    `scores.CHOICES`. Raises ValueError for another. `exchange`: how cells are exchanged, one of `exchange.stage.MATCHES`;
    `promotes`: whether there what overflowed becomes guaranteed where it runs."""
    if name == "cells":
        return Stages(cells(MATCHES[exchange], promotes), None)
    if name == "quota":
        return Stages(by_count(), None)
    serve: Serve = backfill.serve if backfilled else fifo.serve
    if name == "fifo":
        return Stages(backfill.backfill if backfilled else fifo.fifo, None)
    made = _PREEMPTING.get(name)
    if made is None:
        raise ValueError(f"there is no policy {name!r}; there are fifo, {', '.join((*_PREEMPTING, 'cells', 'quota'))}")
    policy, victims = made
    return Stages(
        policy(settings, serve),
        lambda state, trial, rng: victims(state, trial, settings, rng),
        lambda state: passed_by(state, settings),
    )


def _lrtp_victims(state: State, trial: Job, settings: FitGppSettings, _rng: Rng) -> Plan | None:
    return lrtp_victims(state, trial, settings)


_Choice = Callable[[State, Job, FitGppSettings, Rng], Plan | None]
_PREEMPTING: dict[str, tuple[Callable[[FitGppSettings, Serve], Policy], _Choice]] = {
    "fitgpp": (fitgpp, fitgpp_victims),
    "lrtp": (lrtp, _lrtp_victims),
    "rand": (rand, rand_victims),
    **{name: (preempting(choice), choice) for name, choice in CHOICES.items()},
}
