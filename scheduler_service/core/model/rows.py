"""Frozen rows: making new ones, and copies with some fields changed. Nothing in a step costs more.

A frozen dataclass sets its fields one by one; here they are copied together, at a fifth of the cost. For this, rows have no
__post_init__ and no slots.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING
from dataclasses import fields as fields_of
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_new = object.__new__

if TYPE_CHECKING:
    from dataclasses import dataclass
    from dataclasses import replace as with_changes  # whose calls are checked against the row's fields

    derived = cached_property

    def make_row(kind: Callable[P, R], /, *_: P.args, **facts: P.kwargs) -> R:
        """A new row; its fields are given by name."""
else:

    class derived(cached_property):  # noqa: N801  # as its model
        """A `cached_property` without the lock that it takes up to Python 3.11. A changed row inherits the cached value, so the
        value must depend only on fields that do not change."""

        def __get__(self, row: Any, owner: type | None = None) -> Any:
            if row is None:
                return self
            value = row.__dict__[self.attrname] = self.func(row)
            return value

    def dataclass(*, frozen: bool, slots: bool = False) -> Callable[[type[R]], type[R]]:
        """Does what `dataclasses.dataclass` does, but only mypy enforces `frozen`: at run time Python would call a function to
        set each field, which takes three times as long. Nor do defaults stay in the class, where Python would look for each
        field first."""

        def made_of(fields: type[R]) -> type[R]:
            kind = dataclasses.dataclass(fields, slots=slots, unsafe_hash=frozen)
            for field in () if slots else fields_of(kind):
                if field.default is not MISSING:
                    delattr(kind, field.name)
            return kind

        return made_of

    def with_changes(row: R, /, **facts: Any) -> R:
        """Does what `dataclasses.replace` does. The result of `|` may share its keys with other rows, which slows look-ups."""
        new = _new(row.__class__)
        new.__dict__ = {**row.__dict__, **facts}
        return new

    def make_row(kind: type[R], /, **facts: Any) -> R:
        new = _new(kind)
        new.__dict__ = _defaults(kind) | facts
        return new


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    """Return all fields in order with their defaults; None for those that must be given."""
    return {field.name: None if field.default is MISSING else field.default for field in fields_of(kind)}


__all__ = ["dataclass", "derived", "make_row", "with_changes"]
