"""Nodes on which a job may run by its requirements other than amounts: device model and memory, names and labels of nodes.

This is for sites without virtual clusters. With them a job's cells decide, by the names of pools and of devices.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.model import JobSpec, Node, NodeDevice, NodeSelector
from scheduler_service.core.model.configurations import ANY_NODE

_KNOWN = 256
"""Number of answers to keep, since users may ask for any number of different nodes."""


class Traits(NamedTuple):
    """Properties of a node that jobs may require."""

    name: str
    labels: frozenset[tuple[str, str]]
    model: str
    """Model of its devices; empty if it has none, or several models."""
    memory_mib: int
    """Memory of its device with the least memory; 0 if it has none."""


class Asked(NamedTuple):
    model: str
    memory_mib: int
    nodes: NodeSelector
    used_mib: int = 0
    """Memory that the job uses on a device that it shares."""


class Suitable(NamedTuple):
    """Nodes on which a job may run, whether they are open or not, as two forms of one set."""

    bits: int
    """Bit i is node i."""
    mask: NDArray[np.bool_]
    """The same set as an array by node ID."""


def asks_nothing(spec: JobSpec) -> bool:
    """Whether any node with enough resources would do. True of nearly all jobs, and called at every look at a job."""
    nodes = spec.nodes
    return not (spec.cells.model or spec.device_memory_mib or spec.gpu_memory_mib) and (nodes is ANY_NODE or nodes == ANY_NODE)


def node_requirements(spec: JobSpec) -> Asked | None:
    """Return the spec's requirements on nodes other than resources; None: it has none."""
    if asks_nothing(spec):
        return None
    return Asked(spec.cells.model, spec.device_memory_mib, spec.nodes, spec.gpu_memory_mib)


def describe(asks: Asked) -> str:
    """Return the requirements for messages, to follow "a node that"."""
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
    """Whether the node meets the requirements. Jobs may use `limit_percent` of a device's memory together."""
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
    """The traits of nodes, and the sets of nodes that follow from them. A set is built by a look at all nodes when it is first
    asked for, and kept until the traits of a node change."""

    __slots__ = ("_known", "_limit_percent", "changes", "traits")

    def __init__(self, limit_percent: int = 100) -> None:
        self._limit_percent = limit_percent
        self.changes = 0
        """Number of times that the traits of a node have changed."""
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

    def find(self, spec: JobSpec, last: int) -> Suitable | None:
        """Return the nodes on which the job may run; None: all. `last` is the highest ID that a node has had: a deleted node
        has no traits, but the mask is as wide as the columns of free resources."""
        asks = node_requirements(spec)
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
