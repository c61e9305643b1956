"""Kinds of simulated jobs: how long a mini-batch takes, how much of a device it needs, and what slows it down.

Numbers that the Gandiva paper (OSDI 2018) prints are taken from it: utilization and rates from Table 1, the effect of the
socket from Figure 1, interference from Figures 3 and 4, the mix of models from Table 2. It does not print the memory of any
model of Table 1, nor rates and utilization of those of Table 2. These are assumptions, and docs/simulating.md names them.
"""

from collections.abc import Mapping
from enum import IntEnum
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from scheduler_service.core.model.values import SECOND, Micros

MILLION = 1_000_000
UNKNOWN = -1


class Spread(IntEnum):
    """How far apart the devices of a job are."""

    SWITCH = 0
    """On one PCIe switch, or a single one."""
    SOCKET = 1
    """On several switches of one socket."""
    NODE = 2
    """On several sockets of one node."""
    NODES = 3
    """On several nodes, with several devices on each."""
    SCATTERED = 4
    """On several nodes, with a single device on some of them."""


class Kind(NamedTuple):
    """The properties that all jobs of a kind share. Shares are in millionths."""

    name: str
    mini_batch_us: Micros
    """Time of one mini-batch on the reference device, with as many devices as the job has, next to each other."""
    utilisation: int = UNKNOWN
    """Utilization of each device while the job has it alone."""
    peak_mib: int = 0
    """The peak memory of each device within a mini-batch; 0: unknown."""
    boundary_mib: int = 0
    """The least memory, at the boundary of two mini-batches: the size of a park and of a checkpoint."""
    packed: int = 0
    """The maximum mini-batches of several jobs of the kind on one device, relative to those of one alone; 0: unknown."""
    spread: tuple[int, ...] = (MILLION,) * len(Spread)
    """The remaining part of the rate, by `Spread`."""
    network: int = 0
    """The lost part of the rate if another job uses the network of one of its nodes, too. For jobs on several nodes."""
    scaling: int = MILLION
    """The remaining part of a doubled rate when the number of devices doubles."""


def of_rate(name: str, per_second: float, utilisation: float = UNKNOWN, **others: object) -> Kind:
    """A kind with this many mini-batches per second and a utilization in percent."""
    used = UNKNOWN if utilisation == UNKNOWN else round(utilisation * MILLION / 100)
    return Kind(name, round(SECOND / per_second), used, **others)  # type: ignore[arg-type]


class Measured(NamedTuple):
    """A row of Table 1."""

    utilisation: float
    alone: float
    """Mini-batches per second of jobs that take turns, which is the rate of one that is alone."""
    packed: float
    """The maximum mini-batches per second of all jobs that are packed on a device."""


TABLE_1: Mapping[str, Measured] = MappingProxyType(
    {
        "vae": Measured(8.7, 81.8, 419.3),
        "super-resolution": Measured(14.1, 40.3, 145.2),
        "rhn": Measured(61.6, 10.1, 14.8),
        "scrnn": Measured(66.8, 16.7, 23.3),
        "mi-lstm": Measured(76.2, 22.2, 25.9),
        "lstm": Measured(87.2, 63.8, 53.0),
        "resnet-50-cifar": Measured(94.0, 10.3, 9.0),
        "resnext-50": Measured(98.9, 83.6, 74.4),
    }
)
"""Rows by kind, in the order of the paper: jobs 1 to 8 of section 6.3."""

_MEMORY = {
    "vae": (1024, 32),
    "super-resolution": (2048, 64),
    "rhn": (4096, 256),
    "scrnn": (4096, 256),
    "mi-lstm": (4096, 256),
    "lstm": (4096, 512),
    "resnet-50-cifar": (6144, 192),
    "resnext-50": (6144, 192),
}
"""Peak and boundary memory in MiB, which the paper does not print."""


def _of_table_1(name: str, row: Measured) -> Kind:
    peak, boundary = _MEMORY[name]
    packed = round(row.packed / row.alone * MILLION)
    return of_rate(name, row.alone, row.utilisation, peak_mib=peak, boundary_mib=boundary, packed=packed)


_FIGURE_1_AND_2 = {
    "resnet-50": (1.0, 1.0, 1.0, 0.9, 0.7),
    "vgg16": (1.0, 0.8, 0.6, 0.5, 0.4),
    "inception-v3": (1.0, 1.0, 1.0, 0.95, 0.85),
    "alexnet": (1.0, 0.85, 0.7, 0.55, 0.45),
}
"""Rates by `Spread`. The paper prints VGG16's 60 % and ResNet-50's 100 % on several sockets; the others are assumptions."""
_MILD = (1.0, 1.0, 0.95, 0.85, 0.75)


def _of_table_2(
    name: str, per_second: float, utilisation: float, memory: tuple[int, int], network: float = 0.3, scaling: float = 0.9
) -> Kind:
    spread = tuple(round(part * MILLION) for part in _FIGURE_1_AND_2.get(name, _MILD))
    lost, kept = round(network * MILLION), round(scaling * MILLION)
    peak, boundary = memory
    return of_rate(
        name, per_second, utilisation, peak_mib=peak, boundary_mib=boundary, spread=spread, network=lost, scaling=kept
    )


TABLE_2 = (
    _of_table_2("inception-v3", 2.5, 90, (10240, 300), 0.30, 1.0),
    _of_table_2("resnet-50", 3.0, 94, (10240, 300), 0.47, 1.0),
    _of_table_2("alexnet", 8.0, 60, (6144, 500), 0.47),
    _of_table_2("vgg16", 1.5, 92, (10240, 1050), 0.47),
    _of_table_2("bi-att-flow", 5.0, 55, (6144, 60)),
    _of_table_2("language-model", 12.0, 70, (4096, 500)),
    _of_table_2("gnmt", 3.0, 65, (8192, 800)),
    _of_table_2("transformer", 6.0, 80, (8192, 700)),
    _of_table_2("wavenet", 2.0, 75, (8192, 100)),
    _of_table_2("deepspeech", 1.0, 80, (10240, 1400), 0.05),
)
"""The paper prints none of the rates, utilization and memory, except DeepSpeech's checkpoint of 1.4 GB. The loss on a shared
network is Figure 4's for ResNet-50, InceptionV3 and DeepSpeech."""

GANDIVA: Mapping[str, Kind] = MappingProxyType(
    {kind.name: kind for kind in (*(_of_table_1(name, row) for name, row in TABLE_1.items()), *TABLE_2)}
)

ON_A_SWITCH: Mapping[tuple[str, str], int] = MappingProxyType(
    {("language-model", "language-model"): 190_000, ("gnmt", "language-model"): 80_000, ("language-model", "gnmt"): 80_000}
)
"""Figure 3: the part of its rate that the first kind loses next to one of the second on the same node. The paper prints that of
LM with LM, calls that of GNMT modest, and ResNet-50 loses nothing."""


def demand_when_packed(kind: Kind) -> float:
    """The demand of a job of the kind on a packed device, which has 1.

    Two jobs that ask for more than 1 together slow each other down. A kind of Table 1 asks for the inverse of its packed rate,
    so that jobs of one kind together reach the table's rate. The demand of other kinds is interpolated between the two measured
    kinds with the closest utilization.

    >>> round(demand_when_packed(GANDIVA["rhn"]), 3)
    0.682
    """
    if kind.packed:
        return MILLION / kind.packed
    return 1.0 if kind.utilisation == UNKNOWN else demanded_at(kind.utilisation / MILLION * 100)


def demanded_at(utilisation: float) -> float:
    """The demand for a utilization in percent, interpolated between 0 and the points of Table 1."""
    points = [(0.0, 0.0), *((row.utilisation, row.alone / row.packed) for row in TABLE_1.values())]
    for (low, below), (high, above) in pairwise(points):
        if utilisation <= high:
            return below + (above - below) * (utilisation - low) / (high - low)
    return points[-1][1]
