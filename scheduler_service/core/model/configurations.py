"""Configurations: the ways in which a job can run, of which a policy chooses one for each launch (AlloX, section 3)."""

import re
from typing import NamedTuple

from scheduler_service.core.model.tenants.virtual_clusters import CellRequest
from scheduler_service.core.model.values import Micros, Vector


class TaskGroup(NamedTuple):
    """Tasks of a gang that are alike."""

    size: int
    demand: Vector
    """Of each task."""
    command: tuple[str, ...] = ()
    """Empty: the job's."""


class NodeSelector(NamedTuple):
    """The nodes on which a job may run, on a site without virtual clusters."""

    names: tuple[str, ...] = ()
    """One of these nodes; empty: any."""
    labels: tuple[tuple[str, str], ...] = ()
    """Nodes that have all of these labels, as (name, value)."""
    excluded: tuple[str, ...] = ()
    """None of these nodes."""


ANY_NODE = NodeSelector()


class Configuration(NamedTuple):
    """Another way in which a job can run. The first one is in the fields of the job's spec."""

    demand: Vector
    """Of all tasks together."""
    gang: tuple[TaskGroup, ...] = ()
    """Empty: one task."""
    cells: CellRequest = CellRequest()
    device_memory_mib: int = 0
    """At least so much memory on each device; 0: any."""
    nodes: NodeSelector = ANY_NODE
    command: tuple[str, ...] = ()
    """Empty: the job's."""
    environment: tuple[tuple[str, str], ...] = ()
    """Added to the job's, whose variables of the same names it replaces."""
    estimate_us: Micros = 0
    """How long the job is expected to run in all in this configuration; 0: unknown."""


def chosen_configuration(number: int, why: str) -> str:
    """What the story says of a launch in this configuration; `why` is empty if the policy does not say why.

    >>> chosen_configuration(1, ""), chosen_configuration(1, "the fastest")
    ('configuration 1', 'configuration 1 (the fastest)')
    """
    return f"configuration {number} ({why})" if why else f"configuration {number}"


def why_chosen(text: str) -> str:
    """The reason in a text that begins with what `chosen_configuration` gives; empty if there is none.

    >>> why_chosen("configuration 1 (the fastest (by far)), on n1"), why_chosen("configuration 1"), why_chosen("on n1")
    ('the fastest (by far)', '', '')
    """
    found = _CHOSEN.match(text)
    return found[1] if found else ""


_CHOSEN = re.compile(r"configuration \d+ \((.*)\)")
