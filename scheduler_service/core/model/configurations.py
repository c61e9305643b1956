"""Configurations: the ways in which a job can run. A policy chooses one for each launch (AlloX, section 3)."""

import re
from typing import NamedTuple

from scheduler_service.core.model.tenants.virtual_clusters import CellRequest
from scheduler_service.core.model.values import Micros, Vector


class TaskGroup(NamedTuple):
    """Identical tasks of a gang."""

    size: int
    demand: Vector
    """Resources of each task."""
    command: tuple[str, ...] = ()
    """Command of these tasks; empty: the job's."""


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
    """Resources of all tasks together."""
    gang: tuple[TaskGroup, ...] = ()
    """Empty: one task."""
    cells: CellRequest = CellRequest()
    device_memory_mib: int = 0
    """Minimum memory of each device; 0: any."""
    nodes: NodeSelector = ANY_NODE
    command: tuple[str, ...] = ()
    """Command in this configuration; empty: the job's."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables added to the job's environment; they replace those of the same names."""
    estimate_us: Micros = 0
    """How long the job is expected to run in all in this configuration; 0: unknown."""


def chosen_configuration(number: int, why: str) -> str:
    """Return the story's text for a launch in this configuration; `why` is empty if the policy gives no reason.

    >>> chosen_configuration(1, ""), chosen_configuration(1, "the fastest")
    ('configuration 1', 'configuration 1 (the fastest)')
    """
    return f"configuration {number} ({why})" if why else f"configuration {number}"


def why_chosen(text: str) -> str:
    """Return the reason in a text that begins as `chosen_configuration` writes it; empty if the text gives no reason.

    >>> why_chosen("configuration 1 (the fastest (by far)), on n1"), why_chosen("configuration 1"), why_chosen("on n1")
    ('the fastest (by far)', '', '')
    """
    found = _CHOSEN.match(text)
    return found[1] if found else ""


_CHOSEN = re.compile(r"configuration \d+ \((.*)\)")
