"""How runs share devices: the scheduler's description of a share group (ADR 42)."""

from dataclasses import dataclass
from typing import NamedTuple

from node_agent.run_state.run_key import RunKey


class ShareRow(NamedTuple):
    """Runs of a share group that execute at the same time, on all its nodes."""

    runs: tuple[RunKey, ...]
    weight: int = 1


@dataclass(frozen=True, slots=True)
class SharePlan:
    """How a run shares its devices with others: their rows take turns."""

    group: int
    generation: int
    """The highest generation of all members counts."""
    rows: tuple[ShareRow, ...]
    period: float
    """Seconds of a cycle through all rows."""
    devices: tuple[int, ...] = ()
    """Devices of this run on this node."""
    device_memory_mib: int = 0
    """Memory that the run may use of each of its devices; 0: any amount."""
    parked_mib: int = 0
    """Host memory for its device memory while it is parked, in addition to what it asked for."""
    packed: bool = False
    """Its job asks to be packed, so others may execute at the same time later, even if it is alone now."""
    since: float = 0.0
    """When it joined the group, in seconds of the monotonic clock. Written by the agent."""

    @property
    def cycle(self) -> float:
        """Seconds in which each row has a turn; 0: no rows take turns."""
        return self.period if sum(row.weight > 0 for row in self.rows) > 1 else 0.0
