"""The steps of runs for people: lines about one task, and a table of several."""

from dataclasses import replace
from datetime import timedelta

from client_sdk.cli.output import common as output
from client_sdk.models import MiniBatch, MiniBatchSource, Profile, RunSteps, StepState
from client_sdk.units import format_memory

CLOCK_COLUMNS = ("RUN", "MINI-BATCH", "CONFIDENCE", "SOURCE")
COLUMNS = ("RUN", "STEP", "OF", "STATE", "STEPS/S", "MINI-BATCH", "LEFT")


def parked_steps(seen: RunSteps) -> RunSteps:
    """Return the steps of a parked run, whose agent may not have reported the park yet."""
    return replace(seen, state=StepState.PARKED, remaining=None)


def lines(seen: RunSteps) -> dict[str, str]:
    """The lines of `ebb show`. For a parked job, they show its progress when it was parked."""
    of = "" if seen.total is None else f" of {seen.total:,}"
    idle = f" for {output.duration(seen.since_step)}" if seen.state is StepState.STALLED else ""
    found = {"step": f"{seen.step:,}{of}, {_word(seen.state)}{idle}"}
    if seen.step_rate is not None:
        start = "" if seen.step_rate_since_start is None else f" ({_digits(seen.step_rate_since_start)} since its start)"
        found["step rate"] = f"{_rate(seen)} steps/s{start}"
    if seen.mini_batch_time is not None:
        found["mini-batch"] = f"{_mini_batch(seen)}, of {seen.measured:,} step{'' if seen.measured == 1 else 's'}"
    if seen.remaining is not None:
        found["time left"] = output.duration(seen.remaining)
    return found


def clock_line(seen: MiniBatch) -> dict[str, str]:
    """The line of `ebb show` for a program that does not count its steps."""
    return {"mini-batch": f"{_short_duration(seen.time)}, by {_SOURCES[seen.source]}, confidence {seen.confidence:.2f}"}


def clock_row(seen: MiniBatch) -> list[str]:
    """A row under CLOCK_COLUMNS."""
    run = f"{seen.job_id}.{seen.run}" + (f"/{seen.task}" if seen.task else "")
    return [run, _short_duration(seen.time), f"{seen.confidence:.2f}", seen.source.name]


_SOURCES = {
    MiniBatchSource.UNSPECIFIED: "a source that this ebb does not know",
    MiniBatchSource.STEPS: "its steps",
    MiniBatchSource.MEMORY: "the cycle of device memory",
    MiniBatchSource.POWER: "the power of the device",
    MiniBatchSource.UTILISATION: "the utilisation of the device",
}


def row(seen: RunSteps) -> list[str]:
    """A row under COLUMNS."""
    return [
        f"{seen.job_id}.{seen.run}" + (f"/{seen.task}" if seen.task else ""),
        str(seen.step),
        "-" if seen.total is None else str(seen.total),
        seen.state.name,
        "-" if seen.step_rate is None else _rate(seen),
        "-" if seen.mini_batch_time is None else _mini_batch(seen),
        "-" if seen.remaining is None else output.duration(seen.remaining),
    ]


def _word(state: StepState) -> str:
    return state.name.lower() if state is not StepState.UNSPECIFIED else "in a state that this ebb does not know"


def _rate(seen: RunSteps) -> str:
    assert seen.step_rate is not None
    error = "" if seen.step_rate_error is None else f" ± {_digits(seen.step_rate_error, 1)}"
    return f"{_digits(seen.step_rate)}{error}"


def _mini_batch(seen: RunSteps) -> str:
    assert seen.mini_batch_time is not None
    spread = "" if seen.mini_batch_spread is None else f" ± {_short_duration(seen.mini_batch_spread)}"
    return f"{_short_duration(seen.mini_batch_time)}{spread}"


def _short_duration(value: timedelta) -> str:
    """ "1.5 s", "312 ms", "45 µs": three digits, so that runs can be compared."""
    seconds = value.total_seconds()
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{_digits(seconds * factor)} {unit}"
    return f"{_digits(seconds * 1e6)} µs"


def _digits(value: float, count: int = 3) -> str:
    """The value with `count` significant digits, and never an exponent."""
    return f"{value:.0f}" if value >= 10 ** (count - 1) else f"{value:.{count}g}" if value >= 1e-4 or not value else "<0.0001"


def profile_text(known: Profile) -> str:
    """Such as "120 ms a mini-batch (100 ms at best) on 2 A100, 4 GiB, utilisation 35 %"."""
    now, best = known.mini_batch_time.total_seconds() * 1000, known.best_mini_batch_time.total_seconds() * 1000
    parts = [f"{now:.4g} ms a mini-batch" + (f" ({best:.4g} ms at best)" if best < now else "")]
    if known.devices:
        parts[0] += f" on {known.devices} {known.model or 'devices'}"
    if known.memory_mib:
        parts.append(f"{format_memory(known.memory_mib)} of a device")
    if known.utilization_ppm is not None:
        parts.append(f"utilisation {known.utilization_ppm / 10_000:.0f} %")
    return ", ".join(parts)
