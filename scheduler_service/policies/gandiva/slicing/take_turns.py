"""A job that has no room starts all the same, and takes turns with others on their devices (Gandiva, Algorithm 1, line 12).

It goes to the server with the lowest load, first among those of its affinity. A job that outranks others who take turns has
these turns: the others stay parked, in rows without turns, until it leaves. Else jobs take turns only with their equals: no job
is parked so that one of lower priority, or a best-effort job instead of a trial, executes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from scheduler_service.core.allocation.bindings import owns_devices
from scheduler_service.core.enact import enact
from scheduler_service.core.messages import Action, Place, Plan, Share, Spot
from scheduler_service.core.model import Job, Run, RunKey, RunPhase
from scheduler_service.core.model.rows import make_row
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.values import SECOND, ZERO, add, fits, mask_of
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.slicing.candidate_servers import servers_by_load
from scheduler_service.policies.gandiva.slicing.device_memory import allowances
from scheduler_service.policies.gandiva.slicing.mates import Mates, outranks, users_on
from scheduler_service.policies.gandiva.slicing.probes import end_undecided, probe_in
from scheduler_service.policies.gandiva.slicing.rows import Unit, ranked_rows, rows_needed, split_units, unit_of, units_of
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.gandiva.slicing.switching_cost import cost_of, longest_us, period_for
from scheduler_service.policies.stages import Where


def take_turns(state: State, job: Job, where: Where, settings: Settings, mates: Mates) -> Plan | None:
    """The plan by which a job without room shares devices with these mates. None: it can share with none."""
    plans = (_plan_sliced(state, one, where, settings, mates) for one in _ways(job))
    return next((plan for plan in plans if plan is not None), None)


def rows_of(units: Sequence[Unit], jobs: Mapping[int, Job]) -> tuple[Row, ...]:
    """The rows of these units, by who outranks whom."""
    return ranked_rows(units, lambda one, other: outranks(jobs[one.jobs[0]], jobs[other.jobs[0]]))


def _ways(job: Job) -> list[Job]:
    """The job in those of its configurations in which it can take turns: each task has devices, and its user does not say with
    whom it shares."""
    ways = () if job.spec.shares else job.in_each_configuration()
    return [one for one in ways if all(task.devices for task in one.spec.tasks())]


def why_no_turn(state: State, job: Job, where: Where, settings: Settings) -> str:
    """For people: why a queued job does not take turns with others. Empty for a job that never does."""
    ways = _ways(job)
    nodes = [(one, node) for one in ways for node in servers_by_load(state, one, where, settings)]
    if not ways:
        return ""
    if not nodes:
        asked = f"{settings.oversubscription:g} times the devices that it has"
        return f"on no server can it take turns: each lacks CPUs or memory, or its jobs ask for {asked} (oversubscription)"
    could = [(one, spots) for one, node in nodes if (spots := _spots(state, one, [node], where)) is not None]
    if not could:
        who = "nobody of its class and priority has so many devices"
        return f"it does not take turns: {who}, or those who have are being measured (packing)"
    refused = next((why for one, spots in could if (why := _why_refused(state, one, spots, where, settings))), "")
    if not refused:
        refused = f"there would be more than {settings.rows} rows, or the devices have no memory left for one more job"
    return f"it cannot take turns: {refused}"


def _why_refused(state: State, job: Job, spots: tuple[Spot, ...], where: Where, settings: Settings) -> str:
    """Why the core does not let the job take turns there. Empty: no rows could be made for it."""
    why = ""
    for share in shares_with(state, job, spots, holders(state, spots), settings):
        with state.supposing():
            plan = (Place(job.id, spots, where.guaranteed, job.configuration, "", share),)
            why = enact(state, plan, state.cluster.clock_us) or ""
    return why


def would_do(state: State, plan: Plan) -> bool:
    """Whether the plan would be carried out."""
    with state.supposing():
        return enact(state, plan, state.cluster.clock_us) is None


def _plan_sliced(state: State, job: Job, where: Where, settings: Settings, mates: Mates) -> Plan | None:
    nodes = list(servers_by_load(state, job, where, settings, mates))
    for few in [[node] for node in nodes] + ([nodes] if job.spec.gang else []):
        spots = _spots(state, job, few, where, mates)
        plan = None if spots is None else _plan(state, job, spots, where, settings)
        if plan is not None:
            return plan
    return None


def _spots(state: State, job: Job, nodes: Sequence[int], where: Where, mates: Mates = Mates.EQUALS) -> tuple[Spot, ...] | None:
    """For each task devices with few users, those of one holder together. None: these servers have too few devices."""
    tasks = job.spec.tasks()
    spots: list[Spot] = []
    for node in nodes:
        users, taken = users_on(state, job, node, where, mates), ZERO
        left = sorted(users, key=lambda index: (len(users[index]), _holder(users[index]), index))
        free = state.free_resources.free(node)
        while len(spots) < len(tasks):
            need = tasks[len(spots)]
            more = add(taken, need)
            if len(left) < need.devices or not fits(more._replace(devices=0), free):
                break
            spots.append(Spot(node, tuple(sorted(left[: need.devices]))))
            taken, left = more, left[need.devices :]
    return tuple(spots) if len(spots) == len(tasks) else None


def _holder(users: Sequence[Run]) -> tuple[int, RunKey]:
    return (users[0].group, users[0].key) if users else (0, RunKey(0, 0))


def _plan(state: State, job: Job, spots: tuple[Spot, ...], where: Where, settings: Settings) -> Plan | None:
    """The plan that gives the job a row of its own, next to all that share devices with these. None: they cannot share."""
    others = holders(state, spots)
    before = _binds(state, job, spots, where)
    if before is None:
        return None
    before += _ended_probes(state, job, others)
    for share in shares_with(state, job, spots, others, settings):
        why = _why_turns(state, spots, others, share, settings)
        plan: Plan = (*before, Place(job.id, spots, where.guaranteed, job.configuration, why, share))
        if would_do(state, plan):
            return plan
    return None


def _binds(state: State, job: Job, spots: Sequence[Spot], where: Where) -> tuple[Action, ...] | None:
    """The cells that are bound around idle devices of these, for a guaranteed job. None: it has no right to them."""
    found: tuple[Action, ...] = ()
    for node in sorted({spot.node for spot in spots}) if where.guaranteed and where.bindings is not None else ():
        mask = state.idle_devices.get(node, 0) & mask_of(tuple(i for spot in spots if spot.node == node for i in spot.devices))
        if mask and not owns_devices(state, job, node, mask):
            assert where.bindings is not None
            binds = where.bindings(state, job, node, mask)
            if binds is None:
                return None
            found += binds
    return found


def _ended_probes(state: State, job: Job, others: Sequence[Run]) -> tuple[Action, ...]:
    """Ends what is being measured in the share groups that the job changes."""
    found: tuple[Action, ...] = ()
    for number in sorted({run.group for run in others if run.group}):
        group = state.share_groups.rows[number]
        if (probe := probe_in(state, group)) is not None:
            found += end_undecided(group, probe, f"packing ends undecided: job {job.id} outranks those that were packed")
    return found


class Joined(NamedTuple):
    """A launch, and the runs that hold the devices where it would start."""

    units: list[Unit]
    """The units of the holders."""
    own: Unit
    """The launch."""
    runs: dict[RunKey, Run]
    """The runs of all of them."""
    jobs: dict[int, Job]


def join_launch(state: State, job: Job, spots: Sequence[Spot], others: Sequence[Run]) -> Joined:
    """The next launch of the job there, together with these runs, which hold the devices of the spots."""
    own = _starting(state, job, spots)
    groups = {run.group for run in others if run.group}
    runs = {run.key: run for run in [*own, *others]}
    units = units_of([row for number in sorted(groups) for row in state.share_groups.rows[number].rows], runs)
    for number in sorted(groups):
        if (probe := probe_in(state, state.share_groups.rows[number])) is not None:
            units = split_units(units, probe.parts, runs)
    alone = dict.fromkeys(run.job_id for run in others if not run.group)
    units += [unit_of(state.runs_of(job_id)) for job_id in alone]
    jobs = {other.job_id: state.jobs.rows[other.job_id] for other in others} | {own[0].job_id: job}
    return Joined(units, unit_of(own), runs, jobs)


def shares_with(state: State, job: Job, spots: Sequence[Spot], others: Sequence[Run], settings: Settings) -> Iterator[Share]:
    """The shares that the next launch of the job could have with these runs, which hold the devices of the spots: with generous
    limits of memory first, then with tight ones."""
    there = join_launch(state, job, spots, others)
    return shares_of(state, there, [*there.units, there.own], settings)


def shares_of(state: State, there: Joined, units: Sequence[Unit], settings: Settings) -> Iterator[Share]:
    """The shares that all of them could have, if these are the units that take turns."""
    rows = rows_of(units, there.jobs)
    with_turns = {key for row in rows if row.weight for key in row.runs}
    if rows_needed(unit for unit in units if unit.runs[0] in with_turns) > settings.rows:
        return
    groups = {run.group for run in there.runs.values() if run.group}
    present = max((state.share_groups.rows[number].period_us for number in groups), default=settings.period_us)
    period = period_for(cost_of(rows, there.runs, state.switching.rows, longest_us(settings)), present, settings)
    for thrifty in (False, True):
        limits = allowances(state, rows, there.runs, there.jobs, thrifty)
        if limits is None:
            return
        yield Share(rows, limits, period)


def _starting(state: State, job: Job, spots: Sequence[Spot]) -> list[Run]:
    """The runs that the launch will have."""
    job_id, number = (state.cluster.next_job, 1) if job.elements is not None else (job.id, job.next_run)
    at = {"job_id": job_id, "run": number, "phase": RunPhase.STARTING, "placed_us": 0}
    tasks = job.spec.tasks()
    return [
        make_row(Run, node=spot.node, devices=spot.devices, demand=tasks[rank], task=rank, **at)  # type: ignore[arg-type]
        for rank, spot in enumerate(spots)
    ]


def holders(state: State, spots: Sequence[Spot]) -> list[Run]:
    """All runs that hold a device of these, with all of their gangs and share groups; in order. Parked runs hold none."""
    found: dict[RunKey, Run] = {}
    for node, devices in spots:
        mask = mask_of(devices)
        for key in state.runs_on.get(node, ()):
            run = state.runs.rows[key]
            if key in found or not (run.given and mask & mask_of(run.devices)):
                continue
            group = state.share_groups.rows.get(run.group)
            keys = [task.key for task in state.runs_of(run.job_id)] if group is None else group.members()
            found |= {other: state.runs.rows[other] for other in keys}
    return [found[key] for key in sorted(found)]


def _why_turns(state: State, spots: Sequence[Spot], others: Sequence[Run], share: Share, settings: Settings) -> str:
    """For the story."""
    node, devices = spots[0]
    number = ", ".join(map(str, devices))
    jobs = sorted({run.job_id for run in others})
    names = ", ".join(map(str, jobs[:8])) + (f" and {len(jobs) - 8} others" if len(jobs) > 8 else "")
    plural = "devices" if len(devices) > 1 else "device"
    if not all(row.weight for row in share.rows):
        on = f"on {plural} {number} of {state.nodes.rows[node].name}"
        return f"it takes turns {on}, and those have none meanwhile that it outranks of jobs {names}"
    turns = f"{len(share.rows)} rows"
    if share.period_us > settings.period_us:
        turns += f", {share.period_us / SECOND:g} s a cycle because of what switching takes"
    return (
        f"time-sliced: overload, no server has {sum(len(spot.devices) for spot in spots)} idle; takes turns with job {names} "
        f"on {plural} {number} of {state.nodes.rows[node].name} ({turns})"
    )
