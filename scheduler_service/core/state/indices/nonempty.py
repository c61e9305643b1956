"""Dictionaries that have no empty entries."""

from bisect import bisect_left, insort
from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
Q = TypeVar("Q", bound=tuple[int, ...])


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


def insert_or_remove(index: dict[K, list[Q]], key: K, member: Q, there: bool) -> None:
    """The same in order; the member is there if it is to go. A plain list: most are short, and of a long one all behind the
    member's place is moved in one go."""
    members = index.get(key)
    if members is None:
        index[key] = [member]
    elif there:
        insort(members, member)
    elif len(members) == 1:
        del index[key]
    else:
        del members[bisect_left(members, member)]


def count(index: dict[K, int], key: K, by: int) -> None:
    set_or_drop(index, key, (index.get(key, 0) + by) or None)


def set_or_drop(index: dict[K, R], key: K, value: R | None) -> None:
    if value is None:
        index.pop(key, None)
    else:
        index[key] = value
