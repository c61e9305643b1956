"""A table in memory: records by key, judged as PostgreSQL would judge them (see `rules`)."""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import ForeignKeyConstraint, Table, UniqueConstraint

from scheduler_service.store.errors import REQUESTS, DuplicateRequest, Rejected
from scheduler_service.store.mapping.records import Record
from scheduler_service.store.memory.rules import Rules
from scheduler_service.store.writing.commit import encode

R = TypeVar("R")
Key = tuple[Any, ...]


class Reference(NamedTuple):
    """A foreign key."""

    name: str
    columns: tuple[str, ...]
    table: str
    """To which it refers."""
    target: tuple[str, ...]
    """Its columns there."""
    unique: str
    """The unique constraint over them."""


@cache
def references_of(table: Table) -> tuple[Reference, ...]:
    return tuple(map(_reference, table.foreign_key_constraints))


def _reference(constraint: ForeignKeyConstraint) -> Reference:
    there, target = constraint.referred_table, tuple(element.column.name for element in constraint.elements)
    unique = next(name for name, columns in _unique_columns(there).items() if columns == target)
    return Reference(str(constraint.name), tuple(constraint.column_keys), there.name, target, unique)


def _unique_columns(table: Table) -> dict[str, tuple[str, ...]]:
    """Return the columns of each unique constraint that holds at every moment."""
    found = {str(table.primary_key.name): tuple(table.primary_key.columns.keys())}
    for constraint in table.constraints:
        if isinstance(constraint, UniqueConstraint) and not constraint.deferrable:
            found[str(constraint.name)] = tuple(constraint.columns.keys())
    return found | {str(index.name): tuple(index.columns.keys()) for index in table.indexes if index.unique}


class RecordTable:
    """Records by key, and the unique constraints over them."""

    def __init__(self, table: Table, key: tuple[str, ...], rules: Rules) -> None:
        self.table = table
        self.key = key
        self.rules = rules
        self.records: dict[Key, Record] = {}
        self.names = [column.name for column in table.columns]
        self.references = references_of(table)
        self.columns = _unique_columns(table)
        self.deferred = {
            str(constraint.name): tuple(constraint.columns.keys())
            for constraint in table.constraints
            if isinstance(constraint, UniqueConstraint) and constraint.deferrable
        }
        """Columns of each constraint that need hold at COMMIT alone."""
        self.unique: dict[str, dict[Key, Key]] = {name: {} for name in self.columns}
        """Values -> the key of the record that has them."""
        self.held: dict[Key, list[tuple[str, Key]]] = {}
        """Key -> what its record has in `unique`."""
        self.indexed: dict[Key, dict[str, bool]] = {}
        """Key -> which partial indices hold its record."""
        self.counted = self.deferred | {reference.name: reference.columns for reference in self.references}
        self.counts: dict[str, dict[Key, int]] = {name: {} for name in self.counted}
        """How many records have the same values in the columns of a deferred constraint, or of a foreign key."""
        self.twice: dict[str, set[Key]] = {name: set() for name in self.deferred}
        """Values that several records have, and only one may have at COMMIT."""

    def replace(self, key: Key, record: Record | None) -> None:
        """Sets or removes a record. Raises Rejected when it breaks a rule of its own, or is not unique."""
        held: list[tuple[str, Key]] = []
        if record is not None:
            old = self.records.get(key)
            judged = self.rules.judge(record, old)
            record |= judged.computed
            indexed = self.indexed.get(key, {}) | judged.indexed if old is not None else judged.indexed
            if judged.broken:
                raise Rejected(judged.broken[0], f'new row for relation "{self.table.name}" violates the check: {record}')
            for name, columns in self.columns.items():
                values = tuple(record[column] for column in columns)
                if None in values or not indexed.get(name, True):
                    continue
                if self.unique[name].get(values, key) != key:
                    listed = ", ".join(map(str, values))
                    refusal = DuplicateRequest if name in REQUESTS else Rejected
                    raise refusal(name, f"Key ({', '.join(columns)})=({listed}) already exists.")
                held.append((name, values))
        for name, values in self.held.pop(key, ()):
            del self.unique[name][values]
        if (old := self.records.get(key)) is not None:
            self._count(old, -1)
        if record is None:
            del self.records[key], self.indexed[key]
            return
        self._count(record, 1)
        for name, values in held:
            self.unique[name][values] = key
        self.held[key], self.indexed[key] = held, indexed
        self.records[key] = record

    def _count(self, record: Record, by: int) -> None:
        for name, columns in self.counted.items():
            counts, values = self.counts[name], tuple(record[column] for column in columns)
            counts[values] = count = counts.get(values, 0) + by
            if name in self.twice:
                (self.twice[name].add if count > 1 else self.twice[name].discard)(values)
            if not count:
                del counts[values]

    def forget(self) -> None:
        """Lets go of all records."""
        self.records.clear()
        self.held.clear()
        self.indexed.clear()
        for each in (self.unique, self.counts, self.twice):
            for held in each.values():
                held.clear()

    def check_deferred(self) -> None:
        for name, columns in self.deferred.items():
            for values in self.twice[name]:
                raise Rejected(name, f"Key ({', '.join(columns)})={values} already exists.")

    def key_of(self, record: Record) -> Key:
        return tuple(record[name] for name in self.key)

    def row(self, record: Record, make: Callable[[Sequence[Any]], R]) -> R:
        """Return what PostgreSQL's row of the record reads as: a copy, like everything that is given out."""
        return make(json.loads(encode([record[name] for name in self.names])))

    def find(self, key: Key, make: Callable[[Sequence[Any]], R]) -> R | None:
        record = self.records.get(key)
        return None if record is None else self.row(record, make)

    def having(self, index: str, values: Iterable[Key], make: Callable[[Sequence[Any]], R]) -> dict[Key, R]:
        """The rows that have some of these values of a unique index, by the values."""
        keys = {value: self.unique[index].get(value) for value in values}
        return {value: self.row(self.records[key], make) for value, key in keys.items() if key is not None}

    def rows(self, make: Callable[[Sequence[Any]], R], where: Callable[[Record], bool] = lambda _: True) -> list[R]:
        """In the order of their keys."""
        return [self.row(record, make) for _, record in sorted(self.records.items()) if where(record)]
