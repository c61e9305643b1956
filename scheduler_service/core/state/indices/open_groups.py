"""Share groups that jobs may join: open ones on one device, of which all members requested a part."""

from scheduler_service.core.model import Job, ShareMode
from scheduler_service.core.model.sharing import ShareGroup
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.core.model.values import WHOLE
from scheduler_service.core.state.open_groups import OpenTo, Room
from scheduler_service.core.state.tables import Tables


def update_open_group(state: Tables, number: int) -> None:
    group = state.share_groups.rows.get(number)
    state.kept_open_groups.set(number, None if group is None else _room(state, group))


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
