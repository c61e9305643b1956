"""A queue in which users take turns, however much each of them has waiting."""

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Between two items of one user, at most one item of each other user is taken. A user's own items keep their order."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()
        """The items of each user, first the user whose turn is next. No user is here without an item."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def count(self, user: str) -> int:
        """How many items of a user wait."""
        return len(self._waiting.get(user, ()))

    def put(self, user: str, item: T) -> None:
        """Adds an item, which must differ from all others of the user that wait."""
        self._waiting.setdefault(user, OrderedDict())[item] = None

    def take(self) -> T:
        """Removes and returns the next item. Raises KeyError if none waits."""
        user, items = self._waiting.popitem(last=False)
        item, _ = items.popitem(last=False)
        if items:
            self._waiting[user] = items
        return item

    def drop(self, user: str, item: T) -> None:
        """Removes an item that waits. Raises KeyError if it does not wait."""
        items = self._waiting[user]
        del items[item]
        if not items:
            del self._waiting[user]
