"""Whose turn it is, as a function of the plan and the wall clock."""

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.run_state.run_key import RunKey
from node_agent.sharing.parking.slice_schedule import Member, Moves, durations, lasting_turn, moves, turn_at, with_turns

ONE, TWO, THREE = RunKey(1, 1), RunKey(2, 1), RunKey(3, 1)
WEIGHTS = st.lists(st.integers(1, 20), min_size=1, max_size=6)


def test_turns_follow_the_wall_clock() -> None:
    weights = {0: 1, 1: 2, 3: 3}
    found = [turn_at(600.0 + seconds, weights, 60.0) for seconds in (0, 9.9, 10, 29, 30, 59.9, 60)]
    assert [turn.row for turn in found] == [0, 0, 1, 1, 3, 3, 0]
    assert found[2] == (1, 610.0, 630.0, (10, 1))
    assert [turn.name for turn in found] == [(10, 0), (10, 0), (10, 1), (10, 1), (10, 3), (10, 3), (11, 0)]


def test_a_turn_without_an_end_has_another_name_twice_a_minute() -> None:
    """Whenever the nodes of its group look."""
    found = [lasting_turn(1, wall, 7, 1) for wall in (60.0, 75.0, 89.9, 90.0)]
    assert len({turn.name for turn in found[:3]}) == 1
    assert found[3].name != found[2].name
    assert {turn.renewed_at for turn in found[:3]} == {90.0}
    assert lasting_turn(1, 60.0, 8, 1).name != found[0].name, "another job stops"
    assert {turn.ends for turn in found} == {inf}


def test_rows_of_weight_0_have_turns_only_if_there_are_no_others() -> None:
    assert with_turns({0: 1, 1: 0, 2: 3}) == {0: 1, 2: 3}
    assert with_turns({1: 0, 2: 0}) == {1: 1, 2: 1}
    assert with_turns({}) == {}


@given(WEIGHTS, st.floats(1, 600), st.floats(0, 1e9))
def test_turns_follow_each_other_without_gaps_in_proportion_to_weights(weights: list[int], period: float, start: float) -> None:
    turns, wall = [], start
    rows = dict(enumerate(weights))
    for _ in range(2 * len(weights) + 1):
        turns.append(turn_at(wall, rows, period))
        wall = turns[-1].ends + 1e-6 * period
    assert [later.row for later in turns[1:]] == [(turn.row + 1) % len(weights) for turn in turns[:-1]]
    for turn in turns[1:-1]:
        assert turn.ends - turn.begins == pytest.approx(period * weights[turn.row] / sum(weights), rel=0.01)
    for before, after in pairwise(turns):
        assert after.begins == pytest.approx(before.ends, abs=1e-5 * period)


@given(WEIGHTS, st.data())
def test_what_rows_lose_is_given_back(weights: list[int], data: st.DataObject) -> None:
    """What is left after the losses is in proportion to the weights, unless a row would have hardly any turn."""
    losses = data.draw(st.lists(st.floats(-1.0, 3.0), min_size=len(weights), max_size=len(weights)))
    found = durations(weights, 60.0, losses)
    assert sum(found) == pytest.approx(60.0)
    shares = [60.0 * weight / sum(weights) for weight in weights]
    assert all(seconds > 0.05 * share for seconds, share in zip(found, shares, strict=True))
    if all(abs(loss) < 0.1 * share for loss, share in zip(losses, shares, strict=True)):
        left = [(seconds - loss) / weight for seconds, loss, weight in zip(found, losses, weights, strict=True)]
        assert left == pytest.approx([left[0]] * len(left))


def member(key: RunKey, *devices: int, executes: bool) -> Member:
    return Member(key, frozenset(devices), executes)


@pytest.mark.parametrize(
    ("members", "park", "go"),
    [
        ([member(ONE, 0, executes=False), member(TWO, 0, executes=True)], {TWO}, set()),
        ([member(ONE, 0, executes=False), member(TWO, 0, executes=False)], set(), {ONE}),
        ([member(ONE, 0, executes=True), member(TWO, 0, executes=False)], set(), set()),
        ([member(ONE, 0, executes=False), member(TWO, 1, executes=True)], {TWO}, {ONE}),
        ([member(ONE, 0, 1, executes=False), member(TWO, 1, executes=True)], {TWO}, set()),
        ([member(TWO, 0, executes=True)], {TWO}, set()),
    ],
)
def test_others_are_parked_first(members: list[Member], park: set[RunKey], go: set[RunKey]) -> None:
    assert moves({ONE}, members) == Moves(frozenset(park), frozenset(go))


def test_runs_of_one_row_execute_together_on_one_device() -> None:
    packed = [member(ONE, 0, executes=True), member(TWO, 0, executes=False), member(THREE, 0, executes=False)]
    assert moves({ONE, TWO}, packed) == Moves(frozenset(), frozenset({TWO}))
