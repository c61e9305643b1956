"""The index of idle devices, and what depends on it."""

from scheduler_service.core.model.values import Mask
from scheduler_service.core.state.indices.nonempty import set_or_drop
from scheduler_service.core.state.tables import Tables


def set_idle_devices(state: Tables, node: int, idle: Mask) -> None:
    set_or_drop(state.idle_devices, node, idle or None)
    if state.pools is None:  # else cells say where a job goes
        state.kept_idle_groups.stale.add(node)
