"""What a machine says of its GPUs, before anything is made of it: the one form between NVML, recorded machines and the tree.

It is read in a child process and comes as JSON; a recorded machine is the same JSON in a file.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

Level = Literal["internal", "single", "multiple", "hostbridge", "node", "system"]
"""The nearest thing that two GPUs have in common (nvmlDeviceGetTopologyCommonAncestor): one board, one PCIe switch, several
PCIe switches, one host bridge, one NUMA node, or only the machine."""


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
    """As sysfs writes it: 0000:07:00.0."""
    memory_mib: int
    minor: int | None = None
    """Its device file is /dev/nvidia<minor>."""
    numa_node: int | None = None
    cpus: tuple[int, ...] = ()
    """The host's CPUs that are nearest to it; empty: not known."""
    mig: tuple[MigInstance, ...] | None = None
    """None: MIG is off, or not to be had. Otherwise the instances stand in the GPU's place."""
    fabric: str = ""
    """The NVSwitch fabric that it is a member of, as <cluster uuid>/<clique>; empty for none."""
    switch_links: int = 0
    """NVLinks that lead to an NVSwitch."""
    fault: str = ""
    """Why it is not to be used, such as that it could not be read."""


class Pair(_Said):
    """What joins two GPUs, named by uuid; each pair once."""

    a: str
    b: str
    level: Level | None
    """None: the driver does not say."""
    links: int = 0
    """NVLinks from one straight to the other."""


class Reading(_Said):
    driver: str = ""
    nvml: str = ""
    gpus: tuple[Gpu, ...] = ()
    """In the driver's order."""
    pairs: tuple[Pair, ...] = ()
    problems: tuple[str, ...] = ()
    """What could not be read, in words, and why."""

    def levels(self) -> Mapping[frozenset[str], Level | None]:
        return {frozenset((pair.a, pair.b)): pair.level for pair in self.pairs}
