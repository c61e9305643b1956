"""Records: a row as its table has it, made from the names of the columns."""

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from sqlalchemy import Table

Record = dict[str, Any]
"""Plain JSON by the names of columns: numbers, strings, lists and None."""

Source = str | Callable[[Any], Any]
"""The source of a column's value: the path of an attribute, such as "spec.name", or a function of the row."""


def recorder(columns: Iterable[str], sources: Mapping[str, Source]) -> Callable[[Any], Record]:
    """Makes records of these columns from rows. A column that is not in `sources` has the value of the field of its name."""
    found = {column: sources.get(column, column) for column in columns}
    paths = {column: source for column, source in found.items() if isinstance(source, str)}
    functions = {column: source for column, source in found.items() if not isinstance(source, str)}
    values = _values_of(tuple(paths.values()))

    def record(row: Any) -> Record:
        made = dict(zip(paths, values(row), strict=True))
        for column, source in functions.items():
            made[column] = source(row)
        return made

    return record


def _values_of(paths: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """Gets the values of these attributes."""
    if len(paths) > 1:
        return attrgetter(*paths)
    one = [attrgetter(path) for path in paths]  # of a single attribute, attrgetter gives no tuple
    return lambda row: [value(row) for value in one]


def vector(column: str, path: str) -> dict[str, Source]:
    """The sources of the three columns of a Vector."""
    return {f"{column}_{part}": f"{path}.{part}" for part in ("cpu_milli", "memory_mib", "devices")}


def reader(table: Table, *more: str) -> Callable[[Sequence[Any]], Any]:
    """Gives the values of a row by the names of their columns: all those of the table in its order, and `more` that a query has
    behind them. What comes after these is left out."""
    names = (*table.columns.keys(), *more)
    make, count = namedtuple(table.name, names)._make, len(names)  # type: ignore[attr-defined]  # mypy knows the names of literals alone
    return lambda values: make(values[:count])


def vector_of(row: Any, column: str) -> tuple[int, int, int]:
    """The values of the three columns of a Vector."""
    return getattr(row, f"{column}_cpu_milli"), getattr(row, f"{column}_memory_mib"), getattr(row, f"{column}_devices")
