"""Lets a job that asks for a part of a device join others that share one."""

from collections.abc import Callable, Collection
from typing import NamedTuple

from scheduler_service.core.allocation.sharing_checks import residues
from scheduler_service.core.messages import Place, Share, Spot
from scheduler_service.core.model import Job, Run, RunKey, RunPhase
from scheduler_service.core.model.sharing import Row, ShareGroup
from scheduler_service.core.model.values import WHOLE, ZERO, Mask, Vector, add, fits, mask_of, sub, times
from scheduler_service.core.sharing.equations import excess, limit_mib, parked_mib
from scheduler_service.core.sharing.parts import memory_of, part_of, with_one_more
from scheduler_service.core.state.indices.share_groups import open_to
from scheduler_service.core.state.state import State

May = Callable[[int, Mask], bool]
"""Whether the job may have these devices of a node."""


class _Device(NamedTuple):
    """The device of a share group that has one."""

    node: int
    number: int
    memory_mib: int


def join(
    state: State, job: Job, guaranteed: bool = False, may: May = lambda _node, _mask: True, avoid: Collection[int] = ()
) -> Place | None:
    """Let the job, which has one configuration alone, join the share group that has least room for it, on none of the nodes
    `avoid`. None: no group has room. Costs a look at a group that has a part for it; more, where CPUs or memory are short."""
    if not job.spec.shares:
        return None
    among, to = state.suitable_for(job.spec), open_to(state, job, guaranteed)
    for number in state.open_groups.with_room(to, lambda memory: part_of(job.spec, limit_mib(memory, state.settings))):
        group = state.share_groups.rows[number]
        ((node, (index,)),) = group.devices
        if node in avoid or not (state.free_resources.is_open(node) and (among is None or among.bits >> node & 1)):
            continue
        device = _Device(node, index, state.devices.rows[node, index].memory_mib)
        if not may(node, mask_of((index,))) or not _stays(state, group, device):
            continue
        rows = with_one_more(group.rows, job.spec, _next_run(state, job))
        if _has_room(state, job, group, rows, device):
            how = Share(rows, period_us=group.period_us, open=True)
            return Place(job.id, (Spot(node, (index,)),), guaranteed, job.configuration, share=how)
    return None


def why_no_part(state: State, job: Job, guaranteed: bool = False) -> str:
    """For people, of a job that finds no share group to join: what is left of the devices of the groups. Empty: the job asks
    for whole devices."""
    if not job.spec.shares:
        return ""
    mode = job.spec.share.name.lower()
    count, most = state.open_groups.most_room(open_to(state, job, guaranteed))
    if not count:
        return f"no device is shared by {mode} jobs that it may join, and none is idle for it"
    shared = "1 device is" if count == 1 else f"{count} devices are"
    said = f"{shared} shared by {mode} jobs that it may join; the most that is left of one is {most / WHOLE:.3g}"
    if job.spec.gpu_fraction_ppm and most >= job.spec.gpu_fraction_ppm:
        return f"{said}, and there it lacks memory of the device, or CPUs or memory of the node (also for what is parked)"
    return said


def _next_run(state: State, job: Job) -> RunKey:
    """The key of the job's next launch; of an array, that of the element that begins next."""
    return RunKey(job.id, job.next_run) if job.elements is None else RunKey(state.cluster.next_job, 1)


def _stays(state: State, group: ShareGroup, device: _Device) -> bool:
    """Whether the group continues: it is not stopped as a whole, its device is healthy and promised to no other job."""
    if state.faulty_devices.get(device.node, 0) >> device.number & 1:
        return False
    keys = group.members()
    promised = any(key in state.promised_by for key in keys)
    return not promised and not all(state.runs.rows[key].phase.exits_soon for key in keys)


def _has_room(state: State, job: Job, group: ShareGroup, rows: tuple[Row, ...], device: _Device) -> bool:
    """Whether the memory of the device suffices, and what its node has left for the job, and for what is parked there."""
    spec, settings = job.spec, state.settings
    limit = limit_mib(device.memory_mib, settings)
    new = Run(
        *_next_run(state, job)[:2],
        node=device.node,
        devices=(device.number,),
        demand=spec.demand,
        phase=RunPhase.STARTING,
        placed_us=0,
        group=group.id,
        device_memory_mib=memory_of(spec, limit, settings),
    )
    before = [state.runs.rows[key] for key in group.members()]
    memory = {(device.node, device.number): device.memory_mib}
    if excess(rows, [*before, new], memory, settings, residues(state, (device.node,))) is not None:
        return False
    held = needed = ZERO
    for run in before:
        held = add(held, run.charged)
    for run in (*before, new):
        needed = add(needed, Vector(run.demand.cpu_milli, run.demand.memory_mib + parked_mib(rows, run, memory, settings)))
    if not fits(sub(needed, held), state.free_resources.free(device.node)):
        return False
    position = None if state.pools is None else state.pools.positions.get(device.node)
    return position is None or fits(needed, times(position.share, 1))
