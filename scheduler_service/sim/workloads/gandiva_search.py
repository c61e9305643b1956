"""The searches of section 6.2 of the Gandiva paper (OSDI 2018): a user tries configurations of one program, and stops the
unpromising ones (tables 3 and 4, figure 14).

The paper prints the number of configurations, the position of the one that the user looks for, how often more are submitted,
and when they are judged. It prints neither how long a mini-batch takes, nor how many configurations are stopped together, nor
how early in its training the right one is recognized. These three are fitted to the paper's times
(`reproduction/gandiva/searches.py`); the quality of configurations is an assumption.
"""

import math
from collections.abc import Iterator
from random import Random
from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.limits import MOST_JOBS
from scheduler_service.sim.workloads.gandiva import MINUTE, Gandivas

EVALUATIONS = 100 / 3
"""Evaluations in a whole training: one for each 3 % of its mini-batches."""
NO_PROMISE = 30.0
"""Configurations with less predicted accuracy, in percent, are stopped."""
POOR, MEDIOCRE, RIGHT = (5.0, 25.0), (35.0, 80.0), 84.5
"""Accuracies in percent: of unpromising configurations, of the others, and of the one that the user looks for."""
_UNCERTAINTY = 3.0
"""The standard deviation of the prediction at the first evaluation, in percent; it falls with the root of their number."""


class GandivaSearch(Gandivas):
    """The jobs of one user, one of which is the right one."""

    kind: Literal["gandiva-search"] = "gandiva-search"
    jobs: int = Field(default=374, ge=1, le=MOST_JOBS, description="configurations")
    position: int = Field(default=365, ge=1, description="of the right one, counted from 1")
    gpus: int = Field(default=4, ge=1, description="so many jobs come at once, in the beginning")
    more: int = Field(default=2, ge=1, description="so many come later, each time that 1,000 mini-batches would take alone")
    evaluation_min: float = Field(default=1.9, gt=0, le=1e6, description="of 1,000 mini-batches; fitted")
    promising: float = Field(default=0.44, ge=0, le=1, description="the part of the configurations; fitted")
    found_after: float = Field(
        default=0.6, gt=0, le=1, description="the part of its training after which the right one is known; fitted"
    )
    job_gpus: int = Field(default=1, ge=1, description="of each job")
    job_kind: str = Field(default="", description="of all jobs (`sharing.kinds`); empty: unknown")
    exclusive: int = Field(
        default=0, ge=0, description="the best ones, which have a GPU each to themselves; 0: the user only stops jobs"
    )
    live: int = Field(
        default=0, ge=0, description="jobs that were judged are suspended beyond so many jobs, the worst first; 0: none is"
    )

    @model_validator(mode="after")
    def _has_it(self) -> "GandivaSearch":
        if self.position > self.jobs:
            raise ValueError(f"position: there are {self.jobs} configurations, and no number {self.position}")
        return self

    @property
    def evaluation_us(self) -> int:
        return round(self.evaluation_min * MINUTE)


class Configuration(NamedTuple):
    """The properties of a configuration that are unknown beforehand, in percent."""

    accuracy: float
    """The accuracy after its whole training."""
    error: float
    """The error of the prediction at the first evaluation."""

    def predicted_accuracy(self, evaluations: int) -> float:
        return self.accuracy + self.error / math.sqrt(evaluations)


def name_of(number: int) -> str:
    """The name of a configuration's job."""
    return f"configuration-{number}"


def number_of(name: str) -> int:
    return int(name.rpartition("-")[2])


def jobs(model: GandivaSearch) -> Iterator[SimJob]:
    """Yield the jobs in order of arrival."""
    for number in range(1, model.jobs + 1):
        batch = max(-(-(number - model.gpus) // model.more), 0)
        work_us = round(EVALUATIONS * model.evaluation_us)
        yield model.make_job(model.job_kind, model.job_gpus, work_us, batch * model.evaluation_us, name=name_of(number))


def configurations(model: GandivaSearch, seed: int) -> dict[int, Configuration]:
    """Draw the configurations, by number."""
    rng, found = Random(f"{seed}:configurations"), {}
    for number in range(1, model.jobs + 1):
        low, high = MEDIOCRE if rng.random() < model.promising else POOR
        found[number] = Configuration(rng.uniform(low, high), rng.gauss(0, _UNCERTAINTY))
    found[model.position] = found[model.position]._replace(accuracy=RIGHT)
    return found
