"""A queue against a list that is sorted anew at each change."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.state.queue import Queue
from scheduler_service.core.state.queue_order import QueueKey

KEYS = st.tuples(st.integers(-2, 2), st.booleans(), st.integers(1, 30))
CHANGES = st.one_of(KEYS, st.sampled_from(["first", "last", "middle"]))


@given(st.lists(CHANGES, max_size=60))
def test_keys_stand_in_order_wherever_they_come_and_go(changes: list[QueueKey | str]) -> None:
    queue, keys = Queue(), list[QueueKey]()
    for change in changes:
        if isinstance(change, tuple):
            if change not in keys:
                queue.add(change)
                keys = sorted([*keys, change])
        elif keys:
            queue.remove(keys.pop({"first": 0, "last": -1, "middle": len(keys) // 2}[change]))
        assert list(queue) == keys
        assert len(queue) == len(keys)
        assert queue.first == (keys[0] if keys else None)
        assert [queue.key_behind(others) for others in range(len(keys) + 1)] == [*keys, None]


def test_what_has_left_is_forgotten() -> None:
    queue = Queue()
    for job in range(1000):
        queue.add((0, True, job))
    for job in range(990):
        queue.remove((0, True, job))
        assert len(queue._keys) <= 2 * len(queue)
