"""The mini-batch time of a run, from the best source that knows it (ADR 44). Pure.

A step counter knows the time. The cycle of device memory shows the time of programs that free and allocate memory in each
mini-batch, and the power of the device shows the time of others. A source in doubt reports nothing, and the next source counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from math import sqrt

from node_agent.measuring.step_rates import RunSteps
from node_agent.run_state.model import RunKey

MOST = 4096
"""Runs that are reported: as many as the scheduler accepts."""


class MiniBatchSource(IntEnum):
    """Values as in ebb.v1.MiniBatchSource, the best first."""

    STEPS = 1
    MEMORY = 2
    POWER = 3
    UTILISATION = 4


@dataclass(frozen=True, slots=True)
class MiniBatch:
    key: RunKey
    seconds: float
    confidence: float
    """From 0 to 1. From a step counter: 1 less the relative standard error of the mean. Otherwise: how well one period
    resembles the next."""
    source: MiniBatchSource


def choose_best(found: Iterable[MiniBatch]) -> tuple[MiniBatch, ...]:
    """Return each run's time from its best source, in the order of the keys. A run on several devices has several of one
    source; the one with the highest confidence counts. A run whose time no source knows is left out."""
    chosen: dict[RunKey, MiniBatch] = {}
    for each in found:
        known = chosen.get(each.key)
        if known is None or (each.source, -each.confidence) < (known.source, -known.confidence):
            chosen[each.key] = each
    return tuple(chosen[key] for key in sorted(chosen)[:MOST])


def step_mini_batch(steps: RunSteps) -> MiniBatch | None:
    """Return None until the program has done two steps: a single one may be far from the mean."""
    if steps.mini_batch is None or steps.spread is None:
        return None
    error = steps.spread / sqrt(steps.measured) / steps.mini_batch
    return MiniBatch(steps.key, steps.mini_batch, max(0.0, 1 - error), MiniBatchSource.STEPS)
