"""The record of what a step changed, from which it is undone and made durable.

A table maps a key to a frozen row. `Journal.put` is the only way to change one: it notes the row that was there and tells
the table's index. Indices follow from the rows alone, so undoing is putting the old rows back in reverse order, and what
the indices hold is restored by the same code that built them.
"""

from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Table(Generic[K, R]):
    """Live rows by key. `reindex(old, new)` is called at every change; `ended(row)` rows leave memory when put."""

    __slots__ = ("ended", "name", "reindex", "rows")

    def __init__(self, name: str, reindex: Callable[[R | None, R | None], None], ended: Callable[[R], bool] = lambda _: False):
        self.name = name
        self.rows: dict[K, R] = {}
        self.reindex = reindex
        self.ended = ended

    def replace(self, key: K, new: R | None) -> R | None:
        """Sets the row, or removes it (None, or a row that has ended); returns what was there."""
        old = self.rows.get(key)
        kept = None if new is None or self.ended(new) else new
        if kept is None:
            if old is not None:
                del self.rows[key]
        else:
            self.rows[key] = kept
        self.reindex(old, kept)
        return old


class Change(NamedTuple):
    """The net effect of a step on one row. `old` is None for a new row, `new` is None for a deleted one."""

    table: str
    key: Any
    old: Any
    new: Any


class Journal:
    """What was put since the last `clear`, in order."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[tuple[Table[Any, Any], Any, Any, Any]] = []

    def put(self, table: Table[K, R], key: K, new: R | None) -> None:
        self.entries.append((table, key, table.replace(key, new), new))

    def savepoint(self) -> int:
        return len(self.entries)

    def undo(self, to: int = 0) -> None:
        """Puts back, newest first, everything that came after the savepoint."""
        while len(self.entries) > to:
            table, key, old, _ = self.entries.pop()
            table.replace(key, old)

    def changes(self) -> tuple[Change, ...]:
        """One Change for each row touched, in the order of first touch; a row made and deleted again is left out."""
        net: dict[tuple[str, Any], tuple[str, Any, Any, Any]] = {}
        for table, key, old, new in self.entries:
            at = (table.name, key)
            before = net.get(at)
            net[at] = (*at, old if before is None else before[2], new)
        return tuple([tuple.__new__(Change, change) for change in net.values() if change[2] is not change[3]])

    def clear(self) -> None:
        self.entries.clear()
