"""How estimates are computed: closed forms over a few numbers (AlloX, section 4.1)."""

from collections.abc import Iterable, Sequence
from math import isfinite, sqrt
from typing import NamedTuple

from scheduler_service.core.model import Job
from scheduler_service.core.model.estimates import Estimate, Reading, Source
from scheduler_service.core.model.values import Micros

SAMPLE_ERROR = 0.11
"""The relative standard error of a time that is extrapolated from samples: the standard deviation of Figure 10 (section 4.1).
`make bench ONLY=estimates` measures the same for real programs."""
LONGEST: Micros = 10 * 366 * 86_400 * 1_000_000
"""No estimate is longer."""


class Guess(NamedTuple):
    """A time with its standard error, in any unit."""

    time: float
    error: float


def extrapolate(first: Reading, second: Reading, total: int, spread: float = 0.0) -> Guess | None:
    """How many microseconds all `total` steps take, on the line through two points of the step count: a start-up time, and a
    time for each step. A start-up time below 0 counts as 0. `spread` is the relative standard error of the step time.

    None if the second point does not follow the first one.
    """
    steps, took = second.steps - first.steps, second.elapsed_us - first.elapsed_us
    if steps <= 0 or took <= 0 or total <= 0:
        return None
    each = took / steps
    start = max(first.elapsed_us - each * first.steps, 0.0)
    time = min(max(start + each * total, second.elapsed_us), float(LONGEST))
    return Guess(time, time * sqrt(SAMPLE_ERROR**2 + spread**2))


def from_readings(readings: Sequence[Reading], total: int, spread: float = 0.0) -> Guess | None:
    """From the last reading of a run, and the last one before it that has at most half of its steps: two samples, one of them
    at least twice as long as the other. The first reading is that of the first step. None: see `extrapolate`."""
    if len(readings) < 2:
        return None
    *before, last = readings
    first = next((one for one in reversed(before) if 2 * one.steps <= last.steps), before[0])
    return extrapolate(first, last, total, spread)


def combine_guesses(guesses: Sequence[Guess]) -> Guess:
    """The mean of one or more guesses, weighted by the inverse of their variances; its error is that of such a mean. Guesses
    without an error are exact and decide alone."""
    if exact := [guess.time for guess in guesses if guess.error <= 0]:
        return Guess(sum(exact) / len(exact), 0.0)
    each = weights([guess.error for guess in guesses])
    time = sum(weight * guess.time for weight, guess in zip(each, guesses, strict=True))
    return Guess(time, sqrt(sum((weight * guess.error) ** 2 for weight, guess in zip(each, guesses, strict=True))))


def weights(errors: Sequence[float]) -> list[float]:
    """The weight of each guess in the mean, from standard errors above 0: the inverses of their squares, in parts of 1."""
    least = min(errors)
    inverse = [(least / error) ** 2 for error in errors]  # in units of the least one: the square of a tiny error is 0
    whole = sum(inverse)
    return [one / whole for one in inverse]


def regression(points: Sequence[tuple[float, float]], at: float) -> Guess | None:
    """The value at `at` of the line that fits the points best (least squares), and the standard error of a new value there.

    None if there are fewer than three points, or if they all have the same first coordinate.
    """
    count = len(points)
    mean_x, mean_y = (sum(point[axis] for point in points) / max(count, 1) for axis in (0, 1))
    square = sum((x - mean_x) ** 2 for x, _ in points)
    if count < 3 or square <= 0:
        return None
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / square
    residual = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points) / (count - 2)
    value = mean_y + slope * (at - mean_x)
    error = sqrt(residual * (1 + 1 / count + (at - mean_x) ** 2 / square))
    return Guess(value, error) if isfinite(value) and isfinite(error) else None


def mean(values: Sequence[float]) -> Guess | None:
    """The mean of values, and the standard deviation among them. None for fewer than two, as one value has no deviation."""
    if len(values) < 2:
        return None
    middle = sum(values) / len(values)
    return Guess(middle, sqrt(sum((value - middle) ** 2 for value in values) / (len(values) - 1)))


# ---- of a job ----------------------------------------------------------------------------------------------------------


class Expected(NamedTuple):
    """All that is known of one configuration."""

    time_us: Micros
    """0: unknown."""
    error_us: Micros
    sources: tuple[Source, ...]
    """Those that the time is combined from."""


def combine_estimates(parts: Iterable[Estimate]) -> Expected:
    """Combines what several sources say of the same configuration."""
    known = [part for part in parts if part.time_us]
    if not known:
        return Expected(0, 0, ())
    if len(known) == 1:  # nearly always, and it is asked of each job at each look at the queue
        return Expected(known[0].time_us, known[0].error_us, (known[0].source,))
    guess = combine_guesses([Guess(part.time_us, part.error_us) for part in known])
    return Expected(max(round(guess.time), 1), round(guess.error), tuple(sorted(dict.fromkeys(part.source for part in known))))


def expected_us(job: Job, configuration: int) -> Micros:
    """How long the job is expected to run in all in this configuration, by its number; 0: unknown. It is the user's estimate,
    unless a policy has noted others. In the last configuration that it ran in, its measured rate decides, if known."""
    if not job.spec.alternatives:
        configuration = job.configuration  # of a view: the one that it has
    if job.profile is not None and (measured := _measured_us(job, configuration)):
        return measured
    if (
        job.estimates
        and (of := combine_estimates(part for part in job.estimates if part.configuration == configuration)).time_us
    ):
        return of.time_us
    if not (configuration and job.spec.alternatives):
        return job.spec.estimate_us
    return job.spec.alternatives[configuration - 1].estimate_us


def _measured_us(job: Job, configuration: int) -> Micros:
    """How long the steps of the job take at the rate measured in its last launch, if that was in this configuration. 0: the
    rate or the number of steps is not known."""
    steps = max((part.steps for part in job.estimates if part.configuration == configuration), default=0)
    profile = job.profile
    if not steps or profile is None or configuration != job.configuration:
        return 0
    return steps * profile.mini_batch_us if profile.devices == job.launch_spec.demand.devices else 0


def is_impossible(job: Job, configuration: int) -> bool:
    """Whether the job has failed in this configuration, so that it is not started in it."""
    return any(part.impossible and part.configuration == configuration for part in job.estimates)
