"""What a table says of a single record, judged without PostgreSQL: for the twin (`memory`).

The rules are those of `tables` themselves. Their SQL is kept to what SQLite, which comes with Python, understands too, so
that no rule is written a second time: check constraints, generated columns, and the conditions of partial indices.
"""

import json
import operator
import re
import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, BigInteger, CheckConstraint, Integer, SmallInteger, Table

from scheduler_service.store.errors import Rejected
from scheduler_service.store.mapping.records import Record

_BITS = {SmallInteger: 15, BigInteger: 63, Integer: 31}
"""Of an integer's range; the more special types first."""


def _kind(text: str | None) -> str | None:
    if text is None:
        return None
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(json.loads(text)), "number")


def _length(text: str | None, *_dimension: int) -> int | None:
    return None if text is None else len(json.loads(text))


def _path_exists(text: str | None, path: str) -> bool | None:
    """Of JSON paths only those that find, in an array of arrays, one whose nth item is less or more than a bound."""
    asked = re.fullmatch(r"\$\[\*\]\[(\d+)\] \? \(@ ([<>]) (\d+)\)", path)
    if asked is None:
        raise NotImplementedError(path)
    place, compare, bound = int(asked[1]), operator.lt if asked[2] == "<" else operator.gt, int(asked[3])
    return None if text is None else any(compare(item[place], bound) for item in json.loads(text))


_FUNCTIONS: tuple[tuple[str, int, Callable[..., Any]], ...] = (
    ("jsonb_typeof", 1, _kind),
    ("jsonb_array_length", 1, _length),
    ("cardinality", 1, _length),
    ("jsonb_path_exists", 2, _path_exists),
    ("num_nulls", -1, lambda *values: sum(value is None for value in values)),
    ("num_nonnulls", -1, lambda *values: sum(value is not None for value in values)),
)
"""PostgreSQL's functions that the rules use and SQLite lacks."""


def evaluator() -> sqlite3.Connection:
    """Evaluates SQL; holds no data."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    for name, arguments, function in _FUNCTIONS:
        connection.create_function(name, arguments, function, deterministic=True)
    return connection


class Judged(NamedTuple):
    computed: Record
    """Values of the generated columns."""
    broken: list[str]
    """Names of the checks that it breaks, in the order in which PostgreSQL looks at them: that of the alphabet."""
    indexed: dict[str, bool]
    """For each partial index, whether it holds this record."""


class Rules:
    """The rules of one table."""

    def __init__(self, table: Table, evaluate: sqlite3.Connection) -> None:
        self._table = table
        self._evaluate = evaluate
        self._given = [column for column in table.columns if column.computed is None]
        self._holds = [(column.name, _holds(column.type), bool(column.nullable)) for column in self._given]
        computed = {c.name: _sqlite(table, c.computed.sqltext) for c in table.columns if c.computed is not None}
        checks = {str(c.name): _sqlite(table, c.sqltext) for c in table.constraints if isinstance(c, CheckConstraint)}
        conditions = {
            str(index.name): _sqlite(table, where)
            for index in table.indexes
            if (where := index.dialect_options["postgresql"]["where"]) is not None
        }
        self._computed, self._checks, self._conditions = list(computed), sorted(checks), list(conditions)
        asked = [*computed.values(), *(checks[name] for name in self._checks), *conditions.values()]
        values = ", ".join(f'? AS "{column.name}"' for column in self._given)
        self._query = f"SELECT {', '.join(asked) or 'NULL'} FROM (SELECT {values})"
        try:
            evaluate.execute(self._query, [None] * len(self._given))
        except sqlite3.Error as error:
            raise NotImplementedError(
                f"a rule of table {table.name} cannot be evaluated by SQLite ({error}): write it in other words in tables.py, "
                "or teach rules.py the function"
            ) from error
        defaults = [c for c in table.columns if c.server_default is not None and c.computed is None]
        self.defaults: Record = {}
        """Of the columns that no statement sets."""
        for column in defaults:
            (value,) = evaluate.execute(f"SELECT {column.server_default.arg}").fetchone()  # type: ignore[union-attr]
            self.defaults[column.name] = bool(value) if column.type.python_type is bool else value

    def judge(self, record: Record) -> Judged:
        """Raises Rejected, naming no constraint, for a value that a column cannot hold."""
        values = [record[name] for name, _, _ in self._holds]
        for (name, holds, nullable), value in zip(self._holds, values, strict=True):
            if value is None:
                if not nullable:
                    raise Rejected("", f'null value in column "{name}" of "{self._table.name}" violates not-null constraint')
            elif holds is not None and (why := holds(value)):
                raise Rejected("", f'column "{name}" of "{self._table.name}": {why}')
        answers = iter(self._evaluate.execute(self._query, list(map(_sqlite_value, values))).fetchone())
        computed = {name: next(answers) for name in self._computed}
        broken = [name for name in self._checks if next(answers) == 0]  # a rule about what is null is not broken
        return Judged(computed, broken, {name: bool(next(answers)) for name in self._conditions})


def _holds(kind: Any) -> Callable[[Any], str] | None:
    """Why a column of this type cannot hold a value that is not null; empty: it can. None: it holds whatever there is."""
    if isinstance(kind, ARRAY):
        item = _holds(kind.item_type)

        def array(values: Any) -> str:
            if not isinstance(values, list):
                return ""
            if None in values:
                return "an item is null"
            return "" if item is None else next(filter(None, map(item, values)), "")

        return array
    bits = next((bits for type_, bits in _BITS.items() if isinstance(kind, type_)), None)
    if bits is None:
        return None
    least, most = -(1 << bits), (1 << bits) - 1

    def integer(value: Any) -> str:
        if type(value) is not int:
            return f"invalid input: {value!r} is no integer"
        return "" if least <= value <= most else f"value {value} is out of range"

    return integer


def _sqlite(table: Table, expression: object) -> str:
    """The same in SQLite's words: column names quoted, since some are its keywords, and no casts."""
    names = set(table.columns.keys())
    without_casts = re.sub(r"::\w+", "", str(expression))
    return re.sub(r"'[^']*'|\b[a-z_]\w*", lambda m: f'"{m[0]}"' if m[0] in names else m[0], without_casts)


def _sqlite_value(value: Any) -> Any:
    """JSON as text. Whole numbers that SQLite does not have, as numeric columns may hold, are near enough for the rules."""
    if isinstance(value, list | dict):
        return json.dumps(value)
    return float(value) if isinstance(value, int) and abs(value) >= 1 << 63 else value


def unstorable(values: Iterable[Any]) -> str | None:
    """Why some text among these plain values cannot be stored: it holds a NUL, or half of a surrogate pair."""
    for value in values:
        why = None
        if isinstance(value, str):
            why = "a text holds a NUL" if "\0" in value else None
            try:
                value.encode()
            except UnicodeEncodeError as error:
                why = str(error)
        elif isinstance(value, dict):
            why = unstorable((*value, *value.values()))
        elif isinstance(value, list):
            why = unstorable(value)
        if why is not None:
            return why
    return None
