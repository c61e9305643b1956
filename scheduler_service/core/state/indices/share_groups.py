"""Indices over share groups: the devices that they hold, and whether as guaranteed; and groups that jobs may join, that is open
ones on one device, of which all members requested a part."""

from scheduler_service.core.model import Job, ShareMode
from scheduler_service.core.model.sharing import ShareGroup
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.core.model.values import WHOLE, Vector, mask_of
from scheduler_service.core.state.indices.nonempty import add_or_discard, count
from scheduler_service.core.state.indices.runs import hold_devices, refresh_candidate, stand_devices
from scheduler_service.core.state.open_groups import OpenTo, Room
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


def update_open_group(state: Tables, number: int) -> None:
    group = state.share_groups.rows.get(number)
    state.kept_open_groups.set_room(number, None if group is None else _room(state, group))


def open_to(state: Tables, job: Job, guaranteed: bool) -> OpenTo:
    """Return which groups the job may join, in cells of its virtual cluster or (False) elsewhere."""
    spec = job.spec
    own = spec.share is ShareMode.PACKED and not state.settings.pack_other_users
    opportunistic = spec.guarantee is Guarantee.OPPORTUNISTIC
    return OpenTo(spec.share, spec.vc, guaranteed, opportunistic, job.user if own else "")


def _room(state: Tables, group: ShareGroup) -> Room | None:
    if not group.open or len(group.devices) != 1 or len(group.devices[0][1]) != 1:
        return None
    runs = [state.runs.rows.get(key) for key in group.members()]
    jobs = [state.jobs.rows.get(key.job_id) for key in group.members()]
    ((node, (index,)),) = group.devices
    device = state.devices.rows.get((node, index))
    used, to = 0, set[OpenTo]()
    for run, job in zip(runs, jobs, strict=True):
        if run is None or job is None or not run.part_ppm or device is None:
            return None  # some run has a whole device, or rows are being put back one by one
        used += run.part_ppm
        to.add(open_to(state, job, group.guaranteed))
    if len(to) != 1 or device is None:
        return None
    return Room(to.pop(), device.memory_mib, max(WHOLE - used, 0))
