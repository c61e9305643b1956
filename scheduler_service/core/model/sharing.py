"""Share groups: runs that share devices, and which of them execute at the same time (Gandiva, section 3).

A run that holds its devices alone is in no group, and no group is stored for it.
"""

from typing import NamedTuple

from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.runs import RunKey
from scheduler_service.core.model.values import SECOND, WHOLE, Micros

PERIOD_US: Micros = 60 * SECOND
"""The default length of a cycle: Gandiva slices by the minute."""


class Row(NamedTuple):
    """Runs that execute at the same time, on the same devices (packed) or on different ones (as in an Ousterhout matrix)."""

    runs: tuple[RunKey, ...]
    """In order, each once."""
    weight: int = 1
    """The row's part of each cycle, relative to the weights of the other rows. 0: it has no turn, and its runs are parked,
    until the rows change."""


def parts_of(rows: tuple[Row, ...]) -> dict[RunKey, int]:
    """Return the part of each cycle in which each run may compute, in millionths."""
    if len(rows) == 1:
        return dict.fromkeys(rows[0].runs, WHOLE)
    turns: dict[RunKey, int] = {}
    for row in rows:
        for key in row.runs:
            turns[key] = turns.get(key, 0) + row.weight
    cycle = sum(row.weight for row in rows)
    return {key: weight * WHOLE // cycle if cycle else WHOLE for key, weight in turns.items()}


@dataclass(frozen=True)
class ShareGroup:
    """The holder of some devices. Its rows take turns: one is active at a time, on all nodes of the group together."""

    id: int
    devices: tuple[tuple[int, tuple[int, ...]], ...]
    """(node, device indices), in order. Each of the devices is used by a member, and no other group or run holds it."""
    rows: tuple[Row, ...]
    """In the order in which they take turns. None is empty; a run may be in several."""
    period_us: Micros = PERIOD_US
    """How long a cycle through all rows takes."""
    vc: str = ""
    """The virtual cluster of all members."""
    guaranteed: bool = False
    """All members are guaranteed, or none is."""
    generation: int = 1
    """Grows with each change of what agents are told: devices, rows and period."""
    open: bool = False
    """It remains a group even if nothing is shared, so that other runs may join."""

    @property
    def cycle_us(self) -> Micros:
        """Time in which each row with a weight has a turn; 0: the rows do not take turns."""
        return self.period_us if sum(row.weight > 0 for row in self.rows) > 1 else 0

    def members(self) -> tuple[RunKey, ...]:
        """The runs of all rows, in order."""
        if len(self.rows) == 1:
            return self.rows[0].runs
        return tuple(sorted({key for row in self.rows for key in row.runs}))

    def devices_on(self, node: int) -> tuple[int, ...]:
        return next((devices for at, devices in self.devices if at == node), ())
