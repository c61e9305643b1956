"""The figures that a benchmark returns, with their targets, if they have one."""

from collections.abc import Sequence
from typing import TypedDict


class Figure(TypedDict):
    """One measured value. `target` is empty, and `met` None, if the value is only for comparison."""

    bench: str
    metric: str
    value: float
    unit: str
    target: str
    met: bool | None


def figure(
    bench: str, metric: str, value: float, unit: str, *, at_most: float | None = None, at_least: float | None = None
) -> Figure:
    target, met = "", None
    if at_most is not None:
        target, met = f"<= {at_most:g}", value <= at_most
    elif at_least is not None:
        target, met = f">= {at_least:g}", value >= at_least
    return Figure(bench=bench, metric=metric, value=round(value, 3), unit=unit, target=target, met=met)


def quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
