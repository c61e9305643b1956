"""Policies in which trials have others preempted: they differ in whose runs these are, and in nothing else."""

from collections.abc import Callable

from scheduler_service.core.messages import Plan, Rng
from scheduler_service.core.model import Job
from scheduler_service.core.state.state import State
from scheduler_service.policies.options import FitGppSettings, Options
from scheduler_service.policies.order import backfill, fifo
from scheduler_service.policies.registry import Factory
from scheduler_service.policies.stages import Stages
from scheduler_service.policies.victims.strict_trials import passed_by, serve_trials

Choice = Callable[[State, Job, FitGppSettings, Rng], Plan | None]
"""Which runs leave for a trial; None: nothing that may be preempted would make room."""


def preempting(choice: Choice) -> Factory:
    """The policy in which these are the victims of trials."""

    def stages(options: Options) -> Stages:
        settings = options.fitgpp

        def victims(state: State, trial: Job, rng: Rng) -> Plan | None:
            return choice(state, trial, settings, rng)

        serve = backfill.serve if options.backfill else fifo.serve
        return Stages(serve_trials(victims, serve, settings), victims, lambda state: passed_by(state, settings))

    return stages
