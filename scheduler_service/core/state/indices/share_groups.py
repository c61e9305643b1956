"""Indices over share groups: the devices that they hold, and whether as guaranteed."""

from scheduler_service.core.model.sharing import ShareGroup
from scheduler_service.core.model.values import Vector, mask_of
from scheduler_service.core.state.indices.nonempty import add_or_discard, count
from scheduler_service.core.state.indices.runs import hold_devices, refresh_candidate, stand_devices
from scheduler_service.core.state.tables import Tables


def of_share_group(state: Tables, old: ShareGroup | None, new: ShareGroup | None) -> None:
    if old is not None:
        _hold(state, old, False)
    if new is not None:
        _hold(state, new, True)
    for group in (old, new):
        for key in () if group is None else group.members():
            refresh_candidate(state, key)
        if state.introspects and group is not None:
            state.pending.nodes.update(node for node, _ in group.devices)
    if row := new or old:
        state.stale_open_groups[row.id] = None
    state.pending.policies = True


def _hold(state: Tables, group: ShareGroup, holds: bool) -> None:
    for node, devices in group.devices:
        mask = mask_of(devices)
        faulty = hold_devices(state, node, mask, holds)
        taken = Vector(devices=(mask & ~faulty).bit_count())
        (state.free_resources.take if holds else state.free_resources.give)(node, taken)
        add_or_discard(state.groups_on, node, group.id, holds)
        if state.pools is not None:
            stand_devices(state, node, mask, holds and group.guaranteed)
            if not group.guaranteed:
                count(state.opportunistic, group.vc, len(devices) if holds else -len(devices))
