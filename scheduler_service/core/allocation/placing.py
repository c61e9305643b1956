"""Launches: a job's tasks take what the policy proposes, or the plan is refused. An array's next element becomes a job."""

from typing import Any

from scheduler_service.core.allocation import vacating
from scheduler_service.core.allocation.bindings import give_back, is_entitled, suffices
from scheduler_service.core.allocation.earmarks import drop_earmarks
from scheduler_service.core.allocation.share_groups import arrange, number_for
from scheduler_service.core.allocation.sharing_checks import check_joining
from scheduler_service.core.errors import PlanRefused, require
from scheduler_service.core.messages import Place, Share, Spot
from scheduler_service.core.model import Earmark, EventKind, Job, JobState, Reason, Run, RunKey, RunPhase, ShareMode
from scheduler_service.core.model.configurations import chosen_configuration
from scheduler_service.core.model.rows import make_row, with_changes
from scheduler_service.core.model.values import WHOLE, Micros, Vector, fits, mask_of
from scheduler_service.core.sharing.equations import limit_mib
from scheduler_service.core.sharing.parts import first_row, memory_of, part_of
from scheduler_service.core.state.queue_keys import is_in_queue, startable
from scheduler_service.core.state.resources.suitable_nodes import Suitable
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

_STARTING, _STARTS = JobState.STARTING, RunPhase.STARTING
_NONE, _PLACED = Reason.NONE, EventKind.PLACED


def place(state: State, action: Place, now: Micros) -> None:
    job = state.jobs.rows.get(action.job_id)
    if job is None or not is_in_queue(job):
        raise PlanRefused(f"job {action.job_id} does not stand in a queue")
    if action.configuration > len(job.spec.alternatives):
        raise PlanRefused(f"job {job.id} has no configuration {action.configuration}")
    spec = job.spec.in_configuration(action.configuration) if job.spec.alternatives else job.spec
    if state.pools is None and (among := state.suitable_for(spec)) is not None:
        _check_suitable(state, job, action, among)
    for spot in action.spots:
        if not state.free_resources.is_open(spot.node):
            raise PlanRefused(f"node {spot.node} is not open")
    earmarks: list[Earmark] = []
    if job.id in state.earmarks_of:
        earmarks = list(map(state.earmarks.rows.__getitem__, state.earmarks_of[job.id]))  # so that placing makes no closure
        text = f"it starts on {_names(state, action)}"
        drop_earmarks(state, now, job.id, text, {spot.node for spot in action.spots})
    if job.elements is not None:
        job = _next_element(state, now, job)
    if action.beyond:
        _check_beyond(job, action)
        spec = spec.with_tasks(spec.gang[0].size + action.beyond)
    tasks = spec.tasks()
    if len(tasks) != len(action.spots):
        raise PlanRefused(f"job {job.id} has {len(tasks)} tasks, and not {len(action.spots)}")
    is_gang = bool(spec.gang)
    run = job.next_run
    placed = with_changes(
        job.with_tasks(len(tasks)) if action.beyond else job,
        beyond=action.beyond,
        state=_STARTING,
        reason=_NONE,
        detail="",
        cause_job=0,
        run=run,
        start_by_us=now + state.settings.gang_start_us if is_gang else None,
        rendezvous="",
        task_nodes=tuple(spot.node for spot in action.spots) if is_gang else (),
        configuration=action.configuration,
        sampling=action.sample,
    )
    state.put(state.jobs, job.id, placed)
    how = action.share
    if how is None and spec.share is not ShareMode.EXCLUSIVE:
        how = Share((first_row(spec, RunKey(job.id, run)),), open=True)  # others may join the first member
    if how is not None:
        start_sharing(state, now, placed, action.spots, action.guaranteed, how)
    else:
        guaranteed = len(tasks) - action.beyond if action.guaranteed else 0
        for rank, spot in enumerate(action.spots):
            start_task(state, now, placed, rank, spot, tasks[rank], rank < guaranteed)
    if state.vacating_of:
        vacating.note_placed(state, now, placed)
    for earmark in earmarks:
        if earmark.devices:
            give_back(state, earmark.node, earmark.mask)
    text = _launch_text(state, job, action) if is_gang or job.spec.alternatives or action.share is not None else ""
    if how is not None and spec.shares:
        text = _told_of_part(state, placed)
    log_event(state, now, job.id, _PLACED, run=run, node=action.spots[0].node, text=text)


def _check_beyond(job: Job, action: Place) -> None:
    """Raises PlanRefused for a job that cannot have tasks beyond its guarantee."""
    require(job.spec.elastic and job.elements is None, f"job {job.id} is not elastic: all of its tasks are guaranteed, or none")
    tasks, most = job.spec.gang[0].size + action.beyond, job.spec.max_tasks
    require(tasks <= most, f"job {job.id} has {most} tasks at most, and not {tasks}")
    apart = action.guaranteed and action.share is None and not job.spec.shares
    require(apart, f"job {job.id} would be opportunistic, or share devices, and has no tasks beyond its guarantee")


def _launch_text(state: State, job: Job, action: Place) -> str:
    """Text of the story for the launch of a gang, or of a job that has several configurations."""
    sample = "sample of " if action.sample else ""
    parts = [sample + chosen_configuration(action.configuration, action.why)] if job.spec.alternatives else []
    if len(action.spots) > 1 or not (parts or action.share):
        parts.append(f"on {_names(state, action)}")
    if action.share is not None and action.why:
        parts.append(action.why)
    return ", ".join(parts)


def _told_of_part(state: State, job: Job) -> str:
    """Text of the story for a job that shares a device."""
    (run,) = state.runs_of(job.id)
    group = state.share_groups.rows.get(run.group)  # a group that shares nothing is dissolved, unless it is open
    members = () if group is None else group.members()
    others = ", ".join(str(key.job_id) for key in members if key != run.key)
    part = f"{run.part_ppm / WHOLE:.3g} of device {run.devices[0]}, {job.spec.share.name.lower()}"
    return f"{part}, with {'jobs' if ',' in others else 'job'} {others}" if others else part


def _check_suitable(state: State, job: Job, action: Place, among: Suitable) -> None:
    """Raises PlanRefused for a node that the job does not ask for. A node on which something is kept for it in this
    configuration was suitable when it was chosen."""
    earmarks = (state.earmarks.rows[earmark] for earmark in state.earmarks_of.get(job.id, ()))
    kept = {earmark.node for earmark in earmarks if earmark.configuration == action.configuration}
    for spot in action.spots:
        if not among.bits >> spot.node & 1 and spot.node not in kept:
            raise PlanRefused(f"node {spot.node} is none of those that job {job.id} asks for")


def _names(state: State, action: Place) -> str:
    return ", ".join(dict.fromkeys(state.nodes.rows[spot.node].name for spot in action.spots))


def start_task(
    state: State, now: Micros, job: Job, rank: int, spot: Spot, demand: Vector, guaranteed: bool, awaits: bool = False
) -> None:
    """Gives a task its place. `awaits`: it begins once the job's run at another node has ended. Raises PlanRefused."""
    node, devices = spot
    if not fits(demand, state.free_resources.free(node)):
        raise PlanRefused(f"job {job.id} does not fit on {state.nodes.rows[node].name}")
    if not (devices or state.host is None or fits(demand, state.host.free(node))):
        raise PlanRefused(f"job {job.id} does not fit on {state.nodes.rows[node].name} beside what goes with its devices")
    mask = mask_of(devices)
    if mask.bit_count() != len(devices) or not suffices(state, node, demand, devices):
        raise PlanRefused(f"job {job.id}: wrong number of devices")
    if mask & ~state.idle_devices.get(node, 0):
        raise PlanRefused(f"{state.nodes.rows[node].name}: a device is not idle")
    if guaranteed and not is_entitled(state, job, node, mask):
        raise PlanRefused(f"{state.nodes.rows[node].name}: job {job.id} has no right to a device")
    _put_run(state, now, job, rank, spot, demand, guaranteed, awaits=awaits)


def start_sharing(
    state: State,
    now: Micros,
    job: Job,
    spots: tuple[Spot, ...],
    guaranteed: bool,
    share: Share,
    awaits: bool = False,
) -> None:
    """Makes the tasks members of a share group, with all runs that hold their devices now. `awaits`: they begin once the job's
    run at another node has ended. Raises PlanRefused."""
    tasks = [RunKey(job.id, job.run, rank) for rank in range(len(spots))]
    others = check_joining(state, share, tasks)
    number = number_for(state, share)
    for rank, (spot, demand) in enumerate(zip(spots, job.launch_spec.tasks(), strict=True)):
        node, devices = spot
        mask, name = mask_of(devices), state.nodes.rows[node].name
        right = mask.bit_count() == len(devices) and suffices(state, node, demand, devices)
        require(right, f"job {job.id}: wrong number of devices")
        require(not mask & state.faulty_devices.get(node, 0), f"{name}: a device is faulty")
        theirs = state.idle_devices.get(node, 0)
        for run in others:
            theirs |= mask_of(run.devices) if run.node == node else 0
        require(not mask & ~theirs, f"{name}: a device is neither idle nor held by a run of the share group")
        has_right = not guaranteed or is_entitled(state, job, node, mask)
        require(has_right, f"{name}: job {job.id} has no right to a device")
        _put_run(state, now, job, rank, spot, demand, guaranteed, number, awaits)
    arrange(state, share, number)


def _put_run(
    state: State,
    now: Micros,
    job: Job,
    rank: int,
    spot: Spot,
    demand: Vector,
    guaranteed: bool,
    group: int = 0,
    awaits: bool = False,
) -> None:
    part = memory = 0
    if group and job.spec.shares:
        limit = limit_mib(state.devices.rows[spot.node, spot.devices[0]].memory_mib, state.settings)
        part, memory = part_of(job.spec, limit), memory_of(job.spec, limit, state.settings)
    run = make_row(
        Run,
        job_id=job.id,
        run=job.run,
        node=spot.node,
        devices=spot.devices,
        demand=demand,
        phase=RunPhase.WARMING if awaits else _STARTS,
        placed_us=now,
        task=rank,
        vc=job.spec.vc,
        guaranteed=guaranteed,
        group=group,
        shared=bool(group),
        device_memory_mib=memory,
        part_ppm=part,
        awaits=awaits,
    )
    state.put(state.runs, run.key, run)


def _next_element(state: State, now: Micros, array: Job) -> Job:
    """Creates the array's next element, as a job of its own."""
    elements, of = array.elements, array.spec.array
    assert elements is not None  # it is an array
    assert of is not None
    begun = elements._replace(begun=elements.begun + 1, live=elements.live + 1)
    whole, first = begun.begun == of.size, now if array.started_us is None else array.started_us
    facts: dict[str, Any] = {"state": JobState.RUNNING} if whole else {}
    array = with_changes(array, elements=begun, started_us=first, reason=Reason.NONE, detail="", cause_job=0, **facts)
    if not (whole or startable(array)):
        array = with_changes(array, reason=Reason.ARRAY_LIMIT)
    state.put(state.jobs, array.id, array)
    cluster = state.cluster
    state.put(state.cluster_table, 0, with_changes(cluster, next_job=cluster.next_job + 1))
    spec = with_changes(array.spec, array=None, dependencies=())
    element = make_row(
        Job,
        id=cluster.next_job,
        spec=spec,
        user=array.user,
        request_id="",
        submitted_us=array.submitted_us,
        priority=array.priority,
        time_limit_us=array.time_limit_us,
        array_job=array.id,
        array_index=elements.begun,
        estimates=array.estimates,
        grace_follows=array.grace_follows,
        grace_now_us=array.grace_now_us,
        submitted_grace_us=array.submitted_grace_us,
        skip_steps=array.skip_steps,
    )
    state.put(state.jobs, element.id, element)
    text = f"element {element.array_index} of array {array.id}"
    log_event(state, now, element.id, EventKind.SUBMITTED, cause_job=array.id, text=text)
    return element
