"""Resources that the members of a share group use together: device memory, host memory and time.

On each device, the members of the active row use memory at the same time. A run in no active row is parked: what it has on its
devices is moved to its node's memory, but for a residue that stays (Gandiva, section 3.1; the residue is that of a CUDA
context).
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from scheduler_service.core.model import Run, RunKey
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.values import mask_of

Device = tuple[int, int]
"""Node and index."""


class Excess(NamedTuple):
    """A device on which a group would use too much memory."""

    device: Device
    used_mib: int
    limit_mib: int


def limit_mib(memory_mib: int, settings: Settings) -> int:
    """The memory that runs may use together of a device with this memory.

    >>> limit_mib(81920, Settings())
    75366
    """
    return memory_mib * settings.device_memory_limit_percent // 100


def used_mib(run: Run, limit: int) -> int:
    """The memory that the run may use of one device: its own limit, or all that runs may use if it names none."""
    return run.device_memory_mib or limit


def most_used_mib(rows: Sequence[Row], users: Sequence[Run], limit: int, residue_mib: int) -> int:
    """The most memory of one device that is used at a time: what the active row uses, and the residue of each parked member.
    `users`: the members that have the device."""
    most = 0
    for row in rows:
        active = [run for run in users if run.key in row.runs]
        parked = len(users) - len(active)
        most = max(most, sum(used_mib(run, limit) for run in active) + parked * residue_mib)
    return most


def excess(
    rows: Sequence[Row],
    members: Iterable[Run],
    memory: Mapping[Device, int],
    settings: Settings,
    residues: Mapping[Device, int] = MappingProxyType({}),
) -> Excess | None:
    """The first device whose limit the members exceed; None: none. `memory`: MiB of each of their devices, 0 where a node does
    not say how much there is. `residues`: what parked runs that are no members have left there."""
    for device, users in users_of(members).items():
        limit = limit_mib(memory[device], settings)
        used = most_used_mib(rows, users, limit, settings.parked_residue_mib) + residues.get(device, 0)
        if used > limit > 0:
            return Excess(device, used, limit)
    return None


def users_of(members: Iterable[Run]) -> dict[Device, list[Run]]:
    """The members that have each device; devices in the order of members."""
    found: dict[Device, list[Run]] = {}
    for run in members:
        for index in run.devices:
            found.setdefault((run.node, index), []).append(run)
    return found


def parked_mib(rows: Sequence[Row], run: Run, memory: Mapping[Device, int], settings: Settings) -> int:
    """The memory of its node that the run needs while it is parked. 0 for a run that is in every row: it is never parked."""
    if all(run.key in row.runs for row in rows):
        return 0
    return sum(used_mib(run, limit_mib(memory[run.node, index], settings)) for index in run.devices)


def time_share(rows: Sequence[Row], key: RunKey) -> Fraction:
    """The fraction of the time in which the run executes.

    >>> a, b = RunKey(1, 1), RunKey(2, 1)
    >>> time_share((Row((a,), 3), Row((b,))), a)
    Fraction(3, 4)
    """
    return Fraction(sum(row.weight for row in rows if key in row.runs), sum(row.weight for row in rows))


def executes_alone(rows: Sequence[Row], run: Run, members: Iterable[Run]) -> bool:
    """Whether no other run executes on a device of the run while the run executes: the run is not packed."""
    mask = mask_of(run.devices)
    beside = {key for row in rows if run.key in row.runs for key in row.runs}
    return not any(
        other.key in beside and other.key != run.key and other.node == run.node and mask & mask_of(other.devices)
        for other in members
    )


def is_exclusive(rows: Sequence[Row], members: Iterable[Run]) -> bool:
    """Whether each member has its devices to itself all the time, so that nothing is shared."""
    return len(rows) == 1 and all(len(users) == 1 for users in users_of(members).values())
