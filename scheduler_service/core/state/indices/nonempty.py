"""Dictionaries without empty entries."""

from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


def add_or_discard(index: dict[K, set[R]], key: K, member: R, there: bool) -> None:
    members = index.get(key)
    if there:
        if members is None:
            index[key] = {member}
        else:
            members.add(member)
    elif members is not None:
        members.discard(member)
        if not members:
            del index[key]


def count(index: dict[K, int], key: K, by: int) -> None:
    set_or_drop(index, key, (index.get(key, 0) + by) or None)


def set_or_drop(index: dict[K, R], key: K, value: R | None) -> None:
    if value is None:
        index.pop(key, None)
    else:
        index[key] = value
