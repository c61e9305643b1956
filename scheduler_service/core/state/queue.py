"""A queue of jobs, which mostly join at its end and leave at its front."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice

from scheduler_service.core.state.queue_order import QueueKey


class Queue:
    """Keys in order. Removing the first key leaves a gap, which a new first key fills: at both ends the cost does not depend on
    the length of the queue. Elsewhere all keys behind the position are moved in one go."""

    __slots__ = ("_front", "_keys", "first")

    def __init__(self) -> None:
        self.first: QueueKey | None = None
        """The first key, stored because every look at the queue asks for it."""
        self._keys: list[QueueKey] = []
        self._front = 0
        """Number of free places at the front."""

    def add(self, key: QueueKey) -> None:
        keys, front = self._keys, self._front
        if keys and keys[-1] < key:  # nearly always
            keys.append(key)
            return
        if front and key < keys[front]:
            self._front = front - 1
            keys[front - 1] = key
        else:
            insort(keys, key, front)
        self.first = keys[self._front]

    def remove(self, key: QueueKey) -> None:
        """Removes a key, which must be in the queue."""
        keys, front = self._keys, self._front
        if key != self.first:
            del keys[bisect_left(keys, key, front)]
            return
        front += 1
        if 2 * front >= len(keys):
            del keys[:front]
            front = 0
        self._front = front
        self.first = keys[front] if keys else None

    def key_behind(self, others: int) -> QueueKey | None:
        """Return the key behind this number of others; None: the queue has no more keys than these."""
        keys, place = self._keys, self._front + others
        return keys[place] if place < len(keys) else None

    def __len__(self) -> int:
        return len(self._keys) - self._front

    def __reversed__(self) -> Iterator[QueueKey]:
        return islice(reversed(self._keys), len(self))

    def __iter__(self) -> Iterator[QueueKey]:
        return islice(self._keys, self._front, None)


NOBODY = Queue()
"""An empty queue, returned for a queue that does not exist."""
