"""How well memory cycles are found, and at what price.

Waves of five shapes and seven periods, sampled at 50 Hz for a minute and disturbed in several ways, and series that have no
period: how many are found, missed and misread, and how that would be with a lower and a higher threshold. Then what eight
waves cost, one for each device of a node, which are looked at every ten seconds.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from benchmarks.figures import Figure, figure
from node_agent.devices import memory_cycles
from tests.agent.waves import (
    AIMLESS,
    AS_IT_IS,
    SHAPES,
    Kind,
    Series,
    aimless,
    image_model,
    seen,
    training_and_evaluation,
    translation_model,
    wave,
)

BENCH = "memory_cycles"
PERIODS = (0.085, 0.1, 0.2, 0.5, 1.5, 6.0, 12.0)
KINDS = {
    "as they are": AS_IT_IS,
    "noise of 15 %": Kind(noise=0.15),
    "periods vary by 3 %, noise of 5 %, growing": Kind(noise=0.05, jitter=0.03, growth=1.5),
    "periods vary by 7 %": Kind(jitter=0.07),
}
THRESHOLDS = (0.3, 0.4, 0.5, 0.6)
SEEDS = 2
WAVES = 8
LOOK_EVERY = 10.0


def run() -> list[Figure]:
    figures = []
    for threshold in THRESHOLDS:
        chosen = threshold == memory_cycles.ALIKE
        with alike(threshold):
            for name, kind in KINDS.items():
                ends = _found(kind)
                right, wrong = (100 * ends[end] / ends.total() for end in ("right", "wrong"))
                metric = f"at {threshold:g}, {name}"
                figures.append(figure(BENCH, f"{metric}: right", right, "%", at_least=95 if chosen else None))
                figures.append(figure(BENCH, f"{metric}: wrong", wrong, "%", at_most=3 if chosen else None))
            wrong = 100 * _imagined() / (len(AIMLESS) * 10 * SEEDS)
            figures.append(
                figure(BENCH, f"at {threshold:g}, without a period: wrong", wrong, "%", at_most=1 if chosen else None)
            )
    for name, model in (("image model, 77-fold", image_model), ("translation model, irregular, 3-fold", translation_model)):
        ends = _found_of_model(model)
        right, wrong = (100 * ends[end] / ends.total() for end in ("right", "wrong"))
        figures.append(figure(BENCH, f"{name}: right", right, "%", at_least=95))
        figures.append(figure(BENCH, f"{name}: wrong", wrong, "%", at_most=3))
    ends = _found_in_phases()
    figures.append(figure(BENCH, "training and evaluation: known", 100 - 100 * ends["unknown"] / ends.total(), "%"))
    figures.append(figure(BENCH, "training and evaluation: wrong", 100 * ends["wrong"] / ends.total(), "%", at_most=3))
    look, add = _costs()
    share = 100 * WAVES * (look / LOOK_EVERY + add * 50)
    figures.append(figure(BENCH, "a look, at worst", look * 1e3, "ms"))
    figures.append(figure(BENCH, "a sample", add * 1e6, "µs"))
    figures.append(figure(BENCH, f"{WAVES} waves at 50 Hz, of a core", share, "%", at_most=0.2))
    return figures


@contextmanager
def alike(threshold: float) -> Iterator[None]:
    """With another threshold than the one that was chosen."""
    chosen, memory_cycles.ALIKE = memory_cycles.ALIKE, threshold
    try:
        yield
    finally:
        memory_cycles.ALIKE = chosen


def _found(kind: Kind) -> Counter[str]:
    rng, ends = Random(1), Counter[str]()
    for shape in SHAPES:
        for about in PERIODS:
            for _ in range(SEEDS):
                series, period = wave(rng, shape, about * rng.uniform(0.95, 1.05), kind)
                ends[_end(series, period)] += 1
    return ends


def _found_of_model(model: Callable[[Random, float], tuple[Series, float]]) -> Counter[str]:
    rng, ends = Random(1), Counter[str]()
    for about in (0.3, 0.5, 1.0, 1.5, 2.0, 3.0):
        for _ in range(10 * SEEDS):
            ends[_end(*model(rng, about * rng.uniform(0.95, 1.05)))] += 1
    return ends


def _found_in_phases() -> Counter[str]:
    """A look each two seconds, from the twentieth on, at a training that is interrupted by evaluations."""
    rng, ends = Random(1), Counter[str]()
    for _ in range(SEEDS):
        for step in (0.4, 0.8, 1.5):
            series = training_and_evaluation(rng, step, 0.37 * step)
            for until in range(20, 180, 2):
                ends[_end([sample for sample in series if sample[0] < until], step, 0.37 * step)] += 1
    return ends


def _end(series: Series, *periods: float) -> str:
    found = seen(series).cycle()
    if found is None or found.period_seconds is None:
        return "unknown"
    return "right" if any(abs(found.period_seconds / period - 1) < 0.05 for period in periods) else "wrong"


def _imagined() -> int:
    rng = Random(1)
    looks = (seen(aimless(rng, name)).cycle() for name in AIMLESS for _ in range(10 * SEEDS))
    return sum(found is not None and found.period_seconds is not None for found in looks)


def _costs() -> tuple[float, float]:
    """Seconds of a look and of a sample, where nothing disturbs them; the look at the shape that costs most."""
    rng = Random(1)
    looks, adds = [], []
    for period in (0.2, 1.5, 12.0):
        series, _ = wave(rng, "sawtooth", period, Kind(noise=0.05), seconds=160)
        made, rounds, at = seen([sample for sample in series if sample[0] < 60]), [], 60.0
        made.cycle()
        while at < 150:
            new = [sample for sample in series if at <= sample[0] < at + LOOK_EVERY]
            before = time.thread_time()
            for sample in new:
                made.add(*sample)
            between = time.thread_time()
            made.cycle()
            rounds.append(time.thread_time() - between)
            adds.append((between - before) / len(new))
            at += LOOK_EVERY
        looks.append(min(rounds))
    return max(looks), min(adds)
