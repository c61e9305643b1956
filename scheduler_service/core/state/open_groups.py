"""The share groups that a job may join, by how much of their device is left."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import NamedTuple

from scheduler_service.core.model import ShareMode


class OpenTo(NamedTuple):
    """The jobs that may join a group."""

    share: ShareMode
    vc: str
    guaranteed: bool
    """The group holds cells of its virtual cluster."""
    opportunistic: bool
    """Its jobs may never hold such cells: a job that may have them is not held up by others."""
    user: str = ""
    """Of packed jobs that share with nobody else; empty: anybody."""


class Room(NamedTuple):
    to: OpenTo
    memory_mib: int
    """Of the device."""
    part_ppm: int
    """Of the device, that is left."""


class OpenGroups:
    """Groups whose only device is used in parts. Those with least room come first, so that large parts find room later."""

    __slots__ = ("_found", "_room")

    def __init__(self) -> None:
        self._room: dict[int, Room] = {}
        self._found: dict[OpenTo, dict[int, list[tuple[int, int]]]] = {}
        """Who may join -> memory of the device -> part that is left and id of the group, in order."""

    def set(self, group: int, room: Room | None) -> None:
        old = self._room.pop(group, None)
        if old is not None:
            by_memory = self._found[old.to]
            found = by_memory[old.memory_mib]
            del found[bisect_left(found, (old.part_ppm, group))]
            if not found:
                del by_memory[old.memory_mib]
                if not by_memory:
                    del self._found[old.to]
        if room is not None:
            self._room[group] = room
            insort(self._found.setdefault(room.to, {}).setdefault(room.memory_mib, []), (room.part_ppm, group))

    def with_room(self, to: OpenTo, part_of: Callable[[int], int]) -> Iterator[int]:
        """Groups that such a job may join; on devices with least memory first. `part_of`: what it asks for of a device with so
        much memory, in millionths."""
        for memory, found in sorted(self._found.get(to, {}).items()):
            for place in range(bisect_left(found, (part_of(memory), 0)), len(found)):
                yield found[place][1]

    def most_room(self, to: OpenTo) -> tuple[int, int]:
        """How many such groups there are, and the largest part that is left on one of their devices."""
        lists = self._found.get(to, {}).values()
        return sum(map(len, lists)), max((found[-1][0] for found in lists), default=0)

    def snapshot(self) -> object:
        return dict(self._room), {to: {memory: list(one) for memory, one in by.items()} for to, by in self._found.items()}
