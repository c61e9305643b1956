"""On which nodes a job may run, by what it asks of nodes beside resources: their devices, names and labels.

That is for sites without virtual clusters. With them a job's cells decide, by the names of pools and of devices.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.model import JobSpec, Node, NodeDevice, NodeSelector
from scheduler_service.core.model.configurations import ANY_NODE

_KNOWN = 256
"""Answers that are kept: users may ask for ever more different nodes."""


class Traits(NamedTuple):
    """What jobs may ask of a node."""

    name: str
    labels: frozenset[tuple[str, str]]
    model: str
    """Of its devices; empty where it has none, or several models."""
    memory_mib: int
    """Of its device with the least memory; 0 where it has none."""


class Asked(NamedTuple):
    model: str
    memory_mib: int
    nodes: NodeSelector
    used_mib: int = 0
    """What the job uses of a device that it shares."""


class Suitable(NamedTuple):
    """Nodes on which a job may run, whether they are open or not, as two forms of one set."""

    bits: int
    """Bit i is node i."""
    mask: NDArray[np.bool_]
    """By node id."""


def asks_nothing(spec: JobSpec) -> bool:
    """Whether any node would do that has the resources. That is so of nearly all jobs, and is asked at every look at one."""
    nodes = spec.nodes
    return not (spec.cells.model or spec.device_memory_mib or spec.gpu_memory_mib) and (nodes is ANY_NODE or nodes == ANY_NODE)


def asked(spec: JobSpec) -> Asked | None:
    """What the spec asks of nodes beside resources; None: nothing."""
    if asks_nothing(spec):
        return None
    return Asked(spec.cells.model, spec.device_memory_mib, spec.nodes, spec.gpu_memory_mib)


def describe(asks: Asked) -> str:
    """For messages, after "a node that": what it asks for."""
    (names, labels, excluded), used = asks.nodes, asks.used_mib
    parts = []
    if asks.model or asks.memory_mib:
        kind = f"{asks.model} devices" if asks.model else "devices"
        parts.append(f"has {kind}" + (f" with {asks.memory_mib} MiB or more each" if asks.memory_mib else ""))
    if used:
        parts.append(f"has {used} MiB of a device for jobs that share it")
    if labels:
        parts.append("has the labels " + ", ".join(f"{name}={value}" for name, value in labels))
    if names:
        parts.append("is named " + " or ".join(names))
    if excluded:
        parts.append("is not " + " or ".join(excluded))
    return " and ".join(parts)


def traits(node: Node, devices: Iterable[NodeDevice]) -> Traits:
    found = list(devices)
    models = {device.model for device in found}
    memory_mib = min((device.memory_mib for device in found), default=0)
    return Traits(node.name, frozenset(node.labels), models.pop() if len(models) == 1 else "", memory_mib)


def suits(node: Traits, asks: Asked, limit_percent: int = 100) -> bool:
    """`limit_percent`: of a device's memory that jobs may use together."""
    names, labels, excluded = asks.nodes
    return (
        asks.model in ("", node.model)
        and asks.memory_mib <= node.memory_mib
        and asks.used_mib <= node.memory_mib * limit_percent // 100
        and (not names or node.name in names)
        and node.name not in excluded
        and node.labels.issuperset(labels)
    )


class SuitableNodes:
    """The traits of nodes, and the sets that follow from them. A set is made when it is first asked for, by a look at all
    nodes, and kept until the traits of a node change."""

    __slots__ = ("_known", "_limit_percent", "changes", "traits")

    def __init__(self, limit_percent: int = 100) -> None:
        self._limit_percent = limit_percent
        self.changes = 0
        """How often a node has come to have other traits."""
        self.traits: dict[int, Traits] = {}
        self._known: dict[Asked, Suitable] = {}

    def set_node(self, node: int, new: Traits | None) -> None:
        if self.traits.get(node) == new:
            return
        self.changes += 1
        self._known.clear()
        if new is None:
            del self.traits[node]
        else:
            self.traits[node] = new

    def among(self, spec: JobSpec, last: int) -> Suitable | None:
        """The nodes on which the job may run; None: all. `last`: the highest id that a node has had. A deleted node has no
        traits, and the mask is still as wide as the columns of free resources."""
        asks = asked(spec)
        if asks is None:
            return None
        known = self._known.get(asks)
        if known is None or len(known.mask) != last + 1:
            if len(self._known) == _KNOWN:
                self._known.clear()
            known = self._known[asks] = self._find(asks, last)
        return known

    def _find(self, asks: Asked, last: int) -> Suitable:
        mask = np.zeros(last + 1, dtype=np.bool_)
        mask[[node for node, found in self.traits.items() if suits(found, asks, self._limit_percent)]] = True
        return Suitable(sum(1 << int(node) for node in np.nonzero(mask)[0]), mask)
