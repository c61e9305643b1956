"""The memory that members of a share group may use of each of their devices, so that the memory equation of the group holds."""

from collections.abc import Mapping, Sequence

from scheduler_service.core.allocation.sharing_checks import residues
from scheduler_service.core.model import Job, Run, RunKey
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.sharing.equations import executes_alone, limit_mib, users_of
from scheduler_service.core.state.state import State

_MARGIN = 10
"""A job that was seen to use some memory may use one part in so many more."""


def needed_mib(job: Job, devices: int) -> int:
    """The memory that a job needs of each device by its profile, in MiB; 0: unknown."""
    profile = job.profile
    if profile is None or profile.devices != devices:
        return 0
    return profile.memory_mib + -(-profile.memory_mib // _MARGIN)


def allowances(
    state: State, rows: Sequence[Row], runs: Mapping[RunKey, Run], jobs: Mapping[int, Job], thrifty: bool
) -> tuple[tuple[RunKey, int], ...] | None:
    """Memory limits by run. A run that executes alone may use all that the parked ones leave; if `thrifty`, no more than it
    needs, where that is known: what it may use is kept for it in the memory of its node. A packed run may use what it needs.
    None: it is unknown what a packed run needs, or the devices have no room for so many members."""
    members, found = list(runs.values()), []
    users, others = users_of(members), residues(state, {run.node for run in members})
    most: dict[RunKey, int] = {}
    for device, on in users.items():
        left = limit_mib(state.devices.rows[device].memory_mib, state.settings)
        left -= state.settings.parked_residue_mib * (len(on) - 1) + others.get(device, 0)
        for run in on:
            most[run.key] = min(left, most.get(run.key, left))
    for key in sorted(runs):
        need = needed_mib(jobs[key.job_id], jobs[key.job_id].launch_spec.demand.devices)
        alone = executes_alone(rows, runs[key], members)
        limit = most[key] if alone and not (thrifty and need) else need
        if limit <= 0 or need > most[key]:
            return None
        found.append((key, min(limit, most[key])))
    return tuple(found)
