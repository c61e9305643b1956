"""The journal: net changes, and undo in reverse order."""

from scheduler_service.core.state.journal import Change, Journal, Table, net

Seen = list[tuple[str | None, str | None]]


def table(seen: Seen | None = None) -> Table[int, str]:
    """Rows are words; those that begin with "end" have ended."""
    return Table("word", lambda old, new: (seen if seen is not None else []).append((old, new)), lambda row: row[:3] == "end")


def test_changes_are_net_and_in_order_of_first_touch() -> None:
    journal, words = Journal(), table()
    journal.put(words, 2, "a")
    journal.put(words, 1, "b")
    journal.put(words, 2, "c")
    assert net(journal.entries) == (Change("word", 2, None, "c"), Change("word", 1, None, "b"))


def test_a_row_made_and_removed_is_no_change() -> None:
    journal, words = Journal(), table()
    journal.put(words, 1, "a")
    journal.put(words, 1, None)
    assert net(journal.entries) == ()


def test_a_row_put_back_is_no_change() -> None:
    journal, words = Journal(), table()
    first = "first"
    journal.put(words, 1, first)
    journal.clear()
    journal.put(words, 1, "second")
    journal.put(words, 1, first)
    assert net(journal.entries) == ()


def test_a_removed_row_changes_to_none() -> None:
    journal, words = Journal(), table()
    journal.put(words, 1, "a")
    journal.clear()
    journal.put(words, 1, None)
    assert net(journal.entries) == (Change("word", 1, "a", None),)


def test_a_row_that_ends_leaves_memory_and_is_still_a_change() -> None:
    journal, words = Journal(), table()
    journal.put(words, 1, "a")
    journal.clear()
    journal.put(words, 1, "ended")
    assert words.rows == {}
    assert net(journal.entries) == (Change("word", 1, "a", "ended"),)


def test_a_row_that_begins_and_ends_in_one_step_is_a_change() -> None:
    journal, words = Journal(), table()
    journal.put(words, 1, "a")
    journal.put(words, 1, "ended")
    assert net(journal.entries) == (Change("word", 1, None, "ended"),)


def test_undo_goes_back_newest_first_and_tells_the_index() -> None:
    seen: Seen = []
    journal, words = Journal(), table(seen)
    journal.put(words, 1, "a")
    journal.put(words, 1, "b")
    journal.put(words, 1, "ended")
    forward = list(seen)
    assert forward == [(None, "a"), ("a", "b"), ("b", None)]
    seen.clear()
    journal.undo()
    assert seen == [(new, old) for old, new in reversed(forward)]
    assert words.rows == {}


def test_undo_stops_where_it_is_told_to() -> None:
    journal, words = Journal(), table()
    journal.put(words, 1, "a")
    here = len(journal.entries)
    journal.put(words, 2, "b")
    journal.undo(here)
    assert words.rows == {1: "a"}
    assert net(journal.entries) == (Change("word", 1, None, "a"),)
