"""The jobs with which a job may share devices: its equals, with which it takes turns, and jobs that it outranks, which have no
turns while it is there.
"""

from enum import Flag
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.allocation.bindings import is_entitled
from scheduler_service.core.model import Job, JobClass, Run, RunPhase
from scheduler_service.core.model.sharing import ShareGroup
from scheduler_service.core.model.values import Mask, mask_of
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.slicing.probes import probe_in
from scheduler_service.policies.stages import Where


class Mates(Flag):
    """The kinds of jobs with which a job shares devices."""

    EQUALS = 1
    """They take turns with it."""
    OUTRANKED = 2
    """They take turns with others, or have not begun, and have no turn while the job is there."""


def rank(job: Job) -> tuple[int, int]:
    """Jobs that are equal in this take turns."""
    return job.spec.job_class, job.priority


def outranks(one: Job, other: Job) -> bool:
    """Whether the one may take the place of the other."""
    if other.spec.job_class is not JobClass.BEST_EFFORT:
        return False
    return one.priority > other.priority or (one.spec.job_class is JobClass.TRIAL and one.priority == other.priority)


def outranked_slots(state: State, job: Job) -> NDArray[np.bool_]:
    """A mask over the columns of `state.candidates`: jobs that this one may outrank. Costs little, however many jobs run."""
    c = state.candidates
    used = slice(0, c.used)
    below = c.priority[used] <= job.priority if job.spec.job_class is JobClass.TRIAL else c.priority[used] < job.priority
    return below & (c.job[used] > 0)


def outranked_devices(state: State, job: Job) -> NDArray[np.int64]:
    """For each node, the devices of jobs that this one outranks, alone or in a share group with others: no less than it could
    have of them."""
    c, below = state.candidates, outranked_slots(state, job)
    units = c.unit[: c.used]
    reached = below | ((units < 0) & np.isin(units, units[below]))
    held = np.bincount(c.node[: c.used], np.where(reached, c.demand[2, : c.used], 0), state.free_resources.count + 1)
    return held.astype(np.int64)


class _View(NamedTuple):
    """Parameters of the checks of which runs may share their devices with a job."""

    state: State
    job: Job
    where: Where
    mates: Mates
    changeable: dict[int, bool]
    """Whether each share group, by id, may be changed for the job."""


def users_on(state: State, job: Job, node: int, where: Where, mates: Mates) -> dict[int, list[Run]]:
    """The devices of the node that the job may have or share, with the runs that hold each; idle devices have no users. In a
    virtual cluster, idle devices are in its own cells, or, for a job that takes the turns of others, can be."""
    view, capacity = _View(state, job, where, mates, {}), state.nodes.rows[node].capacity.devices
    refused: Mask = state.faulty_devices.get(node, 0) | state.kept_devices.get(node, 0)
    idle = state.idle_devices.get(node, 0) & ~refused
    users: dict[int, list[Run]] = {i: [] for i in range(capacity) if idle >> i & 1 and _may_have(view, node, 1 << i)}
    for key in sorted(state.runs_on.get(node, ())):
        run = state.runs.rows[key]
        if not run.given or run.is_parked:
            continue
        group = state.share_groups.rows.get(run.group)
        if not _may_change(view, run, group):
            refused |= mask_of(run.devices if group is None else group.devices_on(node))
        elif not _is_mate(view, run, group):
            refused |= mask_of(run.devices)
        for index in run.devices:
            users.setdefault(index, []).append(run)
    return {index: on for index, on in users.items() if not refused >> index & 1}


def may_share(state: State, run: Run, job: Job, where: Where, mates: Mates = Mates.EQUALS) -> bool:
    """Whether the job may share devices with the run."""
    view, group = _View(state, job, where, mates, {}), state.share_groups.rows.get(run.group)
    return _may_change(view, run, group) and _is_mate(view, run, group)


def _may_have(view: _View, node: int, mask: Mask) -> bool:
    """Whether idle devices are the job's to use."""
    state, job, where, mates, _ = view
    if not where.guaranteed or is_entitled(state, job, node, mask):
        return True
    return Mates.OUTRANKED in mates and where.bindings is not None and where.bindings(state, job, node, mask) is not None


def _is_mate(view: _View, run: Run, group: ShareGroup | None) -> bool:
    """Whether the holder is the job's equal, or one that it outranks and that can be without a turn."""
    state, job, _, mates, _ = view
    holder = state.jobs.rows[run.job_id]
    if Mates.EQUALS in mates and rank(holder) == rank(job):
        return True
    return Mates.OUTRANKED in mates and outranks(job, holder) and _can_be_without_turns(run, holder, group)


def _can_be_without_turns(run: Run, holder: Job, group: ShareGroup | None) -> bool:
    """Whether it takes turns with others, or did until it was packed with them: so it can be parked. A job that has not begun
    begins later; the tasks of a gang have a limited time in which they have to."""
    in_turns = group is not None and len(group.members()) > 1
    begins = run.phase is RunPhase.STARTING and not holder.spec.gang
    return begins or (in_turns and run.phase is RunPhase.RUNNING)


def _may_change(view: _View, run: Run, group: ShareGroup | None) -> bool:
    """Whether nothing prevents that the run, and with it its share group, gets other rows."""
    if group is None:
        return _is_settled(view.state, run, view.where)
    known = view.changeable.get(group.id)
    if known is None:
        members = (view.state.runs.rows[key] for key in group.members())
        known = (
            not group.open and _may_end_probe(view, group) and all(_is_settled(view.state, one, view.where) for one in members)
        )
        view.changeable[group.id] = known
    return known


def _may_end_probe(view: _View, group: ShareGroup) -> bool:
    """Whether nothing is being measured in the group, or the job outranks all that it is about."""
    probe = probe_in(view.state, group)
    if probe is None:
        return True
    jobs = (view.state.jobs.rows.get(job_id) for job_id in probe.jobs)
    return Mates.OUTRANKED in view.mates and all(one is None or outranks(view.job, one) for one in jobs)


def _is_settled(state: State, run: Run, where: Where) -> bool:
    holder = state.jobs.rows[run.job_id]
    if not run.phase.preemptible or run.key in state.promised_by or run.guaranteed != where.guaranteed or run.vc != where.vc:
        return False
    if holder.sampling is not None or holder.resize_to or holder.id in state.operation_of:
        return False
    # else its user chose with which jobs it shares; or it is a gang with a task that cannot take turns
    return not holder.spec.shares and all(task.devices for task in holder.launch_spec.tasks())
