"""Waves of real models: their period is within 5 percent of the truth, or unknown."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent.devices.wave_minima import FEWEST, count_minima
from tests.agent.waves import AIMLESS, Series, aimless, image_model, seen, training_and_evaluation, translation_model
from tests.thorough import examples


def is_about(found: float | None, period: float) -> bool:
    return found is not None and abs(found / period - 1) < 0.05


def period_of(series: Series) -> float | None:
    cycle = seen(series).cycle()
    assert cycle is not None
    return cycle.period_seconds


@given(st.floats(0.2, 4.0), st.integers(0, 1 << 32))
@settings(max_examples=examples(20))
def test_the_mini_batch_of_an_image_model_is_known(period: float, seed: int) -> None:
    series, real = image_model(Random(seed), period)
    assert is_about(period_of(series), real)


@pytest.mark.parametrize("period", [0.3, 1.0, 2.0, 3.0])
def test_the_mini_batch_of_a_translation_model_is_known(period: float) -> None:
    """Not always: of 20 mini-batches of three seconds in a minute, one more or less is 5 percent."""
    rng = Random(4)
    ends = Counter[str]()
    for _ in range(20):
        series, real = translation_model(rng, period)
        found = period_of(series)
        ends["unknown" if found is None else "right" if is_about(found, real) else "wrong"] += 1
    assert ends["right"] >= 18, ends
    assert ends["wrong"] <= 1, ends


@pytest.mark.parametrize(("step", "forward"), [(0.8, 0.3), (1.5, 0.5), (0.4, 0.15)])
def test_evaluation_is_another_phase(step: float, forward: float) -> None:
    """A period is that of the training, or for a while that of the evaluation, and never a mixture of the two."""
    series = training_and_evaluation(Random(6), step, forward)
    looks = Counter[str]()
    for end in range(20, 180, 2):
        found = period_of([sample for sample in series if sample[0] < end])
        near = [name for name, real in (("training", step), ("evaluation", forward)) if is_about(found, real)]
        looks["unknown" if found is None else near[0] if near else "wrong"] += 1
    assert looks["wrong"] == 0, looks
    assert looks["training"] >= 50, looks


@pytest.mark.parametrize("name", sorted(AIMLESS))
def test_minima_at_random_times_are_no_mini_batches(name: str) -> None:
    rng = Random(11)
    for _ in range(10):
        times, values = zip(*aimless(rng, name), strict=True)
        assert count_minima(times, values) is None


def test_a_change_of_the_mean_begins_anew() -> None:
    """Only the minima since the change count, and only if they are enough."""
    rng = Random(12)
    before, _ = translation_model(rng, 1.0, seconds=30)
    after, period = translation_model(rng, 0.5, seconds=30)
    joined = [*before, *((at + 30.02, used) for at, used in after)]
    found = count_minima(*zip(*joined, strict=True))
    assert found is not None
    assert is_about(found.period, period)


def test_one_minimum_that_noise_hides_is_counted() -> None:
    """Five samples make a mini-batch. In one of forty the memory does not fall."""
    times = [count / 5 for count in range(5 * 40)]
    values = [100.0 if count % 5 in (1, 2) or 100 <= count < 106 else 0.0 for count in range(5 * 40)]
    found = count_minima(times, values)
    assert found is not None
    assert found.period == pytest.approx(1.0, rel=0.02)


def test_too_few_minima_say_nothing() -> None:
    series, _ = translation_model(Random(1), 1.0, seconds=FEWEST - 1)
    assert count_minima(*zip(*series, strict=True)) is None
