"""Failures of simulated nodes as they happen, and the tasks of gangs that exit or die before the others."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from scheduler_service.core.model.values import SECOND, Micros, Vector
from scheduler_service.sim.event_queue import Agenda
from scheduler_service.sim.experiments.job_outcomes import Launch
from scheduler_service.sim.failures import BadSchedule, Failure, Outages
from scheduler_service.sim.nodes import Node, Task, What


class NodeFailures:
    """The failures of a schedule, one after the other, and what others learn of each: silence, a fence, a return."""

    def __init__(self, outages: Outages, nodes: Sequence[Node], agenda: Agenda, lost: Callable[[Node, Micros], None]) -> None:
        """`nodes` are those that have joined; `lost` is called with each node that dies."""
        self._outages = outages
        self._failures = iter(outages.failures)
        self._nodes = nodes
        self._agenda = agenda
        self._lost = lost
        self._await_next(after_us=0)

    def _await_next(self, after_us: Micros) -> None:
        failure = next(self._failures, None)
        if failure is None:
            return
        if failure.at_us < after_us:
            raise BadSchedule(f"node {failure.node} dies at {failure.at_us / SECOND:g} s, which comes after later failures")
        self._agenda.push(failure.at_us, What.DIES, failure)

    def kill_node(self, failure: Failure, at: Micros) -> None:
        """Let the node die, and add what follows from it to the agenda. Raises BadSchedule if it cannot die now."""
        number, _, back_us = failure
        if not (0 < number <= len(self._nodes) and self._nodes[number - 1].up):
            raise BadSchedule(f"node {number} cannot die at {at / SECOND:g} s: there is no such node, or it is away already")
        node = self._nodes[number - 1]
        node.up = False
        self._lost(node, at)
        silent_us = at + self._outages.silent_after_us
        fenced_us = None if self._outages.fence_after_us is None else max(at + self._outages.fence_after_us, silent_us)
        for what, when in ((What.SILENT, silent_us), (What.FENCED, fenced_us)):
            if when is not None and (back_us is None or when < back_us):
                self._agenda.push(when, what, node)
        if back_us is not None:
            self._agenda.push(back_us, What.BACK, node)
        self._await_next(after_us=at)


class Torn(NamedTuple):
    """A task of a gang that exited, or died with its node, while others of the gang were still running."""

    launch: Launch
    at_us: Micros
    demand: Vector
    """Demand of this task."""


def torn_from_gang(task: Task, at: Micros) -> Torn:
    """Record a task that has just left others of its gang behind."""
    party = task.party
    launched = party.life.job.spec.in_configuration(party.launch.configuration)
    tasks = launched.tasks()
    return Torn(party.launch, at, tasks[0 if launched.elastic else task.key.task])  # it may have more by now
