"""How long earlier runs of a user's script took, and what follows from that for later ones.

Two jobs run the same script if a user submits them with the same command in the same directory, except for numbers among
the arguments. These numbers are the sizes of a run. Jobs of equal sizes are expected to take equally long; for others the time
follows from the sizes by a line, if one of them alone differs.
"""

from hashlib import sha256
from math import isfinite

from scheduler_service.core.model import Job, JobSpec, Run
from scheduler_service.core.model.estimates import Estimate, History, PastRun, Source
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros
from scheduler_service.core.operations.estimators import LONGEST, Guess, expected_us, mean, regression
from scheduler_service.core.state.state import State

MOST_RUNS = 32
"""Runs that are kept of each script."""
USER_ERROR = 0.3
"""The relative standard error of a user's word."""
ONE_RUN_ERROR = 0.2
"""The relative standard error of what a single run says of the next one."""
LEAST_ERROR = 0.02
"""The relative standard error of the best history."""
_MOST_ELSEWHERE = 0.5
"""If a job did more of its work than this in other configurations, its time is not kept."""


def script_of(spec: JobSpec) -> tuple[str, tuple[float, ...]]:
    """The script that a spec without alternatives runs, as a hash; and the numbers among its arguments. Code that travels with
    the job is a part of the script: other code takes another time."""
    sizes: list[float] = []
    parts = [*spec.snapshots, spec.working_directory, spec.command[0]]
    for argument in spec.command[1:]:
        name, equals, value = argument.rpartition("=")
        if (number := _number(value)) is None:
            parts.append(argument)
        else:
            sizes.append(number)
            parts.append(f"{name}{equals}#")
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32], tuple(sizes)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None


# ---- what is kept ------------------------------------------------------------------------------------------------------


def keep(state: State, now: Micros, job: Job, last: Run) -> None:
    """Keeps how long a successful job took, and how long samples say that it takes in its other configurations. `last` is the
    task that ended last."""
    most = state.settings.history_rows
    if not most:
        return
    device = state.devices.rows.get((last.node, last.given[0])) if last.given else None
    for number, spec in enumerate(job.spec.in_each_configuration()):
        if number == job.configuration:
            _add(state, now, job.user, spec, device.model if device else "", _whole_time(job))
        else:
            sampled = (part.time_us for part in job.estimates if (part.configuration, part.source) == (number, Source.SAMPLE))
            _add(state, now, job.user, spec, spec.cells.model, max(sampled, default=0))
    if len(state.history.rows) > most:
        _forget_oldest(state, most)


def _add(state: State, now: Micros, user: str, spec: JobSpec, model: str, time_us: Micros) -> None:
    if not time_us:
        return
    script, sizes = script_of(spec)
    run = PastRun(model, *_shape(spec), sizes, time_us)
    known = state.history.rows.get((user, script))
    runs = (*(known.runs if known else ()), run)[-MOST_RUNS:]
    state.put(state.history, (user, script), History(user, script, runs, now))


def _shape(spec: JobSpec) -> tuple[int, int, int]:
    return spec.demand.devices, spec.demand.cpu_milli, len(spec.tasks())


def _forget_oldest(state: State, most: int) -> None:
    """Forgets more than it has to, so that few steps look at all rows."""
    by_age = sorted(state.history.rows, key=lambda key: (state.history.rows[key].used_us, key))
    for key in by_age[: len(by_age) - max(most - most // 10, 1)]:
        state.put(state.history, key, None)


def _whole_time(job: Job) -> Micros:
    """How long the job would have run in all in its last configuration; 0 if it did too much elsewhere to say."""
    if not job.spec.alternatives or not job.ran_in:
        return job.ran_us
    here = job.ran_in[job.configuration]
    elsewhere = 0.0
    for number, ran in enumerate(job.ran_in):
        if ran and number != job.configuration:
            whole = expected_us(job, number)
            if not whole:
                return 0
            elsewhere += ran / whole
    return round(here / (1 - elsewhere)) if elsewhere <= _MOST_ELSEWHERE else 0


# ---- what follows from it ----------------------------------------------------------------------------------------------


def known_from_history(state: State, job: Job) -> Job:
    """The job with what the history says of its configurations, and with the user's own estimates of these."""
    parts: list[Estimate] = []
    for number, spec in enumerate(job.spec.in_each_configuration()):
        if (guess := _guess_from_past(state, job.user, spec)) is not None:
            if spec.estimate_us:
                error = round(spec.estimate_us * USER_ERROR)
                parts.append(Estimate(number, Source.USER, spec.estimate_us, error))
            parts.append(Estimate(number, Source.HISTORY, round(guess.time), round(guess.error)))
    return with_changes(job, estimates=tuple(parts)) if parts else job


def _guess_from_past(state: State, user: str, spec: JobSpec) -> Guess | None:
    script, sizes = script_of(spec)
    known = state.history.rows.get((user, script))
    if known is None:
        return None
    shape, model = _shape(spec), spec.cells.model
    runs = [
        run
        for run in known.runs
        if (run.devices, run.cpu_milli, run.tasks) == shape and model in ("", run.model) and len(run.sizes) == len(sizes)
    ]
    times = [float(run.time_us) for run in runs if run.sizes == sizes]
    guess = mean(times) or (Guess(times[0], times[0] * ONE_RUN_ERROR) if times else _by_size(runs, sizes))
    if guess is None or not 1 <= guess.time <= LONGEST:
        return None
    return Guess(guess.time, max(guess.error, guess.time * LEAST_ERROR))


def _by_size(runs: list[PastRun], sizes: tuple[float, ...]) -> Guess | None:
    """The best of the lines on which one size alone differs from those of the job."""
    found = []
    for at, size in enumerate(sizes):
        others = (*sizes[:at], *sizes[at + 1 :])
        points = [(run.sizes[at], float(run.time_us)) for run in runs if (*run.sizes[:at], *run.sizes[at + 1 :]) == others]
        if (guess := regression(points, size)) is not None:
            found.append(guess)
    return min(found, key=lambda guess: guess.error, default=None)
