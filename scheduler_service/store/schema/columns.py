"""What the tables are made of: their metadata, and columns and constraints of the kinds that they have."""

from enum import IntEnum
from typing import Any

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, Integer, MetaData, Numeric, SmallInteger, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeEngine

metadata = MetaData()


def column(name: str, type_: TypeEngine[Any], comment: str | None = None, null: bool = False) -> Column[Any]:
    return Column(name, type_, nullable=null, comment=comment)


def big(name: str, comment: str | None = None, null: bool = False) -> Column[Any]:
    return column(name, BigInteger(), comment, null)


def integer(name: str, comment: str | None = None, null: bool = False) -> Column[Any]:
    return column(name, Integer(), comment, null)


def string(name: str, comment: str | None = None, null: bool = False) -> Column[Any]:
    return column(name, Text(), comment, null)


def flag(name: str, comment: str | None = None) -> Column[Any]:
    return column(name, Boolean(), comment)


def json(name: str, comment: str, null: bool = False) -> Column[Any]:
    return column(name, JSONB(none_as_null=True), comment, null)


def micros(name: str, comment: str, null: bool = False) -> Column[Any]:
    return column(name, BigInteger(), f"{comment}; microseconds since 1970", null)


def enum(name: str, values: type[IntEnum], comment: str, null: bool = False) -> Column[Any]:
    listed = ", ".join(f"{value.value} {value.name}" for value in values)
    return column(name, SmallInteger(), f"{comment}: {listed}", null)


def vector(name: str, comment: str) -> tuple[Column[Any], ...]:
    return (
        big(f"{name}_cpu_milli", f"{comment}: thousandths of a CPU core"),
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


def lot_rule(table: str) -> CheckConstraint:
    return CheckConstraint("cells > 0 AND begin_us < end_us AND devices >= 0", name=f"{table}_lot_not_empty")


def known(table: str, column: str, values: type[IntEnum]) -> CheckConstraint:
    numbers = ", ".join(str(value.value) for value in values)
    return CheckConstraint(f"{column} IN ({numbers})", name=f"{table}_{column}_known")


def amounts(table: str, name: str) -> CheckConstraint:
    parts = " AND ".join(f"{name}_{part} >= 0" for part in ("cpu_milli", "memory_mib", "devices"))
    return CheckConstraint(parts, name=f"{table}_{name}_not_negative")


def rule(name: str, condition: str) -> CheckConstraint:
    return CheckConstraint(condition, name=name)
