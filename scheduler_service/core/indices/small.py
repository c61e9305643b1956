"""Dictionaries that have no empty entries."""

from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


def add_or_discard(index: dict[K, set[R]], key: K, member: R, there: bool) -> None:
    if there:
        index.setdefault(key, set()).add(member)
    elif (members := index.get(key)) is not None:
        members.discard(member)
        if not members:
            del index[key]


def set_or_drop(index: dict[K, R], key: K, value: R | None) -> None:
    if value is None:
        index.pop(key, None)
    else:
        index[key] = value
