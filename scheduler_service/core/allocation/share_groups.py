"""How share groups change: runs come together, a member leaves, and a group that shares nothing any more dissolves.

A change puts rows in this order: members that come in, then the group, then runs that hold their devices alone from now on. So
no device is taken before its holder has left it, and an undo, which goes backwards, keeps to the same rule.
"""

from collections.abc import Collection, Iterable

from scheduler_service.core.allocation.bindings import entitled
from scheduler_service.core.errors import PlanRefused, require
from scheduler_service.core.messages import BeginProbe, EndProbe, Share, Unshare
from scheduler_service.core.model import EventKind, Job, Run, RunKey, RunPhase, ShareMode
from scheduler_service.core.model.rows import changed
from scheduler_service.core.model.sharing import Row, ShareGroup
from scheduler_service.core.model.values import WHOLE, ZERO, Micros, Vector, add, fits, mask_of
from scheduler_service.core.model.virtual_clusters import Guarantee
from scheduler_service.core.sharing.changes import without
from scheduler_service.core.sharing.equations import Device, excess, is_exclusive, parked_mib, users_of
from scheduler_service.core.state.holdings import group_of
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

# ---- actions -----------------------------------------------------------------------------------------------------------


def share(state: State, action: Share, _now: Micros) -> None:
    """Has runs that run already hold their devices together."""
    check_joining(state, action, ())
    arrange(state, action, number_for(state, action))


def unshare(state: State, action: Unshare, _now: Micros) -> None:
    group = group_of(state, action.job_id)
    if group is None:
        raise PlanRefused(f"job {action.job_id} is in no share group")
    keys = {run.key for run in state.runs_of(action.job_id)}
    _check_unpromised(state, group)
    for (node, index), users in users_of(_runs(state, group.members())).items():
        alone = len({run.key in keys for run in users}) == 1
        name = state.nodes.rows[node].name
        require(alone, f"job {action.job_id} uses device {index} of node {name} with others: stop or move one of them")
    set_rows(state, group, without(group.rows, keys))
    if (left := state.share_groups.rows.get(group.id)) is not None:
        _check_share_of_host(state, left)


def have_alone(state: State, job: Job) -> bool:
    """Has the runs of a job, which is not to share any more, hold their devices alone. False, and nothing has changed: others
    are in their share group, or something is under way there."""
    group = group_of(state, job.id)
    runs = state.runs_of(job.id)
    settled = all(run.phase is RunPhase.RUNNING and run.key not in state.promised_by for run in runs)
    if group is None or not settled or any(key.job_id != job.id for key in group.members()):
        return False
    state.put(state.jobs, job.id, job)
    for run in runs:
        state.put(state.runs, run.key, changed(run, part_ppm=0))
    set_rows(state, group, group.rows, stays_open=False)
    return True


def probe(state: State, action: BeginProbe | EndProbe, now: Micros) -> None:
    """A change of rows that is tried, kept or undone, with a line in the stories of those whom it concerns."""
    if action.share is not None:
        share(state, action.share, now)
    for job_id in action.jobs:
        if (job := state.jobs.rows.get(job_id)) is not None:
            log_event(state, now, job_id, EventKind.PROBED, run=job.run, text=action.why)


def number_for(state: State, action: Share) -> int:
    """The id of the group that the action makes: that of the first group of its runs, or a new one."""
    known = (state.runs.rows.get(key) for key in _members(action.rows))
    if groups := {run.group for run in known if run is not None and run.group}:
        return min(groups)
    cluster = state.cluster
    state.put(state.cluster_table, 0, changed(cluster, next_share_group=cluster.next_share_group + 1))
    return cluster.next_share_group


def arrange(state: State, action: Share, number: int) -> None:
    """Makes the group of this number what the action says; its runs are there. Raises PlanRefused where they cannot share."""
    keys = _members(action.rows)
    runs = _runs(state, keys)
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
        _check_group(state, after)
        _check_share_of_host(state, after)
    for node in sorted({run.node for run in runs}):
        _check_host(state, node)


def leave(state: State, run: Run) -> None:
    """The run, a member of a share group, has ended."""
    group = state.share_groups.rows[run.group]
    set_rows(state, group, without(group.rows, {run.key}))


# ---- rows --------------------------------------------------------------------------------------------------------------


def set_rows(
    state: State, group: ShareGroup, rows: tuple[Row, ...], period_us: Micros = 0, stays_open: bool | None = None
) -> None:
    """Gives the group these rows, and brings it and its members up to date: what it holds, what they need while they are
    parked, and whether there is a group at all. `period_us` and `stays_open`: as they were, if they are not given."""
    keys, before = _members(rows), group.members()
    members = _runs(state, keys)
    old = state.share_groups.rows.get(group.id)
    new = changed(
        group,
        rows=rows,
        devices=_devices(members),
        period_us=period_us or group.period_us,
        open=group.open if stays_open is None else stays_open,
    )
    known = old is not None and _plan(old) == _plan(new)
    if old is not None and not known:
        new = changed(new, generation=old.generation + 1)
    stays = bool(keys) and (new.open or not is_exclusive(rows, members))
    if stays:
        memory = _memory(state, members)
        for run in members:
            tell = not known if run.key in before else run.group != group.id
            _put_member(state, run, group.id, parked_mib(rows, run, memory, state.settings), tell)
    _put_group(state, group.id, new if stays else None)
    for key in sorted({*before, *keys}):
        if key in state.runs.rows and (key not in keys or not stays):
            _put_member(state, state.runs.rows[key], 0, 0, tell=True)


def _put_group(state: State, number: int, new: ShareGroup | None) -> None:
    if new != state.share_groups.rows.get(number):
        state.put(state.share_groups, number, new)


def _merge(state: State, other: int, number: int) -> None:
    """The members of another group go over to that of this number, and what the other held is held by nobody for a moment."""
    group = state.share_groups.rows[other]
    for run in _runs(state, group.members()):
        state.put(state.runs, run.key, changed(run, group=number, generation=run.generation + (not run.phase.exits_soon)))
    state.put(state.share_groups, other, None)


def _put_limit(state: State, run: Run, limit: int) -> None:
    """Of a run that shares already, its node has to hear of another limit."""
    if limit != run.device_memory_mib:
        tell = run.group in state.share_groups.rows and not run.phase.exits_soon
        state.put(state.runs, run.key, changed(run, device_memory_mib=limit, generation=run.generation + tell))


def _put_member(state: State, run: Run, group: int, parked: int, tell: bool) -> None:
    """`tell`: its node has to hear of another plan than before. One that is to exit is told nothing more."""
    if not (group or run.group):
        return  # it holds its devices alone as before
    limit = run.device_memory_mib if group else 0
    new = changed(
        run,
        group=group,
        parked_mib=parked,
        device_memory_mib=limit,
        shared=True,
        generation=run.generation + (tell and not run.phase.exits_soon),
    )
    if new != run:
        state.put(state.runs, run.key, new)


def _plan(group: ShareGroup) -> tuple[object, ...]:
    """What agents are told."""
    return group.rows, group.devices, group.period_us


def _members(rows: Iterable[Row]) -> list[RunKey]:
    return sorted({key for row in rows for key in row.runs})


def _runs(state: State, keys: Iterable[RunKey]) -> list[Run]:
    return [state.runs.rows[key] for key in keys]


def _devices(members: Iterable[Run]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    found: dict[int, set[int]] = {}
    for run in members:
        found.setdefault(run.node, set()).update(run.devices)
    return tuple((node, tuple(sorted(found[node]))) for node in sorted(found))


def _memory(state: State, members: Iterable[Run]) -> dict[Device, int]:
    rows = state.devices.rows
    return {(run.node, index): rows[run.node, index].memory_mib for run in members for index in run.devices}


# ---- what may share ----------------------------------------------------------------------------------------------------


def check_joining(state: State, action: Share, starting: Collection[RunKey]) -> list[Run]:
    """The runs that are there already of those that are to share; `starting` are about to be placed. Raises PlanRefused for
    rows that can be no group's, and for runs that cannot change how they hold their devices now."""
    _check_form(action)
    keys = _members(action.rows)
    absent = [key for key in starting if key not in keys]
    require(not absent, f"run {absent[:1]} is to share its devices and is in no row")
    runs = []
    for key in keys:
        run = state.runs.rows.get(key)
        if run is not None:
            _check_may_join(state, run, keys)
            runs.append(run)
        elif key not in starting:
            raise PlanRefused(f"run {key} has ended, or there is none")
    return runs


def _check_form(action: Share) -> None:
    require(bool(action.rows), "a share group has no rows")
    require(action.period_us > 0, f"a share group has a period of {action.period_us} us")
    for row in action.rows:
        require(bool(row.runs), "a row has no runs")
        require(len(set(row.runs)) == len(row.runs), f"a run is twice in a row: {row.runs}")
        require(row.weight > 0, f"a row has weight {row.weight}")


def _check_may_join(state: State, run: Run, keys: Collection[RunKey]) -> None:
    """One that is in a group brings all of that; and nothing is changed of what is promised to somebody."""
    if not run.group:
        require(not run.phase.exits_soon, f"run {run.key} is stopping")
        underway = run.parking is not None and run.parking.underway
        require(not underway, f"run {run.key} is parked, or is being parked or resumed")
        require(run.key not in state.promised_by, f"what run {run.key} holds is promised to another job")
        return
    group = state.share_groups.rows[run.group]
    _check_unpromised(state, group)
    left_out = [other for other in group.members() if other not in keys]
    require(not left_out, f"run {run.key} shares devices with run {left_out[:1]}, which is in no row")


def _check_unpromised(state: State, group: ShareGroup) -> None:
    promised = [key for key in group.members() if key in state.promised_by]
    require(not promised, f"what share group {group.id} holds is promised to another job by runs {promised}")


def _check_group(state: State, group: ShareGroup) -> None:
    members = _runs(state, group.members())
    for run in members:
        job = state.jobs.rows[run.job_id]
        require(bool(run.demand.devices), f"run {run.key} has no devices to share")
        alike = run.vc == group.vc and run.guaranteed == group.guaranteed
        require(alike, f"run {run.key} is another virtual cluster's, or not guaranteed as others of share group {group.id} are")
        if group.guaranteed:
            wants = job.spec.guarantee is not Guarantee.OPPORTUNISTIC
            require(wants and entitled(state, job, run.node, mask_of(run.devices)), f"run {run.key} has no right to a device")
        rows = [run.key in row.runs for row in group.rows]
        for task in state.runs_of(run.job_id):
            together = [task.key in row.runs for row in group.rows] == rows
            require(together, f"tasks {run.key} and {task.key} of one gang are not in the same rows")
    _check_parts(state, group, members)
    left = {} if is_exclusive(group.rows, members) else residues(state, {run.node for run in members})
    over = excess(group.rows, members, _memory(state, members), state.settings, left)
    if over is not None:
        node, index = over.device
        raise PlanRefused(
            f"device {index} of node {state.nodes.rows[node].name} would have {over.used_mib} MiB in use of "
            f"{over.limit_mib} MiB that share groups may use"
        )


def _check_parts(state: State, group: ShareGroup, members: list[Run]) -> None:
    """No device is promised in more parts than it has, and packed jobs have it with jobs of their own user, if the site says
    nothing else."""
    for (node, index), users in users_of(members).items():
        parts = sum(run.part_ppm for run in users)
        require(parts <= WHOLE, f"device {index} of node {state.nodes.rows[node].name} would be promised in {parts} ppm")
    if state.settings.pack_other_users:
        return
    for row in group.rows:
        jobs = [state.jobs.rows[key.job_id] for key in row.runs]
        alone = len({job.user for job in jobs}) == 1 or not any(job.spec.share is ShareMode.PACKED for job in jobs)
        require(alone, f"jobs {[job.id for job in jobs]} of several users would be packed on a device")


def residues(state: State, nodes: Iterable[int]) -> dict[Device, int]:
    """What runs that are parked by their users have left on devices of these nodes."""
    found: dict[Device, int] = {}
    for node in nodes:
        for run in (state.runs.rows[key] for key in state.runs_on[node]):
            if run.parking is not None and run.is_parked:
                residue = max(run.parking.residue_mib, state.settings.parked_residue_mib)
                for index in run.placed_on:
                    found[node, index] = found.get((node, index), 0) + residue
    return found


def _check_host(state: State, node: int) -> None:
    free = state.free_resources.free(node)
    name = state.nodes.rows[node].name
    require(min(free) >= 0, f"{name} has too little, also for what would be parked there: {free} would be free")


def _check_share_of_host(state: State, group: ShareGroup) -> None:
    """Where there are cells, the members of a share group have no more CPUs and memory than go with its devices: what goes with
    other devices is for who gets those. This is so of each device, of which each user has an equal part of what it needs: so it
    stays so when members leave, and their devices with them."""
    if state.pools is None:
        return
    needed: dict[Device, Vector] = {}
    for (node, index), users in users_of(_runs(state, group.members())).items():
        for run in users:
            needed[node, index] = add(needed.get((node, index), ZERO), _for_each_device(run))
    for (node, index), total in needed.items():
        position = state.pools.positions.get(node)
        if position is not None:
            carried = position.share._replace(devices=0)
            where = f"device {index} of node {state.nodes.rows[node].name}"
            require(
                fits(total, carried), f"members of share group {group.id} need {total} with {where}, which carries {carried}"
            )


def _for_each_device(run: Run) -> Vector:
    """What goes with each of its devices of what it takes of its node."""
    cpu, memory, _ = run.charged
    return Vector(-(-cpu // len(run.devices)), -(-memory // len(run.devices)))
