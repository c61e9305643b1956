"""Series of samples with a period, and without one."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from node_agent.devices.memory_cycles import Wave

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


def stalled(rng: Random, series: Series, often: float, mean: float) -> Series:
    """What a busy machine leaves of samples: with this chance after each, none comes for some seconds, `mean` on average."""
    left: Series = []
    until = 0.0
    for at, used in series:
        if at >= until:
            left.append((at, used))
            until = at + rng.expovariate(1 / mean) if rng.random() < often else until
    return left


def image_model(rng: Random, period: float, *, seconds: float = 60.0, rate: float = 50.0) -> tuple[Series, float]:
    """As ResNet-50 on ImageNet in Gandiva's Figure 4: the maximum is 77 times the minimum, 0.3 to 23 GB."""
    series, real = wave(rng, "forward and backward", period, Kind(noise=0.002, jitter=0.01), seconds=seconds, rate=rate)
    return [(at, 300 + max(0, used - 2000) * 22_800 // HEIGHT) for at, used in series], real


def translation_model(
    rng: Random, period: float, *, seconds: float = 60.0, rate: float = 50.0, spread: float = 0.2
) -> tuple[Series, float]:
    """As GNMT in Gandiva's Figure 4: the maximum is 3 times the minimum, and no mini-batch is like the next."""
    series: Series = []
    at = begun = 0.0
    now, height, ends = period, 1.0, [0.0]
    while at < seconds:
        while at >= begun + now:
            begun += now
            ends.append(begun)
            now, height = period * max(0.4, 1 + rng.gauss(0, spread)), rng.uniform(0.6, 1.0)
        level = height * SHAPES["forward and backward"]((at - begun) / now)
        series.append((at, 4000 + int(HEIGHT * level + rng.gauss(0, 80))))
        at += (1 + rng.uniform(-0.3, 0.3)) / rate
    return series, ends[-1] / (len(ends) - 1)


def training_and_evaluation(rng: Random, step: float, forward: float, *, rate: float = 50.0) -> Series:
    """Three minutes of training that is interrupted by 10 s of evaluation each minute. Evaluation has no backward pass, takes
    `forward` seconds a mini-batch and less memory."""
    series: Series = []
    for minute in range(3):
        train, _ = wave(rng, "forward and backward", step, Kind(noise=0.01), seconds=50, rate=rate, begin=60.0 * minute)
        check, _ = wave(rng, "sawtooth", forward, Kind(noise=0.01), seconds=9.9, rate=rate, begin=60.0 * minute + 50.1)
        series += [*train, *((at, 2000 + (used - 2000) // 3) for at, used in check)]
    return series


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
