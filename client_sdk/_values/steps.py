"""Progress of runs, from the steps that their programs count."""

from dataclasses import dataclass
from datetime import timedelta

from client_sdk._values.enums import ApiEnum


class StepState(ApiEnum):
    """The activity of a program that counts its steps, as it reports it. STALLED and PARKED are determined by the agent."""

    UNSPECIFIED = 0
    RUNNING = 1
    """It executes steps."""
    EVALUATING = 2
    SAVING = 3
    STALLED = 4
    """It is not evaluating or saving, and has done no step for at least a minute, and for as long as ten steps take."""
    PARKED = 5
    """Its run is parked."""


class MiniBatchSource(ApiEnum):
    """Source of a task's mini-batch time, the best first."""

    UNSPECIFIED = 0
    STEPS = 1
    """The steps that the program counts."""
    MEMORY = 2
    """The cycle of its device memory."""
    POWER = 3
    """The power that its device draws."""
    UTILISATION = 4
    """The part of the time in which a kernel is resident on its device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniBatch:
    """The mini-batch time of a task, from the best source that knows it."""

    job_id: int
    run: int
    task: int = 0
    time: timedelta
    confidence: float = 0.0
    """From 0 to 1. Of STEPS: 1 less the relative standard error of the mean. Of the others: how well one period resembles the
    next."""
    source: MiniBatchSource = MiniBatchSource.UNSPECIFIED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSteps:
    """The step of a task and how fast the task advances, from the steps (mini-batches) that its program counts."""

    job_id: int
    run: int
    task: int = 0
    step: int
    """Steps done, including those of earlier runs if the program knows them."""
    total: int | None = None
    """Steps of the whole job; None: the program has not given it."""
    state: StepState = StepState.RUNNING
    since_step: timedelta = timedelta(0)
    """From the end of the last step to the agent's reading."""
    step_rate: float | None = None
    """Steps a second, over the last minute, or over the last 20 steps if these took longer. None, like the fields below, if
    there are too few steps."""
    step_rate_error: float | None = None
    """The standard error of `step_rate`, from the spread of the mini-batch time."""
    step_rate_since_start: float | None = None
    """Steps a second, over all steps of the process except the first."""
    mini_batch_time: timedelta | None = None
    """The mean duration of a step over the interval of `step_rate`, without the time spent evaluating or saving."""
    mini_batch_spread: timedelta | None = None
    """The standard deviation of that duration."""
    measured: int = 0
    """The number of steps from which these two are computed."""
    remaining: timedelta | None = None
    """The estimated time until the last step, at the current pace. None if `total` is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Measurements of a job, taken while no other job executed on its devices."""

    mini_batch_time: timedelta
    """The time of one mini-batch, which is a training step if the job counts its steps."""
    best_mini_batch_time: timedelta
    """The shortest mini-batch time measured. If the current one is much longer, other jobs on the same server slow it down."""
    memory_mib: int = 0
    """The most memory that it used on one device; 0: unknown."""
    utilization_ppm: int | None = None
    """Utilization of its devices, in millionths; None: unknown."""
    devices: int = 0
    """The number of devices that all of its tasks together had when it was measured."""
    model: str = ""
    """The model of these devices."""
