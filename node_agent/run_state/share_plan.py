"""How runs share devices: what the scheduler has said of a share group (ADR 42)."""

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
    """The highest of all members counts."""
    rows: tuple[ShareRow, ...]
    period: float
    """Seconds of a cycle through all rows."""
    devices: tuple[int, ...] = ()
    """Of this run, on this node."""
    device_memory_mib: int = 0
    """What the run may use of each of its devices; 0: any amount."""
    parked_mib: int = 0
    """Host memory for what it has on its devices while it is parked, beside what it asked for."""
    packed: bool = False
    """Its job asks to be packed, so others may come to execute at the same time, even if it is alone now."""
    since: float = 0.0
    """When it joined the group: seconds of the monotonic clock. The agent writes this."""

    @property
    def cycle(self) -> float:
        """Seconds in which each row has a turn; 0: no rows take turns."""
        return self.period if sum(row.weight > 0 for row in self.rows) > 1 else 0.0
