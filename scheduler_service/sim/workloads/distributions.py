"""Distributions in a configuration: `work_s: {kind: normal, mean: 300, deviation: 300, low: 60, high: 1800}`.

A plain number is a constant. `low` and `high` truncate a distribution by drawing again, like the FitGpp paper's truncated
normals; values do not pile up at the bounds.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property
from itertools import accumulate
from random import Random
from statistics import NormalDist
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PositiveFloat, model_validator

from scheduler_service.sim.limits import range_validator

MOST = 1e12
"""The largest value that the engine can hold in microseconds or bytes. Larger ones of an unbounded distribution are redrawn."""
LEAST_SHARE = 1e-3
"""The least share of draws within the bounds. With less, drawing again takes too long, and such bounds are rather a mistake."""


LEAST_STEP = 1e-9
_SLACK = 1e-9
"""Tolerance relative to a step: 3 * 0.1 is more than 0.3."""


class Model(BaseModel):
    """A part of a configuration. It is immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def pairs(value: Any) -> Any:
    """Convert a mapping to its items, in order: it is written as a mapping and kept as an immutable value."""
    if isinstance(value, dict):
        return tuple(value.items())
    if isinstance(value, tuple | list) and all(isinstance(item, tuple | list) for item in value):
        return value  # already converted
    raise ValueError("it must be names with their values, such as {name: value}")


Positive = Annotated[float, range_validator(1e-9, MOST)]


class Constant(Model):
    """A constant value."""

    kind: Literal["constant"] = "constant"
    value: float

    def draw(self, _rng: Random) -> float:
        return self.value

    def least(self) -> float:
        return self.value

    def most(self) -> float:
        return self.value


class Uniform(Model):
    """Equally likely values between the bounds."""

    kind: Literal["uniform"] = "uniform"
    low: float
    high: float
    step: float = Field(default=0, ge=0, description="values are rounded to multiples of this; 0: they are not")

    @model_validator(mode="after")
    def _check_order(self) -> "Uniform":
        _require_order(self.low, self.high, self.step)
        return self

    def draw(self, rng: Random) -> float:
        return _round_to_step(rng.uniform(self.low, self.high), self.step, self.low, self.high)

    def least(self) -> float:
        return self.low

    def most(self) -> float:
        return self.high


class Bounded(Model):
    """A distribution with optional bounds: a value outside of them is drawn again, before it is rounded."""

    low: float | None = None
    high: float | None = None
    step: float = Field(default=0, ge=0, description="values are rounded to multiples of this; 0: they are not")

    least_once: ClassVar[float] = 0

    def share_below(self, value: float) -> float:
        raise NotImplementedError

    def draw_once(self, rng: Random) -> float:
        raise NotImplementedError

    @model_validator(mode="after")
    def _bounds_leave_enough(self) -> "Bounded":
        low, high = self._bounds
        _require_order(low, high, self.step)
        share = self.share_below(high) - self.share_below(low)
        if not share >= LEAST_SHARE:
            raise ValueError(f"only {share:.2g} of the draws lie between {low:g} and {high:g}: are the bounds right?")
        return self

    @cached_property
    def _bounds(self) -> tuple[float, float]:
        return -math.inf if self.low is None else self.low, MOST if self.high is None else self.high

    def draw(self, rng: Random) -> float:
        low, high = self._bounds
        while not low <= (value := self.draw_once(rng)) <= high:
            pass
        return _round_to_step(value, self.step, low, high)

    def least(self) -> float:
        return max(self._bounds[0], self.least_once)

    def most(self) -> float:
        return self._bounds[1]


class Normal(Bounded):
    least_once: ClassVar[float] = -math.inf

    kind: Literal["normal"] = "normal"
    mean: float
    deviation: PositiveFloat

    def share_below(self, value: float) -> float:
        return NormalDist(self.mean, self.deviation).cdf(value)

    def draw_once(self, rng: Random) -> float:
        return rng.gauss(self.mean, self.deviation)


class Lognormal(Bounded):
    """A lognormal distribution. Mean and deviation are its own, before truncation, and not those of its logarithm."""

    kind: Literal["lognormal"] = "lognormal"
    mean: Positive
    deviation: Positive

    @cached_property
    def _sigma(self) -> float:
        return math.sqrt(math.log1p((self.deviation / self.mean) ** 2))

    @cached_property
    def _mu(self) -> float:
        return math.log(self.mean) - self._sigma**2 / 2

    def share_below(self, value: float) -> float:
        return NormalDist(self._mu, self._sigma).cdf(math.log(value)) if value > 0 else 0.0

    def draw_once(self, rng: Random) -> float:
        return math.exp(rng.gauss(self._mu, self._sigma))


class Exponential(Bounded):
    kind: Literal["exponential"] = "exponential"
    mean: Positive

    def share_below(self, value: float) -> float:
        return -math.expm1(-value / self.mean) if value > 0 else 0.0

    def draw_once(self, rng: Random) -> float:
        return rng.expovariate(1 / self.mean)


class Choice(Model):
    """One of some values with their weights; without weights, all are equally likely."""

    kind: Literal["choice"] = "choice"
    values: tuple[float, ...] = Field(min_length=1)
    weights: tuple[float, ...] = ()

    @model_validator(mode="after")
    def _check_weights(self) -> "Choice":
        if self.weights and len(self.weights) != len(self.values):
            raise ValueError(
                f"there are {len(self.values)} values and {len(self.weights)} weights: give as many, or no weights"
            )
        if self.weights and (min(self.weights) < 0 or sum(self.weights) <= 0):
            raise ValueError("weights must not be negative, and one must be more than 0")
        if self.weights and max(self.weights) > MOST:
            raise ValueError(f"weights must not be more than {MOST:g}")
        return self

    @cached_property
    def _sums(self) -> list[float]:
        return list(accumulate(self.weights or [1.0] * len(self.values)))

    def draw(self, rng: Random) -> float:
        return self.values[min(bisect_right(self._sums, rng.random() * self._sums[-1]), len(self.values) - 1)]

    def least(self) -> float:
        return min(self.values)

    def most(self) -> float:
        return max(self.values)


class Empirical(Model):
    """A measured distribution: its quantiles at even steps, from the least value to the greatest, linearly interpolated."""

    kind: Literal["empirical"] = "empirical"
    quantiles: tuple[float, ...] = Field(min_length=2)
    step: float = Field(default=0, ge=0, description="values are rounded to multiples of this; 0: they are not")

    @model_validator(mode="after")
    def _rising(self) -> "Empirical":
        if any(a > b for a, b in zip(self.quantiles, self.quantiles[1:], strict=False)):
            raise ValueError("quantiles must not fall: give the least value first")
        _require_order(self.quantiles[0], self.quantiles[-1], self.step)
        return self

    @staticmethod
    def from_samples(samples: Iterable[float], points: int = 101) -> "Empirical":
        """The distribution of some samples, at least one."""
        ordered = sorted(samples)
        return Empirical(quantiles=tuple(_interpolate(ordered, i / (points - 1)) for i in range(points)))

    def draw(self, rng: Random) -> float:
        return _round_to_step(_interpolate(self.quantiles, rng.random()), self.step, self.quantiles[0], self.quantiles[-1])

    def least(self) -> float:
        return self.quantiles[0]

    def most(self) -> float:
        return self.quantiles[-1]


def _interpolate(ordered: "tuple[float, ...] | list[float]", share: float) -> float:
    at = share * (len(ordered) - 1)
    below = min(int(at), len(ordered) - 2) if len(ordered) > 1 else 0
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    return low + (high - low) * (at - below)


def _round_to_step(value: float, step: float, low: float, high: float) -> float:
    """Round a value between the bounds to the nearest multiple of the step between them."""
    if not step:
        return value
    near = round(value / step) * step
    if near > high + _SLACK * step:
        return near - step
    return near + step if near < low - _SLACK * step else near


def _require_order(low: float, high: float, step: float) -> None:
    if not low <= high:
        raise ValueError(f"low ({low:g}) must not be more than high ({high:g})")
    if 0 < step < LEAST_STEP:
        raise ValueError(f"step ({step:g}) must be 0, or from {LEAST_STEP:g} on")
    if step and math.isfinite(low) and math.floor(high / step + _SLACK) < math.ceil(low / step - _SLACK):
        raise ValueError(f"there is no multiple of the step {step:g} between {low:g} and {high:g}")


def _number_is_constant(value: Any) -> Any:
    """YAML parses 1e6, which has no point, as a string."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ValueError(f"{value!r} is neither a number nor a distribution") from None
    return {"kind": "constant", "value": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


def _not_negative(of: "_Any") -> "_Any":
    if of.least() < 0:
        raise ValueError("it can be negative: give it `low: 0`, or more")
    return of


def _not_too_much(of: "_Any") -> "_Any":
    if of.most() > MOST:
        raise ValueError(f"it {'is' if of.least() > MOST else 'can be'} more than {MOST:g}")
    return of


def bound_above(of: "_Any", most: float) -> "_Any":
    """Bound a distribution that has no upper bound of its own. Raises ValueError if that cuts off too much."""
    return of.model_validate({**of.model_dump(), "high": most}) if isinstance(of, Bounded) and of.high is None else of


_Any = Constant | Uniform | Normal | Lognormal | Exponential | Choice | Empirical
Distribution = Annotated[
    Annotated[_Any, Field(discriminator="kind")], BeforeValidator(_number_is_constant), AfterValidator(_not_too_much)
]
Amount = Annotated[Distribution, AfterValidator(_not_negative)]
"""A distribution of a value that cannot be negative."""
