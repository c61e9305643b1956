"""Waits for the end of a run that is not our child, by file descriptors of its processes (pidfd)."""

import asyncio
import contextlib
import os
from collections.abc import Callable

from node_agent.processes.process_groups import kill_rest, open_process, rest_of, start_ticks

_AGAIN = 0.5


class GroupWatch:
    """Calls `ended` once the leader has exited and the rest of its groups is gone. The rest is killed, unless it `saves`.

    These are its process group and, if it has one, its control group.
    """

    def __init__(
        self,
        leader: int,
        ticks: int,
        ended: Callable[[], None],
        control_group: str = "",
        saves: Callable[[list[int]], bool] = lambda _: False,
    ) -> None:
        self._leader = leader
        self._ticks = ticks
        self._control_group = control_group
        self._ended = ended
        self._saves = saves
        self._descriptors: set[int] = set()
        self._leader_ended = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin to watch. May call `ended` before it returns."""
        self._timer = None
        try:
            self._watch_processes()
        except OSError:  # no descriptor is left; the end of a watched process leads here again
            if not self._descriptors:
                self._timer = asyncio.get_running_loop().call_later(_AGAIN, self.begin)
            return
        if not self._descriptors:
            self._ended()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for descriptor in list(self._descriptors):
            self._remove(descriptor)

    def _watch_processes(self) -> None:
        if not self._leader_ended and start_ticks(self._leader) == self._ticks and self._add(self._leader):
            return
        self._leader_ended = True
        for pid in self._find_rest():
            self._add(pid)

    def _find_rest(self) -> list[int]:
        """Return what the leader has left behind, which is killed unless it may be saving."""
        of = self._leader, self._ticks, self._control_group
        rest = rest_of(*of)
        return rest if rest and self._saves(rest) else kill_rest(*of)

    def _add(self, pid: int) -> bool:
        descriptor = open_process(pid)
        if descriptor is None:
            return False
        self._descriptors.add(descriptor)
        asyncio.get_running_loop().add_reader(descriptor, self._handle_exit, descriptor)
        return True

    def _handle_exit(self, descriptor: int) -> None:
        self._leader_ended = True
        self._remove(descriptor)
        if not self._descriptors:
            self.begin()
        else:  # that was perhaps the last one that saved
            with contextlib.suppress(OSError):
                self._find_rest()

    def _remove(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        self._descriptors.discard(descriptor)
