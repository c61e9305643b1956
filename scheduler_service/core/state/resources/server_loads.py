"""The load and the kind of jobs of each node (Gandiva, section 4.2): M, the number of devices that its runs request together,
and its affinity. Brought up to date on access: most runs come and go without any policy looking.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.model import Run, RunKey


class Loads(NamedTuple):
    """Columns by node ID."""

    requested: NDArray[np.int64]
    """Number of devices that the runs of the node request together: more than the node has if runs take turns."""
    affinity: NDArray[np.int64]
    """Devices of each task of the jobs that the node is for; 0: the node has no run with devices."""


class ServerLoads:
    """An index that follows from the runs. The affinity of a node is that of the run that has been there longest."""

    __slots__ = ("_affinity", "_requested", "stale")

    def __init__(self) -> None:
        self._requested: NDArray[np.int64] = np.zeros(8, np.int64)
        self._affinity: NDArray[np.int64] = np.zeros(8, np.int64)
        self.stale: set[int] = set()
        """Nodes whose runs have changed."""

    def loads(self, nodes: int, runs_on: Mapping[int, set[RunKey]], runs: Mapping[RunKey, Run]) -> Loads:
        """Return the loads of the nodes with IDs up to `nodes`."""
        if nodes >= len(self._requested):
            longer = np.zeros((2, 2 * nodes), np.int64)
            longer[0, : len(self._requested)], longer[1, : len(self._affinity)] = self._requested, self._affinity
            self._requested, self._affinity = longer
        for node in self.stale:
            on = [run for key in runs_on.get(node, ()) if (run := runs[key]).demand.devices]
            first = min(on, key=lambda run: (run.placed_us, run.key), default=None)
            self._requested[node] = sum(run.demand.devices for run in on)
            self._affinity[node] = 0 if first is None else first.demand.devices
        self.stale.clear()
        return Loads(self._requested[: nodes + 1], self._affinity[: nodes + 1])
