"""Which pair is packed next, and when packing pays."""

from fractions import Fraction
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.policies.gandiva.pairing import next_pair, pays


class Unit(NamedTuple):
    utilisation_ppm: int
    jobs: tuple[int, ...]


LOW, MID, HIGH = Unit(100_000, (3,)), Unit(500_000, (1,)), Unit(900_000, (2,))


def nothing(_one: Unit, _other: Unit) -> None:
    return None


def test_without_experience_the_lowest_utilisation_comes_first() -> None:
    assert next_pair([HIGH, MID, LOW], nothing, 2) == (LOW, MID)


def test_a_pair_that_paid_comes_before_any_that_was_not_tried_and_the_best_of_those_first() -> None:
    paid = {(LOW, HIGH): (True, 1_100_000), (MID, HIGH): (True, 1_300_000)}
    assert next_pair([HIGH, MID, LOW], lambda one, other: paid.get((one, other)), 2) == (MID, HIGH)


def test_a_pair_that_did_not_pay_is_left_out() -> None:
    worse = {(LOW, MID): (False, 1_040_000)}
    assert next_pair([HIGH, MID, LOW], lambda one, other: worse.get((one, other)), 2) == (LOW, HIGH)
    assert next_pair([HIGH, MID, LOW], lambda _one, _other: (False, 900_000), 2) is None


def test_no_more_jobs_are_packed_than_may_be() -> None:
    both = Unit(200_000, (4, 5))
    assert next_pair([both, LOW], nothing, 2) is None
    assert next_pair([both, LOW], nothing, 3) == (LOW, both)


@given(st.lists(st.integers(0, 1_000_000), max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_the_units_makes_no_difference(used: list[int], rng: Random) -> None:
    units = [Unit(utilisation, (number,)) for number, utilisation in enumerate(used)]
    mixed = list(units)
    rng.shuffle(mixed)
    assert next_pair(mixed, nothing, 2) == next_pair(units, nothing, 2)


@pytest.mark.parametrize(("work", "paid"), [("1.05", False), ("1.051", True), ("0.9", False)])
def test_packing_pays_if_the_gain_is_above_the_setting(work: str, paid: bool) -> None:
    assert pays(Fraction(work), 5) is paid
