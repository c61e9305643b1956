"""Gangs of which some tasks execute and others do not: a backstop for turns that nodes did not change together (ADR 58).

The ranks of a gang agree where they park. If a node is away at that moment, or a process cannot be stopped, the gang may be
parked on one node and execute on another, where it waits for the others in a collective and so can never park. It has the
devices there, and another gang may wait for these in the same way. Neither would ever continue by itself.
"""

from collections.abc import Callable, Mapping

from scheduler_service.core.model.values import SECOND, Micros

TORN_US: Micros = 180 * SECOND
"""How long a task must execute while another does not. Nodes report every few seconds, so tasks that change turns together
differ by much less."""
_SOME_US: Micros = SECOND

Launch = tuple[int, int]
"""A job, and the number of its launch."""


class TornGangs:
    """Compares for how long the tasks of gangs that take turns have executed."""

    def __init__(self) -> None:
        self._since: dict[Launch, dict[int, Micros]] = {}
        """For how long each task had executed when all of them had executed some more for the last time."""

    def find_late_task(self, launch: Launch, executed: Mapping[int, Micros]) -> int | None:
        """Return a task that has not executed while another one has, for TORN_US; None if nothing is wrong.

        `executed`: for how long each task has executed since it takes turns. Once a task was found, all gangs are watched from
        the start again: when that gang has exited, those that waited for it continue.
        """
        since = self._since.get(launch)
        if since is None or since.keys() != executed.keys() or any(executed[task] < since[task] for task in since):
            self._since[launch] = dict(executed)
            return None
        more = {task: executed[task] - since[task] for task in since}
        last = min(more, key=more.__getitem__)
        if more[last] >= _SOME_US:
            self._since[launch] = dict(executed)
            return None
        if max(more.values()) < TORN_US:
            return None
        self._since.clear()
        return last

    def knows(self, launch: Launch) -> bool:
        return launch in self._since

    def keep(self, is_live: Callable[[Launch], bool]) -> None:
        """Forgets the launches that are over."""
        self._since = {launch: since for launch, since in self._since.items() if is_live(launch)}
