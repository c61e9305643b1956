"""Policies in which trials have others preempted: they differ in whose runs these are, and in nothing else."""

from collections.abc import Callable, Sequence

from scheduler_service.core.messages import Plan, Rng
from scheduler_service.core.model import Job
from scheduler_service.core.state.state import State
from scheduler_service.policies.fitgpp.strict_trials import passed_by, serve_trials
from scheduler_service.policies.options import Options, PreemptionSettings
from scheduler_service.policies.queueing import backfill, in_order
from scheduler_service.policies.registry import Factory
from scheduler_service.policies.stages import Ranked, Stages, Victims, in_any_configuration

Choice = Callable[[State, Job, PreemptionSettings, Rng], Plan | None]
"""Which runs leave for a trial; None: nothing that may be preempted would make room."""
Ranking = Callable[[State, Job, Sequence[Job], PreemptionSettings, Rng], Ranked]
"""See `stages.Rank`."""


def at_random(_state: State, _trial: Job, able: Sequence[Job], _settings: PreemptionSettings, rng: Rng) -> Ranked:
    """In an order that is left to chance."""
    left = list(able)
    return Ranked([left.pop(rng.randrange(len(left))) for _ in range(len(left))])


def preempting(choice: Choice, rank: Ranking = at_random, alone: Ranking | None = None) -> Factory:
    """The policy in which these are the victims of trials."""

    def stages(options: Options) -> Stages:
        settings = options.fitgpp

        def victims(state: State, trial: Job, rng: Rng) -> Plan | None:
            return choice(state, trial, settings, rng)

        def rank_with_settings(state: State, trial: Job, able: Sequence[Job], rng: Rng) -> Ranked:
            return rank(state, trial, able, settings, rng)

        def ranked_alone(state: State, trial: Job, able: Sequence[Job], rng: Rng) -> Ranked:
            assert alone is not None
            return alone(state, trial, able, settings, rng)

        chosen = in_any_configuration(victims)
        serve = backfill.serve if options.backfill else in_order.serve_strictly if settings.in_order else in_order.serve
        return Stages(
            serve_trials(chosen, serve, settings),
            victims=Victims(chosen, rank_with_settings, None if alone is None else ranked_alone, cap=settings.cap),
            trials_first=True,
            passed_by=lambda state: passed_by(state, settings),
        )

    return stages
