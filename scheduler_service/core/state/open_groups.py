"""Share groups that jobs may join, by how much of their device is left."""

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
    """Its jobs may never hold such cells, so that a job that may hold them does not wait behind others."""
    user: str = ""
    """The user of packed jobs that share only with each other; empty: any user."""


class Room(NamedTuple):
    to: OpenTo
    memory_mib: int
    """Memory of the device."""
    part_ppm: int
    """Part of the device that is left."""


class OpenGroups:
    """Groups whose only device is used in parts. Those with the least room come first, so that large parts find room later."""

    __slots__ = ("_found", "_room")

    def __init__(self) -> None:
        self._room: dict[int, Room] = {}
        self._found: dict[OpenTo, dict[int, list[tuple[int, int]]]] = {}
        """Jobs that may join -> memory of the device -> (part that is left, ID of the group), in order."""

    def set_room(self, group: int, room: Room | None) -> None:
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
        """Yield groups that such a job may join, those on devices with the least memory first. `part_of` returns the part that
        the job requests of a device with a given memory, in millionths."""
        for memory, found in sorted(self._found.get(to, {}).items()):
            for place in range(bisect_left(found, (part_of(memory), 0)), len(found)):
                yield found[place][1]

    def most_room(self, to: OpenTo) -> tuple[int, int]:
        """Return the number of such groups, and the largest part that is left on one of their devices."""
        lists = self._found.get(to, {}).values()
        return sum(map(len, lists)), max((found[-1][0] for found in lists), default=0)

    def snapshot(self) -> object:
        return dict(self._room), {to: {memory: list(one) for memory, one in by.items()} for to, by in self._found.items()}
