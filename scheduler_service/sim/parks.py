"""Parks on simulated nodes: the tasks of a launch stop their work together, and resume it together."""

from collections.abc import Callable

from scheduler_service.core.model.values import Micros
from scheduler_service.sim.nodes import FINISHED, Party, Task, What

Then = Callable[[Task, Micros, What], None]
"""Sets the next event of a task in place of its previous one."""


def is_told(task: Task, now: Micros, delay: Callable[[], Micros], then: Then) -> None:
    """Park a task. If its work is done before, that is reported first, and nothing is parked."""
    party = task.party
    if party.parks_us is None:
        party.told_us, party.parks_us = now, now + delay()
    if party.parks_us < party.done_us:
        then(task, party.parks_us, What.PARKED)


def is_parked(task: Task, at: Micros) -> None:
    task.parked = True
    party = task.party
    if party.stopped_us is None:
        party.stopped_us = at
        party.launch.park_delays += (at - party.told_us,)


def goes_on(task: Task, now: Micros, delay: Callable[[], Micros], then: Then) -> None:
    """Resume a task. If it is about to be parked, it is not."""
    if task.parked:
        task.party.told_us = now
        then(task, now + delay(), What.RESUMED)
    elif task.next is What.PARKED:
        task.next, task.due = What.RESUMED, 0
        _works_on(task.party, now, then)


def is_resumed(task: Task, at: Micros, then: Then) -> None:
    task.parked = False
    _works_on(task.party, at, then)


def _works_on(party: Party, now: Micros, then: Then) -> None:
    """Let all tasks work once none is parked or about to be."""
    if any(task.parked or task.next is What.PARKED for task in party.tasks):
        return
    party.parks_us = None
    if party.stopped_us is not None:
        party.done_us += now - party.stopped_us
        party.launch.unpark_delays += (now - party.told_us,)
        is_over(party, now)
    for task in party.tasks:
        then(task, party.done_us, FINISHED)


def is_over(party: Party, now: Micros) -> None:
    """Record the time in which the launch was parked, which ends now, if it is parked."""
    if party.stopped_us is not None:
        party.launch.parked += (party.stopped_us, now)
        party.stopped_us = None
