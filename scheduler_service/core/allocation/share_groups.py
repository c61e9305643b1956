"""Changes of share groups: runs join, a member leaves, and a group that shares nothing any more is dissolved.

A change writes rows in this order: members that join, then the group, then runs that hold their devices alone from now on. So
no device is taken before its holder has left it, and an undo, which goes backwards, follows the same rule.

Deadlines of members that take turns move as the turns change: that by which the tasks of a gang must start, since each node
starts its task in the turn of the gang, which may be a whole cycle away; and the time limit, which counts the time in which a
job may compute.
"""

from collections.abc import Iterable

from scheduler_service.core.allocation.sharing_checks import (
    check_group,
    check_host,
    check_joining,
    check_share_of_host,
    check_unpromised,
    members_of,
    memory_of,
    runs_with,
)
from scheduler_service.core.errors import PlanRefused, require
from scheduler_service.core.messages import BeginProbe, EndProbe, Retime, Share, Unshare
from scheduler_service.core.model import EventKind, Job, Run, RunPhase
from scheduler_service.core.model.launch_time import limit_at, part_of, with_part
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.sharing import Row, ShareGroup, parts_of
from scheduler_service.core.model.values import WHOLE, Micros
from scheduler_service.core.sharing.changes import with_idle_turns, without_runs
from scheduler_service.core.sharing.equations import is_exclusive, parked_mib, users_of
from scheduler_service.core.state.holdings import group_of
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

# ---- actions -----------------------------------------------------------------------------------------------------------


def share(state: State, action: Share, _now: Micros) -> None:
    """Puts runs that are running already into one share group."""
    check_joining(state, action, ())
    arrange(state, action, number_for(state, action))


def unshare(state: State, action: Unshare, _now: Micros) -> None:
    group = group_of(state, action.job_id)
    if group is None:
        raise PlanRefused(f"job {action.job_id} is in no share group")
    keys = {run.key for run in state.runs_of(action.job_id)}
    check_unpromised(state, group)
    for (node, index), users in users_of(runs_with(state, group.members())).items():
        alone = len({run.key in keys for run in users}) == 1
        name = state.nodes.rows[node].name
        require(alone, f"job {action.job_id} uses device {index} of node {name} with others: stop or move one of them")
    set_rows(state, group, without_runs(group.rows, keys))
    if (left := state.share_groups.rows.get(group.id)) is not None:
        check_share_of_host(state, left)


def have_alone(state: State, job: Job) -> bool:
    """Makes the runs of a job that is no longer to share hold their devices alone. False, with nothing changed: others are in
    their share group, or something is under way there."""
    group = group_of(state, job.id)
    runs = state.runs_of(job.id)
    settled = all(run.phase is RunPhase.RUNNING and run.key not in state.promised_by for run in runs)
    if group is None or not settled or any(key.job_id != job.id for key in group.members()):
        return False
    state.put(state.jobs, job.id, job)
    for run in runs:
        state.put(state.runs, run.key, with_changes(run, part_ppm=0))
    set_rows(state, group, group.rows, stays_open=False)
    return True


def retime(state: State, action: Retime, now: Micros) -> None:
    """Changes the length of a group's cycles, with a line in the stories of its members."""
    group = state.share_groups.rows.get(action.group)
    if group is None:
        raise PlanRefused(f"there is no share group {action.group}")
    require(action.period_us > 0, f"a share group has a period of {action.period_us} us")
    check_unpromised(state, group)
    set_rows(state, group, group.rows, period_us=action.period_us)
    for job_id in sorted({key.job_id for key in group.members()}):
        log_event(state, now, job_id, EventKind.RETIMED, run=state.jobs.rows[job_id].run, text=action.why)


def probe(state: State, action: BeginProbe | EndProbe, now: Micros) -> None:
    """Tries, keeps or undoes a change of rows, with a line in the stories of the jobs that it concerns."""
    if action.share is not None:
        share(state, action.share, now)
    for job_id in action.jobs:
        if (job := state.jobs.rows.get(job_id)) is not None:
            log_event(state, now, job_id, EventKind.PROBED, run=job.run, text=action.why)


def number_for(state: State, action: Share) -> int:
    """The id of the group that the action makes: the lowest of its runs' groups, or a new one."""
    known = (state.runs.rows.get(key) for key in members_of(action.rows))
    if groups := {run.group for run in known if run is not None and run.group}:
        return min(groups)
    cluster = state.cluster
    state.put(state.cluster_table, 0, with_changes(cluster, next_share_group=cluster.next_share_group + 1))
    return cluster.next_share_group


def arrange(state: State, action: Share, number: int) -> None:
    """Makes the group of this number what the action says; its runs exist. Raises PlanRefused if they cannot share."""
    keys = members_of(action.rows)
    runs = runs_with(state, keys)
    for other in sorted({run.group for run in runs if run.group not in (0, number)}):
        _merge(state, other, number)
    limits = dict(action.device_memory_mib)
    for key, limit in limits.items():
        require(key in keys, f"run {key} is given device memory and is in no row")
        require(limit >= 0, f"run {key} is given {limit} MiB of device memory")
        _put_limit(state, state.runs.rows[key], limit)
    first = runs[0]
    before = state.share_groups.rows.get(number)
    group = before or ShareGroup(number, (), (), vc=first.vc, guaranteed=first.guaranteed)
    rows = tuple(Row(tuple(sorted(row.runs)), row.weight) for row in action.rows)
    set_rows(state, group, rows, period_us=action.period_us, stays_open=action.open)
    after = state.share_groups.rows.get(number)
    if after is not None:
        check_group(state, after)
        check_share_of_host(state, after)
    for node in sorted({run.node for run in runs}):
        check_host(state, node)


def leave(state: State, run: Run) -> None:
    """Removes a run that has ended from its share group."""
    group = state.share_groups.rows[run.group]
    left = without_runs(group.rows, {run.key})
    left = with_idle_turns(left, runs_with(state, members_of(left)))
    if not state.vc_orders.get(group.vc, state.site_order).rearranges:  # no policy looks at the rows again
        left = tuple(row._replace(weight=row.weight or 1) for row in left)
    set_rows(state, group, left)


# ---- rows --------------------------------------------------------------------------------------------------------------


def set_rows(
    state: State, group: ShareGroup, rows: tuple[Row, ...], period_us: Micros = 0, stays_open: bool | None = None
) -> None:
    """Gives the group these rows, and brings it and its members up to date: what it holds, what they need while they are
    parked, and whether there still is a group. `period_us` and `stays_open` stay as they were unless they are given."""
    keys, before = members_of(rows), group.members()
    members = runs_with(state, keys)
    old = state.share_groups.rows.get(group.id)
    new = with_changes(
        group,
        rows=rows,
        devices=_devices(members),
        period_us=period_us or group.period_us,
        open=group.open if stays_open is None else stays_open,
    )
    known = old is not None and _plan(old) == _plan(new)
    if old is not None and not known:
        new = with_changes(new, generation=old.generation + 1)
    stays = bool(keys) and (new.open or not is_exclusive(rows, members))
    others = [run for key in before if key not in keys and (run := state.runs.rows.get(key)) is not None]
    parts = parts_of(rows) if stays else {}
    retimed = {run.job_id for run in (*members, *others) if part_of(run) != parts.get(run.key, WHOLE)}
    if stays:
        memory = memory_of(state, members)
        for run in members:
            tell = not known if run.key in before else run.group != group.id
            parked = parked_mib(rows, run, memory, state.settings)
            _put_member(state, run, group.id, parked, tell, parts[run.key])
    _put_group(state, group.id, new if stays else None)
    if stays and not known:
        extend_start_deadlines(state, new)
    for key in sorted({*before, *keys}):
        if key in state.runs.rows and (key not in keys or not stays):
            _put_member(state, state.runs.rows[key], 0, 0, tell=True, part=WHOLE)
    if retimed:
        move_limits(state, state.cluster.clock_us, retimed)


def _put_group(state: State, number: int, new: ShareGroup | None) -> None:
    if new != state.share_groups.rows.get(number):
        state.put(state.share_groups, number, new)


def _merge(state: State, other: int, number: int) -> None:
    """Moves the members of another group to the one of this number. What the other held is held by no group for a moment."""
    group = state.share_groups.rows[other]
    for run in runs_with(state, group.members()):
        state.put(state.runs, run.key, with_changes(run, group=number, generation=run.generation + (not run.phase.exits_soon)))
    state.put(state.share_groups, other, None)


def _put_limit(state: State, run: Run, limit: int) -> None:
    """Sets the device memory limit of a run. If the run shares already, its node has to be told."""
    if limit != run.device_memory_mib:
        tell = run.group in state.share_groups.rows and not run.phase.exits_soon
        state.put(state.runs, run.key, with_changes(run, device_memory_mib=limit, generation=run.generation + tell))


def _put_member(state: State, run: Run, group: int, parked: int, tell: bool, part: int) -> None:
    """Updates a member of a group. `tell`: its node has to learn of a new plan, unless the run is to exit. `part`: the part of
    the time in which it may compute."""
    if not (group or run.group):
        return  # it holds its devices alone as before
    limit = run.device_memory_mib if group else 0
    new = with_changes(
        run,
        group=group,
        parked_mib=parked,
        device_memory_mib=limit,
        shared=True,
        generation=run.generation + (tell and not run.phase.exits_soon),
        turns=with_part(run, part, state.cluster.clock_us),
    )
    if new != run:
        state.put(state.runs, run.key, new)


def _plan(group: ShareGroup) -> tuple[object, ...]:
    """The parts of a group that agents are told."""
    return group.rows, group.devices, group.period_us


def _devices(members: Iterable[Run]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    found: dict[int, set[int]] = {}
    for run in members:
        found.setdefault(run.node, set()).update(run.devices)
    return tuple((node, tuple(sorted(found[node]))) for node in sorted(found))


def count_turns(state: State) -> None:
    """Sets the parts of the time of members whose rows were written by an older version."""
    for group in sorted(state.share_groups.rows.values(), key=lambda row: row.id):
        parts = parts_of(group.rows)
        for run in runs_with(state, group.members()):
            if (turns := with_part(run, parts[run.key], state.cluster.clock_us)) != run.turns:
                state.put(state.runs, run.key, with_changes(run, turns=turns))
                move_limits(state, state.cluster.clock_us, (run.job_id,))


# ---- deadlines of members that take turns --------------------------------------------------------------------------------


def starts_in_turn(state: State, now: Micros, job: Job, group: int) -> Job:
    """The job, whose tasks are all ready and in this share group (0: none), with one more cycle of turns to start in. Its
    deadline stays if it takes no turns, or if all of its tasks have started."""
    holder = state.share_groups.rows.get(group)
    if holder is None or not holder.cycle_us or job.start_by_us is None:
        return job
    return with_changes(job, start_by_us=max(job.start_by_us, now + state.settings.gang_start_us + holder.cycle_us))


def extend_start_deadlines(state: State, group: ShareGroup) -> None:
    """Extends start deadlines after the turns of a group have changed: gangs yet to start get a cycle of the new turns."""
    for job_id in sorted({key.job_id for key in group.members()}):
        job = state.jobs.rows[job_id]
        if job.start_by_us is not None and job.rendezvous:
            state.put(state.jobs, job_id, starts_in_turn(state, state.cluster.clock_us, job, group.id))


def move_limits(state: State, now: Micros, jobs: Iterable[int]) -> None:
    """Moves the time limits of jobs for which another part of the time counts from now on."""
    for job_id in sorted(jobs):
        job = state.jobs.rows[job_id]
        if not job.time_limit_us:
            continue
        runs = state.runs_of(job_id)
        stopped = any(run.phase.exits_soon for run in runs)
        limit = None if stopped else limit_at(job, runs, now)
        if limit != job.limit_us:
            state.put(state.jobs, job_id, with_changes(job, limit_us=limit))
