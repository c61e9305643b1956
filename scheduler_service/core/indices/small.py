"""Dictionaries that have no empty entries."""

from collections.abc import Hashable
from typing import TypeVar

from sortedcontainers import SortedList

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


def add_or_remove(index: dict[K, SortedList], key: K, member: object, there: bool) -> None:
    """The same in order; the member is there if it is to go."""
    members = index.get(key)
    if there:
        if members is None:
            members = index[key] = SortedList()
        members.add(member)
    elif members is not None:
        members.remove(member)
        if not members:
            del index[key]


def set_or_drop(index: dict[K, R], key: K, value: R | None) -> None:
    if value is None:
        index.pop(key, None)
    else:
        index[key] = value
