"""Building blocks of the tables: their metadata, and the kinds of columns and constraints that they use."""

from enum import IntEnum
from typing import Any

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, Integer, MetaData, Numeric, SmallInteger, Table, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

metadata = MetaData()


def column(name: str, type_: TypeEngine[Any], comment: str | None = None, null: bool = False, **info: Any) -> Column[Any]:
    """`info` is for `table`."""
    return Column(name, type_, nullable=null, comment=comment, info=info)


def big(name: str, comment: str | None = None, null: bool = False) -> Column[Any]:
    return column(name, BigInteger(), comment, null)


def integer(name: str, comment: str | None = None, null: bool = False) -> Column[Any]:
    return column(name, Integer(), comment, null)


def string(name: str, comment: str | None = None, null: bool = False) -> Column[Any]:
    return column(name, Text(), comment, null)


def flag(name: str, comment: str | None = None, null: bool = False) -> Column[Any]:
    return column(name, Boolean(), comment, null)


def json(name: str, comment: str, null: bool = False) -> Column[Any]:
    return column(name, JSONB(none_as_null=True), comment, null)


def micros(name: str, comment: str, null: bool = False) -> Column[Any]:
    return column(name, BigInteger(), f"{comment}; microseconds since 1970", null)


def enum(name: str, values: type[IntEnum], comment: str, null: bool = False) -> Column[Any]:
    listed = ", ".join(f"{value.value} {value.name}" for value in values)
    return column(name, SmallInteger(), f"{comment}: {listed}", null, values=values)


def vector(name: str, comment: str) -> tuple[Column[Any], ...]:
    return (
        column(f"{name}_cpu_milli", BigInteger(), f"{comment}: thousandths of a CPU core", vector=name),
        big(f"{name}_memory_mib", f"{comment}: MiB of host memory"),
        integer(f"{name}_devices", f"{comment}: whole devices"),
    )


def amount(name: str, comment: str, null: bool = False) -> Column[Any]:
    """Without the bounds of a bigint: many devices for many years are added up."""
    return column(name, Numeric(38, 0), f"{comment}; device-microseconds", null)


def lot() -> tuple[Column[Any], ...]:
    return (
        string("pool"),
        string("level"),
        integer("cells", "How many"),
        micros("begin_us", "When their window begins"),
        micros("end_us", "When it is over"),
        integer("devices", "Of one such cell, when the row was made"),
    )


LOT_NOT_EMPTY = "cells > 0 AND begin_us < end_us AND devices >= 0"


def rule(name: str, condition: str) -> CheckConstraint:
    return CheckConstraint(condition, name=name)


def table(name: str, *parts: SchemaItem, comment: str) -> Table:
    """A table with what its columns demand by themselves: the values of an enumeration are known, and no amount of resources
    is negative."""
    made = Table(name, metadata, *parts, comment=comment)
    for column in made.columns:
        if values := column.info.get("values"):
            numbers = ", ".join(str(value.value) for value in values)
            made.append_constraint(rule(f"{name}_{column.name}_known", f"{column.name} IN ({numbers})"))
        if vector := column.info.get("vector"):
            amounts = " AND ".join(f"{vector}_{part} >= 0" for part in ("cpu_milli", "memory_mib", "devices"))
            made.append_constraint(rule(f"{name}_{vector}_not_negative", amounts))
    return made
