"""A machine's report of its GPUs, before it is interpreted: the one form between NVML, recorded machines and the tree.

It is read in a child process and comes as JSON; a recorded machine is the same JSON in a file.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

Level = Literal["internal", "single", "multiple", "hostbridge", "node", "system"]
"""The nearest part that two GPUs share (nvmlDeviceGetTopologyCommonAncestor): one board, one PCIe switch, several PCIe
switches, one host bridge, one NUMA node, or only the machine."""


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MigInstance(_Said):
    uuid: str
    name: str
    memory_mib: int


class Gpu(_Said):
    """One GPU as the driver numbers it. None: the driver does not say."""

    uuid: str
    name: str
    pci: str
    """PCI address as sysfs writes it: 0000:07:00.0."""
    memory_mib: int
    minor: int | None = None
    """Number of the device file, /dev/nvidia<minor>."""
    numa_node: int | None = None
    cpus: tuple[int, ...] = ()
    """The host's CPUs nearest to the GPU; empty: not known."""
    mig: tuple[MigInstance, ...] | None = None
    """None: MIG is off or not available. Otherwise the instances replace the GPU."""
    fabric: str = ""
    """The NVSwitch fabric of the GPU, as <cluster uuid>/<clique>; empty for none."""
    switch_links: int = 0
    """Number of NVLinks that lead to an NVSwitch."""
    fault: str = ""
    """Why the GPU is not to be used, such as that it could not be read."""


class Pair(_Said):
    """The connection of two GPUs, named by UUID; each pair once."""

    a: str
    b: str
    level: Level | None
    """None: the driver does not say."""
    links: int = 0
    """Number of NVLinks from one straight to the other."""


class Reading(_Said):
    driver: str = ""
    nvml: str = ""
    gpus: tuple[Gpu, ...] = ()
    """The GPUs in the driver's order."""
    pairs: tuple[Pair, ...] = ()
    problems: tuple[str, ...] = ()
    """Facts that could not be read, in words, and why."""

    def levels(self) -> Mapping[frozenset[str], Level | None]:
        return {frozenset((pair.a, pair.b)): pair.level for pair in self.pairs}
