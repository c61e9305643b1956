"""Series of samples with a period, and without one."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from node_agent.jobs.memory_cycles import Wave

Series = list[tuple[float, int]]

SHAPES: Mapping[str, Callable[[float], float]] = {
    "sawtooth": lambda at: at,
    "square": lambda at: float(at < 0.4),
    "smooth": lambda at: (1 - math.cos(2 * math.pi * at)) / 2,
    "forward and backward": lambda at: at / 0.4 if at < 0.4 else (1 - at) / 0.6,
    "two unlike humps": lambda at: (1 - math.cos(4 * math.pi * at)) / 2 * (1 if at < 0.5 else 0.4),
}
"""What part of the rise there is, by what part of the period is over."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a wave is disturbed. Parts of its height or of its period; growth in heights a minute."""

    noise: float = 0.0
    jitter: float = 0.0
    growth: float = 0.0
    irregular: float = 0.3
    """Of the time between two samples."""


AS_IT_IS = Kind()
HEIGHT = 8000
"""In MiB, above 2000."""


def wave(
    rng: Random,
    shape: str,
    period: float,
    kind: Kind = AS_IT_IS,
    *,
    seconds: float = 60.0,
    rate: float = 50.0,
    begin: float = 0.0,
) -> tuple[Series, float]:
    """Samples of a wave, and the mean of the periods that it really had."""
    form, series, at = SHAPES[shape], [], 0.0
    begun, now, ends = -rng.random() * period, period, []
    while at < seconds:
        while at >= begun + now:
            begun += now
            ends.append(begun)
            now = max(0.3, 1 + rng.gauss(0, kind.jitter)) * period
        level = form((at - begun) / now) + rng.gauss(0, kind.noise) + kind.growth * at / 60
        series.append((begin + at, max(0, 2000 + int(HEIGHT * level))))
        at += (1 + rng.uniform(-kind.irregular, kind.irregular)) / rate
    return series, (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else period


def _walk(rng: Random) -> Iterator[float]:
    level = 20_000.0
    while True:
        level += rng.gauss(0, 100)
        yield level


def _noise(rng: Random) -> Iterator[float]:
    while True:
        yield 8000 + rng.gauss(0, 500)


def _drawn_back(rng: Random) -> Iterator[float]:
    level, strength = 0.0, rng.uniform(0.005, 0.2)
    while True:
        level += rng.gauss(0, 100) - strength * level
        yield 8000 + level


def _at_times(change: Callable[[Random, float], float]) -> Callable[[Random], Iterator[float]]:
    """What changes at times that nothing foretells."""

    def levels(rng: Random) -> Iterator[float]:
        level, often = 2000.0, rng.choice([0.004, 0.01, 0.02, 0.06])
        while True:
            if rng.random() < often:
                level = change(rng, level)
            yield level

    return levels


def _step(rng: Random) -> Iterator[float]:
    at = rng.randrange(100, 2900)
    for count in range(1 << 30):
        yield 2000 if count < at else 9000


def _flat(rng: Random) -> Iterator[float]:
    while True:
        yield 8000 + rng.randrange(2)


AIMLESS: Mapping[str, Callable[[Random], Iterator[float]]] = {
    "flat": _flat,
    "one step": _step,
    "noise": _noise,
    "random walk": _walk,
    "drawn back to a mean": _drawn_back,
    "on and off": _at_times(lambda rng, _: rng.choice([2000, 8000])),
    "random levels": _at_times(lambda rng, _: rng.uniform(2000, 20_000)),
    "random growth": _at_times(lambda rng, level: level + rng.choice([20, 200, 1000])),
}


def aimless(rng: Random, name: str, *, seconds: float = 60.0, rate: float = 50.0) -> Series:
    levels = AIMLESS[name](rng)
    return [(count / rate, max(0, int(next(levels)))) for count in range(int(seconds * rate))]


def seen(series: Series, window: float = 60.0) -> Wave:
    made = Wave(window)
    for at, used in series:
        made.add(at, used)
    return made
