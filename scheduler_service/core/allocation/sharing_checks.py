"""Checks of share groups: which runs may share devices, and what they need at most. What is refused changes nothing."""

from collections.abc import Collection, Iterable

from scheduler_service.core.allocation.bindings import is_entitled
from scheduler_service.core.errors import PlanRefused, require
from scheduler_service.core.messages import Share
from scheduler_service.core.model import Run, RunKey, ShareMode
from scheduler_service.core.model.sharing import Row, ShareGroup
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.core.model.values import WHOLE, ZERO, Vector, add, fits, mask_of
from scheduler_service.core.sharing.equations import Device, excess, is_exclusive, users_of
from scheduler_service.core.state.state import State


def check_joining(state: State, action: Share, starting: Collection[RunKey]) -> list[Run]:
    """Those of the runs that are to share that exist already; `starting` are about to be placed. Raises PlanRefused for rows
    that no group can have, and for runs that cannot change how they hold their devices now."""
    _check_form(action)
    keys = members_of(action.rows)
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
        require(row.weight >= 0, f"a row has weight {row.weight}")
    require(any(row.weight for row in action.rows), "no row of a share group has a turn")


def _check_may_join(state: State, run: Run, keys: Collection[RunKey]) -> None:
    """A run of a group joins only with the whole group, and not while what it holds is promised to a job."""
    if not run.group:
        require(not run.phase.exits_soon, f"run {run.key} is stopping")
        underway = run.parking is not None and run.parking.underway
        require(not underway, f"run {run.key} is parked, or is being parked or resumed")
        require(run.key not in state.promised_by, f"what run {run.key} holds is promised to another job")
        return
    group = state.share_groups.rows[run.group]
    check_unpromised(state, group)
    left_out = [other for other in group.members() if other not in keys]
    require(not left_out, f"run {run.key} shares devices with run {left_out[:1]}, which is in no row")


def check_unpromised(state: State, group: ShareGroup) -> None:
    promised = [key for key in group.members() if key in state.promised_by]
    require(not promised, f"what share group {group.id} holds is promised to another job by runs {promised}")


def check_group(state: State, group: ShareGroup) -> None:
    members = runs_with(state, group.members())
    for run in members:
        job = state.jobs.rows[run.job_id]
        require(bool(run.demand.devices), f"run {run.key} has no devices to share")
        alike = run.vc == group.vc and run.guaranteed == group.guaranteed
        require(alike, f"run {run.key} is another virtual cluster's, or not guaranteed as others of share group {group.id} are")
        if group.guaranteed:
            wants = job.spec.guarantee is not Guarantee.OPPORTUNISTIC
            require(
                wants and is_entitled(state, job, run.node, mask_of(run.devices)), f"run {run.key} has no right to a device"
            )
        rows = [run.key in row.runs for row in group.rows]
        for task in state.mates_of(run):
            together = [task.key in row.runs for row in group.rows] == rows
            require(together, f"tasks {run.key} and {task.key} of one gang are not in the same rows")
    _check_parts(state, group, members)
    left = {} if is_exclusive(group.rows, members) else residues(state, {run.node for run in members})
    over = excess(group.rows, members, memory_of(state, members), state.settings, left)
    if over is not None:
        node, index = over.device
        raise PlanRefused(
            f"device {index} of node {state.nodes.rows[node].name} would have {over.used_mib} MiB in use of "
            f"{over.limit_mib} MiB that share groups may use"
        )


def _check_parts(state: State, group: ShareGroup, members: list[Run]) -> None:
    """No device is promised in more parts than it has, and packed jobs share it only with jobs of their own user, unless the
    site allows others."""
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
    """Residues of parked runs that are in no share group, by device of these nodes."""
    found: dict[Device, int] = {}
    for node in nodes:
        for run in (state.runs.rows[key] for key in state.runs_on.get(node, ())):
            if run.parking is not None and run.is_parked:
                residue = max(run.parking.residue_mib, state.settings.parked_residue_mib)
                for index in run.placed_on:
                    found[node, index] = found.get((node, index), 0) + residue
    return found


def check_host(state: State, node: int) -> None:
    free = state.free_resources.free(node)
    name = state.nodes.rows[node].name
    require(min(free) >= 0, f"{name} has too little, also for what would be parked there: {free} would be free")


def check_share_of_host(state: State, group: ShareGroup) -> None:
    """Checks, if there are cells, that the members of a share group use no more CPUs and memory than go with its devices: the
    rest goes with devices of others. Each device is checked, with an equal part of the needs of each of its users. So it stays
    true when members leave, and their devices with them."""
    if state.pools is None:
        return
    needed: dict[Device, Vector] = {}
    for (node, index), users in users_of(runs_with(state, group.members())).items():
        for run in users:
            needed[node, index] = add(needed.get((node, index), ZERO), _for_each_device(run))
    for (node, index), total in needed.items():
        position = state.pools.positions.get(node)
        if position is not None:
            carried = position.share._replace(devices=0)
            where = f"device {index} of node {state.nodes.rows[node].name}"
            needs = f"those who would share {where} need {_host(total)} of the node, with what is parked"
            require(fits(total, carried), f"{needs}; {_host(carried)} go with the device")


def _for_each_device(run: Run) -> Vector:
    """CPUs and memory that the run takes for each of its devices."""
    cpu, memory, _ = run.charged
    return Vector(-(-cpu // len(run.devices)), -(-memory // len(run.devices)))


def _host(amount: Vector) -> str:
    return f"{amount.cpu_milli / 1000:g} CPUs and {amount.memory_mib} MiB"


# ---- rows and runs ------------------------------------------------------------------------------------------------------


def members_of(rows: Iterable[Row]) -> list[RunKey]:
    return sorted({key for row in rows for key in row.runs})


def runs_with(state: State, keys: Iterable[RunKey]) -> list[Run]:
    return [state.runs.rows[key] for key in keys]


def memory_of(state: State, members: Iterable[Run]) -> dict[Device, int]:
    rows = state.devices.rows
    return {(run.node, index): rows[run.node, index].memory_mib for run in members for index in run.devices}
