"""Memory cycles: what is one, of which period, and what is none."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent.devices.memory_cycles import FEWEST, Cycle, Wave
from tests.agent.waves import AIMLESS, HEIGHT, SHAPES, Kind, Series, aimless, seen, wave
from tests.thorough import examples

WINDOW = 60.0


def found(series: Series) -> Cycle:
    cycle = seen(series, WINDOW).cycle()
    assert cycle is not None
    return cycle


def is_about(cycle: Cycle, period: float) -> bool:
    return cycle.period_seconds is not None and abs(cycle.period_seconds / period - 1) < 0.05


def torch_loop(seconds: float, steps_a_second: float = 2.0) -> Series:
    """What the driver shows of a loop under a caching allocator: the first mini-batches reserve, the rest use that again."""
    rng, series, at, reserved = Random(1), [], 0.0, 450
    while at < seconds:
        step, part = divmod(at * steps_a_second, 1.0)
        use = 450 + 3000 + (14_000 if part < 0.6 else 9000) * (0.7 if step < 1 else 1.0) + (900 if step == 3 else 0)
        reserved = max(reserved, int(use))
        series.append((at, reserved))
        at += rng.uniform(0.015, 0.025)
    return series


@given(
    shape=st.sampled_from(sorted(SHAPES)),
    samples=st.floats(8.0, 1000 / 3.5),
    rate=st.sampled_from([5.0, 17.0, 50.0]),
    kind=st.builds(
        Kind,
        noise=st.floats(0, 0.03),
        jitter=st.floats(0, 0.02),
        growth=st.floats(0, 2),
        irregular=st.floats(0, 0.4),
    ),
    seed=st.integers(0, 1 << 32),
)
@settings(max_examples=examples(100))
def test_a_period_is_found(shape: str, samples: float, rate: float, kind: Kind, seed: int) -> None:
    """To a third of the window, whatever the shape, under noise, growth and varying periods."""
    about = min(samples / rate, WINDOW / 3.5)
    series, period = wave(Random(seed), shape, about, kind, rate=rate)
    cycle = found(series)
    assert is_about(cycle, period), (cycle, period)
    assert 0.5 <= cycle.confidence <= 1
    last = [used for at, used in series if at >= series[-1][0] - 3 * period * 0.9]
    assert cycle.minimum_mib <= min(last) < max(last) <= cycle.maximum_mib


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_a_period_of_a_few_samples_is_found(shape: str) -> None:
    """Where five and six samples take turns, two periods do look more alike than one and the next."""
    rng = Random(9)
    wrong = 0
    for _ in range(20):
        series, period = wave(rng, shape, rng.uniform(4.2, 8) / 50, Kind(noise=0.02))
        wrong += not is_about(found(series), period)
    assert wrong <= 1


@given(name=st.sampled_from(sorted(AIMLESS)), seed=st.integers(0, 1 << 32))
@settings(max_examples=examples(50))
def test_what_has_no_period_is_unknown(name: str, seed: int) -> None:
    series = aimless(Random(seed), name)
    cycle = found(series)
    # By chance a few periods of anything may look alike: then it is not said with confidence.
    assert cycle.period_seconds is None or cycle.confidence < 0.85, cycle
    if cycle.period_seconds is None:
        assert (cycle.minimum_mib, cycle.maximum_mib) == (min(u for _, u in series), max(u for _, u in series))
        assert cycle.confidence == 0


@pytest.mark.parametrize("name", sorted(AIMLESS))
def test_chance_is_seldom_taken_for_a_period(name: str) -> None:
    rng = Random(7)
    assert sum(found(aimless(rng, name)).period_seconds is not None for _ in range(20)) <= 1


def test_a_caching_allocator_hides_the_wave() -> None:
    warm = torch_loop(70)
    cycle = found(warm)
    assert cycle == Cycle(None, max(used for _, used in warm), max(used for _, used in warm), 0.0)
    assert found(torch_loop(20)).period_seconds is None  # nor are the first mini-batches, which reserve, a wave


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("period", [0.11, 0.31, 0.9, 2.7, 8.0])
def test_neither_the_half_nor_a_multiple_is_taken_for_it(shape: str, period: float) -> None:
    rng = Random(3)
    for _ in range(3):
        series, real = wave(rng, shape, period, Kind(noise=0.05, jitter=0.01))
        cycle = found(series)
        assert cycle.period_seconds is not None
        assert cycle.period_seconds / real == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("before", "after"), [(0.5, 0.8), (0.8, 0.2), (2.0, 3.1), (6.0, 1.0), (1.0, 9.0)])
def test_a_change_of_period_is_followed(before: float, after: float) -> None:
    rng = Random(5)
    first, _ = wave(rng, "sawtooth", before, seconds=WINDOW)
    second, period = wave(rng, "sawtooth", after, seconds=2 * WINDOW, begin=WINDOW + 0.02)
    made = seen(first, WINDOW)
    assert (cycle := made.cycle()) is not None
    assert is_about(cycle, before)
    known = []
    for count, (at, used) in enumerate(second):
        made.add(at, used)
        if count % 250 == 0 and (cycle := made.cycle()) is not None:
            known.append((at - WINDOW, cycle))
    settled = [cycle for since, cycle in known if since > max(8 * after, 5)][: len(known)]
    assert settled
    late = [cycle for since, cycle in known if since > WINDOW]
    assert all(is_about(cycle, period) for cycle in late), late
    if after < before:  # a fast wave is known by its last few seconds alone
        assert all(is_about(cycle, period) for cycle in settled), settled


def test_what_ends_is_not_a_cycle_any_more() -> None:
    series, period = wave(Random(2), "square", 2.0, seconds=40)
    assert is_about(found(series), period)
    held = [(series[-1][0] + count / 50, 2000) for count in range(1, 320)]
    cycle = found(series + held)
    assert cycle.period_seconds is None
    assert (cycle.minimum_mib, cycle.maximum_mib) == (2000, 2000 + HEIGHT)


def test_minimum_and_maximum_are_of_the_last_periods() -> None:
    series, _ = wave(Random(2), "sawtooth", 1.0, seconds=50)
    lower = [(at, used if at < 40 else used // 2) for at, used in series]
    cycle = found(lower)
    assert cycle.period_seconds == pytest.approx(1, abs=0.05)
    assert cycle.maximum_mib <= (2000 + HEIGHT) // 2


def test_few_samples_say_nothing() -> None:
    made = Wave()
    assert made.cycle() is None
    for count in range(FEWEST - 1):
        made.add(count / 50, count % 4)
    assert made.cycle() is None
    made.add(1.0, 0)
    assert (cycle := made.cycle()) is not None
    assert cycle.period_seconds is None


def test_two_periods_are_too_few() -> None:
    series, _ = wave(Random(2), "sawtooth", 25.0)
    assert found(series).period_seconds is None


def test_a_wave_faster_than_its_samples_is_unknown_where_these_are_irregular() -> None:
    """At regular times, a wave of 0.9 samples looks just like one of nine."""
    rng = Random(1)
    for about in (0.9, 1.1, 1.3, 1.9):
        series, _ = wave(rng, "sawtooth", about / 50, Kind(irregular=0.5))
        assert found(series).period_seconds is None
    regular, _ = wave(rng, "sawtooth", 0.9 / 50, Kind(irregular=0.0))
    assert found(regular).period_seconds is not None


def test_gaps_are_allowed_and_what_is_before_a_long_one_is_forgotten() -> None:
    series, period = wave(Random(4), "sawtooth", 1.5)
    holes = [(at, used) for at, used in series if not 20 < at % 30 < 22]
    assert is_about(found(holes), period)
    made = seen([(at, used + 50_000) for at, used in series if at < 30], WINDOW)
    for at, used in series:
        made.add(at + 50, used)
    assert (cycle := made.cycle()) is not None
    assert is_about(cycle, period)
    made.add(200.0, 77)
    assert made.cycle() is None


def test_times_that_do_not_rise_are_ignored() -> None:
    series, period = wave(Random(4), "smooth", 1.0)
    twice = [sample for each in series for sample in (each, each, (each[0] - 1, 77_777))]
    cycle = found(twice)
    assert is_about(cycle, period)
    assert cycle.maximum_mib < 77_777


def test_looking_often_and_seldom_show_the_same() -> None:
    """The grid that grows with the samples, and one that is made at once."""
    series, period = wave(Random(6), "forward and backward", 1.7, Kind(noise=0.02), seconds=3 * WINDOW)
    often = Wave(WINDOW)
    looks = []
    for count, sample in enumerate(series):
        often.add(*sample)
        if count % 37 == 0:
            looks.append(often.cycle())
    once = found(series)
    last = often.cycle()
    assert last is not None
    assert is_about(last, period)
    assert last.period_seconds == pytest.approx(once.period_seconds, rel=0.02)
    assert (last.minimum_mib, last.maximum_mib) == pytest.approx((once.minimum_mib, once.maximum_mib), abs=500)
    assert all(cycle is not None and is_about(cycle, period) for cycle in looks[20:])


def test_the_rate_may_change() -> None:
    rng = Random(8)
    fast, _ = wave(rng, "smooth", 2.0, seconds=60, rate=50)
    slow, period = wave(rng, "smooth", 2.0, seconds=70, rate=5, begin=60.1)
    made = seen(fast, WINDOW)
    made.cycle()
    for at, used in slow:
        made.add(at, used)
        if int(at * 5) % 25 == 0:
            made.cycle()
    assert (cycle := made.cycle()) is not None
    assert is_about(cycle, period)
