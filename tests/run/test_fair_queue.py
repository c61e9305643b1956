"""Users take turns: no one waits for more than one item of each other user between two of their own."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.run.fair_queue import FairQueue

USERS = st.sampled_from("abcd")


@given(st.lists(st.one_of(USERS, st.none()), max_size=60))
def test_between_two_items_of_a_user_each_other_user_has_at_most_one(steps: list[str | None]) -> None:
    """A user puts an item, or (None) the next one is taken. Whoever has something waiting sees each other user at most once
    before their own turn."""
    queue: FairQueue[tuple[str, int]] = FairQueue()
    put: Counter[str] = Counter()
    got: Counter[str] = Counter()
    seen: dict[str, Counter[str]] = {}
    for user in steps + [None] * len(steps):
        if user is not None:
            queue.put(user, (user, put[user]))
            put[user] += 1
            seen.setdefault(user, Counter())
        elif queue:
            taken, number = queue.take()
            assert number == got[taken], "a user's own items keep their order"
            got[taken] += 1
            for waiting, others in seen.items():
                others[taken] += 1
                assert waiting == taken or others[taken] <= 1
            del seen[taken]
            if queue.count(taken):
                seen[taken] = Counter()
        assert all(queue.count(user) == put[user] - got[user] for user in "abcd")
    assert got == put


@given(st.lists(USERS, max_size=30), st.data())
def test_what_is_dropped_is_not_taken_and_the_others_are(users: list[str], data: st.DataObject) -> None:
    queue: FairQueue[int] = FairQueue()
    for number, user in enumerate(users):
        queue.put(user, number)
    dropped = data.draw(st.sets(st.sampled_from(range(len(users))))) if users else set()
    for number in dropped:
        queue.drop(users[number], number)
    taken = [queue.take() for _ in range(len(users) - len(dropped))]
    assert set(taken) == set(range(len(users))) - dropped
    assert not queue
    with pytest.raises(KeyError):
        queue.take()
