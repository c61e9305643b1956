"""Each user of devices has its fair part of a cycle of turns, whatever devices it wants."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.policies.gandiva.slicing.fair_turns import LONGEST, fair_turns, parts_of
from tests.policies.fairest import fairest
from tests.thorough import examples


@pytest.mark.parametrize(
    ("wants", "parts"),
    [
        ((1, 1, 1), (1 / 3, 1 / 3, 1 / 3)),
        ((3, 1, 2, 4), (1 / 2, 1 / 2, 1 / 2, 1)),
        ((1, 1, 1, 2, 2, 3), (1 / 4, 1 / 4, 1 / 4, 3 / 8, 3 / 8, 1 / 4)),
        ((3, 6, 12, 24, 17), (2 / 5,) * 5),
        ((8, 9, 9, 12, 6, 4, 15, 3), (0.2, 0.2, 0.2, 0.2, 0.3, 0.3, 0.2, 0.4)),
    ],
)
def test_parts_are_fair(wants: tuple[int, ...], parts: tuple[float, ...]) -> None:
    assert parts_of(fair_turns(wants), len(wants)) == pytest.approx(parts, abs=0.01)
    assert fairest(wants) == [Fraction(part).limit_denominator(60) for part in parts]


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(1, 15), min_size=1, max_size=8).map(tuple))
def test_no_part_is_two_points_from_the_fairest(wants: tuple[int, ...]) -> None:
    parts = parts_of(fair_turns(wants), len(wants))
    assert max(abs(part - best) for part, best in zip(parts, fairest(wants), strict=True)) <= 0.02


@given(st.lists(st.integers(1, 255), min_size=1, max_size=12).map(tuple))
def test_turns_are_no_more_than_they_have_to_be_and_leave_no_device_idle_that_somebody_could_have(
    wants: tuple[int, ...],
) -> None:
    turns = fair_turns(wants)
    assert sum(length for _, length in turns) <= LONGEST
    assert len({who for who, _ in turns}) == len(turns)
    assert {user for who, _ in turns for user in who} == set(range(len(wants)))
    for who, length in turns:
        taken = [index for user in who for index in range(8) if wants[user] >> index & 1]
        assert length > 0
        assert len(taken) == len(set(taken)), "two have a device at the same time"
        assert all(user in who or any(want >> index & 1 for index in taken) for user, want in enumerate(wants))
