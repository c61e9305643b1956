"""Configurations that Optuna suggests and prunes: any sampler, and any pruner, such as Hyperband's or ASHA's.

Needs the extra `optuna`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import optuna
from optuna.trial import Trial, TrialState

from client_sdk.models import JobState
from client_sdk.sweep._members import Member, Report

_PARAMETERS = "ebb_parameters"


class OptunaSearch:
    """A study of Optuna as a search. `optuna.pruners.SuccessiveHalvingPruner` is ASHA, `HyperbandPruner` is Hyperband.

    If the study has a persistent storage, a restarted script continues with the trials that were in progress, if the sweep has
    the same name.
    """

    def __init__(self, study: optuna.Study, space: Callable[[Trial], Mapping[str, Any]], configurations: int) -> None:
        """`space` asks a trial for its parameters. `configurations` is how many the study has in the end."""
        self.study = study
        self._space = space
        self._configurations = configurations
        self._trials: dict[int, Trial] = {}
        self._under_way = [trial for trial in study.get_trials(deepcopy=False) if trial.state is TrialState.RUNNING]

    def suggest(self) -> tuple[int, Mapping[str, Any]] | None:
        while self._under_way:
            frozen = self._under_way.pop(0)
            if (parameters := frozen.user_attrs.get(_PARAMETERS)) is not None:
                self._trials[frozen.number] = Trial(self.study, frozen._trial_id)
                return frozen.number, parameters
        if len(self.study.get_trials(deepcopy=False)) >= self._configurations:
            return None
        trial = self.study.ask()
        parameters = dict(self._space(trial))
        trial.set_user_attr(_PARAMETERS, parameters)
        self._trials[trial.number] = trial
        return trial.number, parameters

    def reported(self, report: Report) -> bool:
        if (trial := self._trials.get(report.number)) is None:
            return False
        if math.isnan(report.value):
            return True
        trial.report(report.value, report.step)
        return bool(trial.should_prune())

    def ended(self, member: Member) -> None:
        if (trial := self._trials.pop(member.number, None)) is None:
            return
        if math.isnan(member.value):
            self.study.tell(trial, state=TrialState.FAIL)
        elif member.killed:
            self.study.tell(trial, state=TrialState.PRUNED)
        elif member.job.state is JobState.SUCCEEDED:
            self.study.tell(trial, member.value)
        else:
            self.study.tell(trial, state=TrialState.FAIL)
