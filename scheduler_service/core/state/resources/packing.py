"""Placement of several tasks, each on the first node that has room for it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.model.values import Vector, fits, sub


def largest_first(needs: Sequence[Vector]) -> list[int]:
    """Return the indices of the needs, largest first by devices, then CPU, then memory."""
    return sorted(range(len(needs)), key=lambda i: (-needs[i].devices, -needs[i].cpu_milli, -needs[i].memory_mib))


def pack(needs: Sequence[Vector], offered: NDArray[np.int64]) -> list[int] | None:
    """Return a node for each need, the largest first and each on the first node that has room; None if one finds no node.

    `offered` (3, nodes + 1) is what is free by node, as `FreeResources.offered_resources` returns it; it is reduced by what is
    taken.
    """
    nodes = [0] * len(needs)
    before: Vector | None = None
    for i in largest_first(needs):
        need = needs[i]
        if need != before:
            enough = offered[2] >= need.devices
            enough &= offered[0] >= need.cpu_milli
            enough &= offered[1] >= need.memory_mib
            enough[0] = False
            before = need
        node = int(enough.argmax())
        if not enough[node]:
            return None
        left = sub(offered[:, node].tolist(), need)
        offered[:, node] = left
        enough[node] = fits(need, left)
        nodes[i] = node
    return nodes
