"""Which scheduler is asked next, while a leader is lost and standbys still name it."""

from hypothesis import given
from hypothesis import strategies as st

from client_sdk._transport.following import Following


def lose(given_addresses: str, *answers: "str | None", each: float = 0.1) -> list[str]:
    """Who is asked, in order. An answer of None: none came; else it is who leads, by the word of the one that was asked."""
    following = Following(given_addresses.split(","))
    asked = [following.address]
    for number, leader in enumerate(answers):
        following.note_failure(leader or "", leader is not None, number * each)
        asked.append(following.address)
    return asked


def test_a_lost_leader_that_a_standby_names_is_tried_once_more() -> None:
    """The connection may have broken, and not the leader."""
    assert lose("x,s", None, "x", None, "x", "x") == ["x", "s", "x", "s", "s", "s"]


def test_it_has_its_turn_again() -> None:
    assert lose("x,s", None, "x", None, "x", "x", each=1.5) == ["x", "s", "x", "s", "s", "x"]


def test_a_scheduler_that_answered_is_not_doubted() -> None:
    """It may lead in a moment."""
    assert lose("x,s", "", "x", "", "x") == ["x", "s", "x", "s", "x"]


def test_who_worked_is_not_doubted_for_its_first_failure() -> None:
    following = Following(["s", "x"])
    following.note_failure("x", True, 0.0)
    following.note_success()
    following.note_failure("", False, 1.0)
    following.note_failure("x", True, 1.1)
    assert following.address == "x"


@given(st.lists(st.sampled_from([None, "", "a", "b", "elsewhere"])), st.floats(0, 5))
def test_somebody_is_always_asked_and_soon_everybody(answers: list[str | None], each: float) -> None:
    assert set(lose("a,b,c", *answers, each=each)) <= {"a", "b", "c", "elsewhere"}
    following = Following(["a", "b", "c"])
    for number, leader in enumerate(answers):
        following.note_failure(leader or "", leader is not None, number * each)
    asked = []
    for number in range(len(answers), len(answers) + 4):  # from then on nobody answers
        asked.append(following.address)
        following.note_failure("", False, number * each)
    assert set(asked) >= {"a", "b", "c"} - set(following._doubted)
