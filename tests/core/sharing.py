"""Plans that change share groups, drawn at random, and what must hold of share groups over a history."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from scheduler_service.core.enact import enact
from scheduler_service.core.engine import Proposals
from scheduler_service.core.lifecycle.desired import share_plan
from scheduler_service.core.messages import Action, Launch, Migrate, Order, Place, Plan, Retime, Share, SharePlan, Spot, Unshare
from scheduler_service.core.model import Job, JobState, Run, RunKey, ShareMode
from scheduler_service.core.model.sharing import Row, ShareGroup
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.core.model.values import SECOND, WHOLE, mask_of
from scheduler_service.core.sharing.changes import with_packed, with_sliced, with_weights
from scheduler_service.core.sharing.equations import excess, parked_mib, time_share
from scheduler_service.core.state.queue_keys import is_in_queue
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.slicing.mates import outranks
from scheduler_service.policies.gandiva.slicing.rows import units_of

Pick = Callable[[Sequence[Any]], Any]
"""Takes one of several."""
MEMORY = (64, 64, 256, 1000, 8000, 30_000, 0)
"""MiB that runs may use of each device."""


def sharing_plans(state: State, pick: Pick, attempts: int) -> Proposals:
    """What comes of so many attempts."""
    for _ in range(attempts):
        if (plan := sharing_plan(state, pick)) is not None:
            yield plan


def sharing_plan(state: State, pick: Pick) -> Plan | None:
    """A plan that changes some share group and that would be carried out; None: what came of the draws would be refused."""
    kind = pick((_join, _join, _join, _come, _rearrange, _rearrange, _retime, _unshare, _open))
    action = kind(state, pick)
    if action is None:
        return None
    plan: Plan = (action,)
    with state.supposing():
        refused = enact(state, plan, state.cluster.clock_us)
    return plan if refused is None else None


def _join(state: State, pick: Pick) -> Action | None:
    """A job that waits starts on devices that others hold, or on idle ones as a group that stays open."""
    waiting = [job for job in state.jobs.rows.values() if is_in_queue(job) and job.spec.demand.devices]
    if not waiting or not state.nodes.rows:
        return None
    job = pick(sorted(waiting, key=lambda job: job.id))
    spots = _spots(state, job, pick)
    if spots is None:
        return None
    element = job.elements is not None
    launch = (state.cluster.next_job, 1) if element else (job.id, job.run + 1)
    keys = [RunKey(*launch, rank) for rank in range(len(spots))]
    rows, memory = _with_holders(state, spots, pick)
    own = tuple((key, pick(MEMORY)) for key in keys)
    if rows and pick((True, False)):
        rows = with_packed(rows, pick(range(len(rows))), keys)
    else:
        rows = with_sliced(rows, keys, pick((1, 1, 2, 3)))
    share = Share(rows, (*memory, *own), pick((SECOND, 60 * SECOND)), pick((False, False, True)))
    return Place(job.id, tuple(spots), _guaranteed(state, job, pick), share=share)


def _come(state: State, pick: Pick) -> Action | None:
    """A job that runs is to go to devices that others hold, and takes turns with them. Nobody is to use much memory."""
    rows = state.jobs.rows
    running = [rows[number] for number in sorted(state.active) if rows[number].state is JobState.RUNNING]
    running = [job for job in running if job.spec.demand.devices and job.id not in state.operation_of]
    for job in [pick(running) for _ in range(4)] if running else []:
        spots = _spots(state, job, pick) or []
        holders = {run.job_id for node, devices in spots for index in devices for run in state.holders(node, index)}
        if holders and job.id not in holders:
            keys = [RunKey(job.id, job.next_run, rank) for rank in range(len(spots))]
            shared, memory = _with_holders(state, spots, pick)
            share = Share(with_sliced(shared, keys), tuple((key, MEMORY[0]) for key in [*(key for key, _ in memory), *keys]))
            guaranteed = any(run.guaranteed for run in state.runs_of(job.id))
            return Migrate(job.id, tuple(spots), "", guaranteed, share)
    return None


def _spots(state: State, job: Job, pick: Pick) -> list[Spot] | None:
    """For each task a node, and devices of which nobody else of the launch has any."""
    spec, taken, spots = job.spec.in_configuration(0), dict[int, int](), list[Spot]()
    nodes = sorted(state.nodes.rows)
    for demand in spec.tasks():
        node = pick(nodes)
        devices = [i for i in range(state.nodes.rows[node].capacity.devices) if not taken.get(node, 0) >> i & 1]
        if len(devices) < demand.devices:
            return None
        held = [i for i in devices if state.held_devices.get(node, 0) >> i & 1]
        first = held if pick((True, True, False)) else [i for i in devices if i not in held]
        start = pick(range(max(len(first) - demand.devices, 0) + 1))
        chosen = tuple(sorted((first[start:] + [i for i in devices if i not in first])[: demand.devices]))
        taken[node] = taken.get(node, 0) | mask_of(chosen)
        spots.append(Spot(node, chosen))
    return spots


def _with_holders(state: State, spots: Sequence[Spot], pick: Pick) -> tuple[tuple[Row, ...], tuple[tuple[RunKey, int], ...]]:
    """The rows of all who hold these devices now, and how much memory those may use that had no limit."""
    holders: dict[RunKey, Run] = {}
    for node, devices in spots:
        for index in devices:
            holders |= {run.key: run for run in state.holders(node, index)}
    rows: tuple[Row, ...] = ()
    for number in sorted({run.group for run in holders.values() if run.group}):
        rows += state.share_groups.rows[number].rows
    for job_id in sorted({run.job_id for run in holders.values() if not run.group}):
        keys = [run.key for run in state.runs_of(job_id)]
        rows = with_packed(rows, 0, keys) if rows and pick((True, False, False)) else with_sliced(rows, keys, pick((1, 2)))
    memory = [key for row in rows for key in row.runs if not state.runs.rows[key].device_memory_mib]
    return rows, tuple((key, pick(MEMORY)) for key in dict.fromkeys(memory))


def _guaranteed(state: State, job: Job, pick: Pick) -> bool:
    guarantee = job.spec.guarantee
    return state.pools is not None and (
        guarantee is Guarantee.GUARANTEED or (guarantee is Guarantee.OVERFLOW and pick((0, 1)) > 0)
    )


def _retime(state: State, pick: Pick) -> Action | None:
    """Longer or shorter turns for a group."""
    groups = sorted(state.share_groups.rows)
    return Retime(pick(groups), pick((SECOND, 60 * SECOND, 75 * SECOND, 600 * SECOND)), "for a test") if groups else None


def _rearrange(state: State, pick: Pick) -> Action | None:
    """Other rows, weights or periods for a group, which may come to share nothing; or two groups become one."""
    if not state.share_groups.rows:
        return None
    groups = [state.share_groups.rows[number] for number in sorted(state.share_groups.rows)]
    group = pick(groups)
    rows = group.rows
    if len(groups) > 1 and pick((True, False, False)):
        other = pick([one for one in groups if one is not group])
        rows = (*rows, *other.rows)
    how = pick(("weights", "weights", "together", "apart", "twice"))
    jobs = sorted({key.job_id for row in rows for key in row.runs})
    keys_of = {job: [run.key for run in state.runs_of(job)] for job in jobs}
    if how == "weights":
        rows = with_weights(rows, [pick((1, 2, 5)) for _ in rows])
    elif how == "together":
        rows = (Row(tuple(sorted(key for keys in keys_of.values() for key in keys))),)
    elif how == "apart":
        rows = tuple(Row(tuple(keys_of[job]), pick((1, 2))) for job in jobs)
    else:
        rows = with_sliced(rows, keys_of[pick(jobs)])
    memory = tuple((key, pick(MEMORY)) for key in keys_of[pick(jobs)]) if pick((True, False)) else ()
    return Share(rows, memory, pick((SECOND, 60 * SECOND)), pick((False, group.open)))


def _unshare(state: State, pick: Pick) -> Action | None:
    members = sorted({key.job_id for group in state.share_groups.rows.values() for key in group.members()})
    return Unshare(pick(members)) if members else None


def _open(state: State, pick: Pick) -> Action | None:
    """What runs alone becomes a group that others may join."""
    alone = sorted({key.job_id for key, run in state.runs.rows.items() if not run.group and run.demand.devices})
    return Share((Row(tuple(run.key for run in state.runs_of(pick(alone)))),), open=True) if alone else None


# ---- what must hold ----------------------------------------------------------------------------------------------------


def gives_way(state: State, group: ShareGroup, run: Run, members: Sequence[Run]) -> bool:
    """Whether a member that has turns outranks the run's job, and uses a device of it or of those with whom it is packed."""
    job = state.jobs.rows[run.job_id]
    units = units_of([row for row in group.rows if run.key in row.runs], {member.key: member for member in members})
    mine = {device for unit in units if run.job_id in unit.jobs for device in unit.devices}
    others = [other for other in members if time_share(group.rows, other.key)]
    above = [other for other in others if outranks(state.jobs.rows[other.job_id], job)]
    return any((other.node, index) in mine for other in above for index in other.devices)


def check_sharing(state: State) -> None:
    """The equations hold by the settings under which all groups were made."""
    for group in state.share_groups.rows.values():
        members = [state.runs.rows[key] for key in group.members()]
        memory = {(run.node, i): state.devices.rows[run.node, i].memory_mib for run in members for i in run.devices}
        assert (over := excess(group.rows, members, memory, state.settings)) is None, over
        for run in members:
            assert run.parked_mib == parked_mib(group.rows, run, memory, state.settings)
            assert 0 <= time_share(group.rows, run.key) <= 1
            assert time_share(group.rows, run.key) or gives_way(state, group, run, members), f"run {run.key} starves"
            job = state.jobs.rows[run.job_id]
            assert bool(run.part_ppm) == job.spec.shares, f"run {run.key} has {run.part_ppm} ppm, and its job is {job.spec}"
        for device in memory:
            users = [run for run in members if device in {(run.node, index) for index in run.devices}]
            assert sum(run.part_ppm for run in users) <= WHOLE, f"device {device} is promised more than once"
        for row in group.rows:
            jobs = [state.jobs.rows[key.job_id] for key in row.runs]
            if not state.settings.pack_other_users and any(job.spec.share is ShareMode.PACKED for job in jobs):
                assert len({job.user for job in jobs}) == 1, f"jobs of several users are packed: {jobs}"
        assert sum(Fraction(row.weight, sum(r.weight for r in group.rows)) for row in group.rows) == 1
    for number in state.open_groups.snapshot()[0]:
        group = state.share_groups.rows[number]
        shares = {state.jobs.rows[key.job_id].spec.share for key in group.members()}
        assert group.open, group
        assert shares in ({ShareMode.PACKED}, {ShareMode.SLICED}), group
    for run in state.runs.rows.values():
        parks = run.parking is not None and run.parking.underway
        assert run.group or parks or not run.parked_mib, f"run {run.key} is charged for being parked, and is alone"


class PlansTold:
    """What nodes were told last of share plans."""

    def __init__(self) -> None:
        self.last: dict[RunKey, SharePlan | None] = {}

    def hear(self, orders: Sequence[Order]) -> None:
        for order in orders:
            if isinstance(order.desired, Launch):
                self.last[order.key] = order.desired.share

    def check(self, state: State) -> None:
        """Each run that is not to exit was told of its plan as it is now, or that it has none. One that waits for the run
        before it is told when it begins."""
        for key, run in state.runs.rows.items():
            if not (run.phase.exits_soon or run.awaits):
                wanted = share_plan(state.jobs.rows[run.job_id], run, state.share_groups.rows.get(run.group))
                assert self.last.get(key) == wanted, f"run {key} was told of {self.last.get(key)}, and goes by {wanted}"
