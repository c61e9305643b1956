"""The rules of a table about a single record, judged without PostgreSQL.

The rules are those of `tables` themselves. Their SQL is kept to what SQLite, which comes with Python, understands too, so
that no rule is written a second time: check constraints, generated columns, and the conditions of partial indices.
"""

import json
import operator
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

from sqlalchemy import ARRAY, BigInteger, CheckConstraint, Integer, SmallInteger, Table

from scheduler_service.store.errors import Rejected
from scheduler_service.store.mapping.records import Record

_BITS = {SmallInteger: 15, BigInteger: 63, Integer: 31}
"""Bits of an integer's range, by type; the more special types first."""


def _kind(text: str | None) -> str | None:
    if text is None:
        return None
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(json.loads(text)), "number")


def _length(text: str | None, *_dimension: int) -> int | None:
    return None if text is None else len(json.loads(text))


def _path_exists(text: str | None, path: str) -> bool | None:
    """Evaluate a JSON path; only those that find, in an array of arrays, one whose nth item is less or more than a bound."""
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
    connection = sqlite3.connect(":memory:", check_same_thread=False, cached_statements=4096)
    for name, arguments, function in _FUNCTIONS:
        connection.create_function(name, arguments, function, deterministic=True)
    return connection


class Judged(NamedTuple):
    computed: Record
    """Values of the generated columns."""
    broken: list[str]
    """Names of the checks that it breaks, in the order in which PostgreSQL looks at them: that of the alphabet."""
    indexed: dict[str, bool]
    """For each partial index that was looked at, whether it holds this record."""


class Rules:
    """The rules of one table."""

    def __init__(self, table: Table, evaluate: sqlite3.Connection) -> None:
        self._table = table
        self._evaluate = evaluate
        self._given = [column for column in table.columns if column.computed is None]
        self._holds = [(column.name, _holds(column.type), bool(column.nullable)) for column in self._given]
        self.rules = list(_rules_of(table))
        self._queries: dict[frozenset[str] | None, _Query] = {}
        """Queries by the columns that an update changes; None: all are new."""
        try:
            evaluate.execute(self._query(None).text, [None] * len(self._given))
        except sqlite3.Error as error:
            raise NotImplementedError(
                f"a rule of table {table.name} cannot be evaluated by SQLite ({error}): write it in other words in tables.py, "
                "or teach rules.py the function"
            ) from error
        defaults = [c for c in table.columns if c.server_default is not None and c.computed is None]
        self.defaults: Record = {}
        """Values of the columns that no statement sets."""
        for column in defaults:
            (value,) = evaluate.execute(f"SELECT {column.server_default.arg}").fetchone()  # type: ignore[union-attr]
            self.defaults[column.name] = bool(value) if column.type.python_type is bool else value

    def judge(self, record: Record, old: Record | None = None) -> Judged:
        """Judge a record; of one that replaces an old one, by those rules alone that its changes concern. Raises Rejected,
        naming no constraint, for a value that a column cannot hold."""
        changes = (
            None if old is None else frozenset(n for n, _, _ in self._holds if record[n] is not old[n] and record[n] != old[n])
        )
        query = self._query(changes)
        for name, holds, nullable in query.holds:
            value = record[name]
            if value is None:
                if not nullable:
                    raise Rejected("", f'null value in column "{name}" of "{self._table.name}" violates not-null constraint')
            elif holds is not None and (why := holds(value)):
                raise Rejected("", f'column "{name}" of "{self._table.name}": {why}')
        judged = Judged({}, [], {})
        if not query.rules:
            return judged
        answers = self._evaluate.execute(query.text, [_sqlite_value(record[name]) for name in query.columns]).fetchone()
        for rule, answer in zip(query.rules, answers, strict=True):
            if rule.kind == "computed":
                judged.computed[rule.name] = answer
            elif rule.kind == "index":
                judged.indexed[rule.name] = bool(answer)
            elif answer == 0:  # a rule about what is null is not broken
                judged.broken.append(rule.name)
        return judged

    def _query(self, changes: frozenset[str] | None) -> "_Query":
        query = self._queries.get(changes)
        if query is None:
            rules = [rule for rule in self.rules if changes is None or changes & rule.columns]
            holds = [each for each in self._holds if changes is None or each[0] in changes]
            used = frozenset[str]().union(*(rule.columns for rule in rules))
            columns = [column.name for column in self._given if changes is None or column.name in used]
            values = ", ".join(f'? AS "{name}"' for name in columns)
            asked = ", ".join(rule.sql for rule in rules) or "NULL"
            query = self._queries[changes] = _Query(f"SELECT {asked} FROM (SELECT {values})", columns, rules, holds)
        return query


class _Rule(NamedTuple):
    kind: Literal["computed", "check", "index"]
    name: str
    sql: str
    columns: frozenset[str]
    """Those that it is about."""


class _Query(NamedTuple):
    text: str
    columns: list[str]
    """Columns whose values it takes, in this order."""
    rules: list[_Rule]
    holds: list[tuple[str, Callable[[Any], str] | None, bool]]


def _rules_of(table: Table) -> Iterator[_Rule]:
    """The checks are in the order of the alphabet, in which PostgreSQL looks at them."""

    def rule_of(kind: Literal["computed", "check", "index"], name: object, expression: object) -> _Rule:
        sql = _sqlite(table, expression)
        return _Rule(kind, str(name), sql, frozenset(re.findall(r'"([a-z_]\w*)"', sql)) & set(table.columns.keys()))

    for column in table.columns:
        if column.computed is not None:
            yield rule_of("computed", column.name, column.computed.sqltext)
    for check in sorted((c for c in table.constraints if isinstance(c, CheckConstraint)), key=lambda check: str(check.name)):
        yield rule_of("check", check.name, check.sqltext)
    for index in table.indexes:
        if (where := index.dialect_options["postgresql"]["where"]) is not None:
            yield rule_of("index", index.name, where)


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
