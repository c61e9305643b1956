"""The journal: a record of what a step changed, from which the step is undone or made durable.

A table maps a key to a frozen row. `Journal.put` is the only way to change one: it notes the previous row and updates the
table's indices. Indices follow only from the rows, so undoing means putting the old rows back in reverse order, and the
indices are restored by the same code that built them.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Table(Generic[K, R]):
    """Live rows by key. `reindex(old, new)` is called at every change; rows for which `ended(row)` is true are removed from
    memory when put. Changes to a table that is not `durable` are undone with the step, but not made durable with it."""

    __slots__ = ("durable", "ended", "name", "reindex", "rows")

    def __init__(
        self,
        name: str,
        reindex: Callable[[R | None, R | None], None],
        ended: Callable[[R], bool] | None = None,
        durable: bool = True,
    ):
        self.name = name
        self.durable = durable
        self.rows: dict[K, R] = {}
        self.reindex = reindex
        self.ended = ended

    def replace(self, key: K, new: R | None) -> R | None:
        """Sets the row, or removes it (None, or a row that has ended); returns the previous row."""
        old = self.rows.get(key)
        if new is None or (self.ended is not None and self.ended(new)):
            if old is not None:
                del self.rows[key]
                self.reindex(old, None)
        else:
            self.rows[key] = new
            self.reindex(old, new)
        return old


class Change(NamedTuple):
    """The net effect of a step on one row. `old` is None for a new row, `new` is None for a deleted one."""

    table: str
    key: Any
    old: Any
    new: Any


Entry = tuple[Table[Any, Any], Any, Any, Any]
"""A table, the key, the previous row, and the row that was put."""


class Journal:
    """All puts since the last `clear`, in order. `clear` makes a new list, so holders of the old one keep its entries."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def put(self, table: Table[K, R], key: K, new: R | None) -> None:
        """Sets or removes (None) a row."""
        rows, ended, reindex = table.rows, table.ended, table.reindex  # what `replace` does; nothing is called more often
        old = rows.get(key)
        if new is None or (ended is not None and ended(new)):
            if old is not None:
                del rows[key]
                reindex(old, None)
        else:
            rows[key] = new
            reindex(old, new)
        self.entries.append((table, key, old, new))

    def undo(self, to: int = 0) -> None:
        """Undoes all entries after the first `to`, newest first."""
        for table, key, old, _ in reversed(self.entries[to:]):
            table.replace(key, old)
        if to:
            del self.entries[to:]
        else:
            self.clear()

    def clear(self) -> None:
        self.entries = []


def net(entries: Sequence[Entry]) -> tuple[Change, ...]:
    """One Change for each durable row touched, in the order of first touch; a row made and deleted again is left out."""
    touched: dict[tuple[str, Any], tuple[str, Any, Any, Any]] = {}
    for table, key, old, new in entries:
        if not table.durable:
            continue
        at = (table.name, key)
        before = touched.get(at)
        touched[at] = (*at, old if before is None else before[2], new)
    return tuple([tuple.__new__(Change, change) for change in touched.values() if change[2] is not change[3]])
