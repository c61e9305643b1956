"""Invariants that hold after every step. Tests check all of them each time; the service checks a sample from time to time."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice

from scheduler_service.core.allocation.bindings import suffices
from scheduler_service.core.allocation.startup_repair import beside_devices
from scheduler_service.core.errors import Broken, claim
from scheduler_service.core.invariants_cells import check_cells
from scheduler_service.core.invariants_operations import check_operation, check_parking, check_warming
from scheduler_service.core.invariants_sharing import check_share_group
from scheduler_service.core.messages import Rng
from scheduler_service.core.model import Earmark, Job, JobState, Node, NodeDevice, Reason, Run, RunKey, RunPhase, present
from scheduler_service.core.model.launch_time import limit_at
from scheduler_service.core.model.values import ZERO, Mask, Vector, add, fits, mask_of
from scheduler_service.core.state.holdings import resources_released
from scheduler_service.core.state.state import State

_ROUNDED_US = 1000
"""Tolerance for deadlines that depend on a run's part of the time: they are rounded at each change."""
_INACTIVE = frozenset({JobState.QUEUED, JobState.SUSPENDED})


def check(state: State) -> None:
    """Raises Broken, naming the first invariant that does not hold. Costs a pass over everything that is live."""
    runs_of: dict[int, list[Run]] = defaultdict(list)
    runs_on: dict[int, list[Run]] = defaultdict(list)
    kept_on: dict[int, list[Earmark]] = defaultdict(list)
    for key, run in state.runs.rows.items():  # by the rows alone, and not by the indices that `sample` trusts
        claim(not run.phase.over, f"run {key} has ended and is still live")
        claim(key.job_id in state.jobs.rows, f"run {key} is active and its job is not live")
        claim(run.node in state.nodes.rows, f"run {key} is on a node that is not there")
        claim(not run.group or run.group in state.share_groups.rows, f"run {key} is in a share group that is not there")
        check_warming(state, run)
        if not run.awaits:
            runs_of[key.job_id].append(run)
        runs_on[run.node].append(run)
    for earmark in state.earmarks.rows.values():
        kept_on[earmark.node].append(earmark)
    for job in state.jobs.rows.values():
        _check_job(state, job, runs_of[job.id])
    for node in state.nodes.rows.values():
        _check_node(state, node, runs_on[node.id], kept_on[node.id])
    for earmark in state.earmarks.rows.values():
        _check_earmark(state, earmark)
    for group in state.share_groups.rows.values():
        check_share_group(state, group)
    for operation in state.operations.rows.values():
        check_operation(state, operation)
    for key in state.measured.rows:
        claim(key in state.runs.rows, f"there is a measurement of run {key}, which has ended")
    for key in state.switching.rows:
        claim(key in state.runs.rows, f"it is known what the switches of run {key} take, which has ended")
    if state.pools is not None:
        check_cells(state, state.pools)


def sample(state: State, rng: Rng) -> None:
    """Checks one live job and one node, both drawn at random, and what is kept there. Raises Broken. Costs what they hold, and
    a walk over the keys. Cells are not checked: when a pool is renamed, runs keep their guarantee from under the old name until
    the quotas of their virtual cluster are set again."""
    if jobs := state.jobs.rows:
        job = next(islice(jobs.values(), rng.randrange(len(jobs)), None))
        _check_job(state, job, state.runs_of(job.id))
        for operation in (state.operation_of.get(job.id), state.vacating_of.get(job.id)):
            if operation is not None:
                check_operation(state, state.operations.rows[operation])
    if nodes := state.nodes.rows:
        node = next(islice(nodes.values(), rng.randrange(len(nodes)), None))
        runs = [state.runs.rows[key] for key in state.runs_on.get(node.id, ())]
        kept = [earmark for earmark in state.earmarks.rows.values() if earmark.node == node.id]
        _check_node(state, node, runs, kept)
        for earmark in kept:
            _check_earmark(state, earmark)
        for number in sorted(state.groups_on.get(node.id, ())):
            check_share_group(state, state.share_groups.rows[number])


# ---- one job -----------------------------------------------------------------------------------------------------------


def _check_job(state: State, job: Job, runs: Sequence[Run]) -> None:
    """A job has active runs exactly when its state says so, and all of them are of one launch."""
    active = [run.key for run in runs]
    parked = bool(runs) and all(run.phase is RunPhase.PARKED for run in runs) and job.state is JobState.SUSPENDED
    inactive = (job.state in _INACTIVE and not parked) or job.elements is not None
    claim(inactive == (not active), f"job {job.id} is {job.state.name} with runs {active}")
    for key in active:
        claim(key.run == job.run, f"job {job.id} is at run {job.run} but {key} is active")
    claim(job.configuration <= len(job.spec.alternatives), f"job {job.id} has no configuration {job.configuration}")
    tasks = len(job.launch_spec.tasks())
    claim(len(set(active)) == len(active) and all(key.task < tasks for key in active), f"job {job.id}: {active}")
    spec = job.launch_spec
    for run in runs:
        check_parking(state, run)
        claim(run.asked == spec.tasks()[run.task], f"run {run.key} holds {run.demand}, and its configuration asks for another")
    elastic = spec.min_tasks <= tasks <= spec.max_tasks if spec.elastic else not job.tasks
    claim(elastic, f"job {job.id} has {tasks} tasks, and its bounds are {spec.min_tasks} and {spec.max_tasks}")
    claim(not (inactive and job.resize_to), f"job {job.id} does not run and is to be resized to {job.resize_to} tasks")
    most = spec.max_tasks + 1 - tasks if inactive else job.resize_to or tasks
    claim(0 <= job.beyond < max(most, 1), f"job {job.id} has {job.beyond} of {tasks} tasks beyond its guarantee")
    gathering = job.state is JobState.STARTING and not job.rendezvous and job.verdict is Reason.NONE
    claim(not gathering or len(active) == tasks, f"gang {job.id} has a part of its allocation: {active}")
    claim(not ((inactive or parked) and (job.limit_us or job.start_by_us)), f"job {job.id} does not run and has a limit to it")
    _check_limit(state, job, runs)
    claim(job.sampling is None or not inactive, f"job {job.id} does not run and is being sampled")
    claim(job.sampling is None or bool(job.spec.alternatives), f"job {job.id} is sampled and has no choice")
    claim(job.grace_now_us in (None, job.spec.grace_us), f"job {job.id} has two grace periods")
    claim(job.share_now in (None, job.spec.share), f"job {job.id} shares its devices in two ways")
    claim(job.share_next is None or not inactive, f"job {job.id} does not run, and is to share otherwise at its next launch")
    claim(job.eligible_us is None or job.state is JobState.QUEUED, f"job {job.id} is to be tried and does not wait")
    claim(job.state is not JobState.SUSPENDED or job.suspend_requested or parked, f"nobody suspended job {job.id}")
    _check_array(state, job)


def _check_limit(state: State, job: Job, runs: Sequence[Run]) -> None:
    """The time limit of a launch is reached once it has computed for that long, by its current part of the time. A launch that
    still runs after its limit, because its stop could not be made durable, is not checked."""
    if not runs or any(run.phase.exits_soon or run.is_parked for run in runs):
        return
    if job.limit_us is not None and job.limit_us < state.cluster.clock_us:
        return
    wanted = limit_at(job, runs, state.cluster.clock_us)
    close = wanted == job.limit_us or (wanted and job.limit_us and abs(wanted - job.limit_us) < _ROUNDED_US)
    claim(bool(close), f"job {job.id} has computed for as long as it may at {wanted}, and is to be stopped at {job.limit_us}")


def _check_array(state: State, job: Job) -> None:
    """The counts of an array match its live elements."""
    if job.elements is None or job.spec.array is None:
        claim(job.elements is None, f"job {job.id} has elements and is no array")
        return
    live, of = state.elements_of.get(job.id, set()), job.spec.array
    begun, over = job.elements.begun, job.elements.succeeded + job.elements.failed
    claim(job.elements.live == len(live), f"array {job.id} counts {job.elements.live} live elements of {len(live)}")
    claim(begun == over + len(live) <= of.size, f"array {job.id} has begun {begun} elements and ended {over}")
    claim(not of.at_once or len(live) <= of.at_once, f"array {job.id} runs {len(live)} elements at once")
    indices = [state.jobs.rows[i].array_index for i in live]
    claim(len(set(indices)) == len(indices), f"array {job.id} has an element twice: {indices}")


# ---- one node ----------------------------------------------------------------------------------------------------------


def _check_node(state: State, node: Node, runs: Sequence[Run], kept: Sequence[Earmark]) -> None:
    devices = [state.devices.rows[key] for i in range(node.capacity.devices) if (key := (node.id, i)) in state.devices.rows]
    held = _check_holders(state, node, runs, len(devices))
    _check_cpus(state, node, held)
    for device in devices:
        _check_device(state, node, device, held)
    _check_resources(state, node, runs, kept, devices, held)


def _check_holders(state: State, node: Node, runs: Sequence[Run], devices: int) -> Mask:
    """A device is held by at most one run, or one share group; a run has as many as it asked for, all on its node. The same is
    true of CPUs that take the place of devices, except for runs from before they did. Returns the devices that are held."""
    there = (1 << devices) - 1 or state.cpus_of(node.id)
    holder: dict[int, RunKey | int] = {}
    for run in runs:
        indices = run.given if state.pools is None else run.devices
        before = not (run.devices or run.demand.devices or state.serves(state.jobs.rows[run.job_id]))
        if run.is_parked:
            claim(not run.devices and not run.group, f"run {run.key} is parked and holds devices")
            continue
        claim(before or suffices(state, run.node, run.demand, indices), f"run {run.key} holds not what carries {run.demand}")
        for index in indices:
            claim(bool(there >> index & 1), f"run {run.key} holds device {index} of node {node.name}, which is not there")
            other = holder.setdefault(index, run.group or run.key)
            claim(other == (run.group or run.key), f"device {index} of node {node.name} is held by {other} and {run.key}")
    return mask_of(tuple(holder))


def _check_cpus(state: State, node: Node, held: Mask) -> None:
    if cpus := state.cpus_of(node.id):
        claim(held == state.held_devices.get(node.id, 0), f"node {node.name}: CPUs that are held")
        free = cpus & ~(held | state.kept_devices.get(node.id, 0))
        claim(free == state.idle_devices.get(node.id, 0), f"node {node.name}: CPUs that are idle")


def _check_device(state: State, node: Node, device: NodeDevice, holders: Mask) -> None:
    held, idle, faulty, kept = (
        bool(mask.get(node.id, 0) >> device.index & 1)
        for mask in (state.held_devices, state.idle_devices, state.faulty_devices, state.kept_devices)
    )
    place = f"device {device.index} of node {node.name}"
    claim(held == bool(holders >> device.index & 1), f"{place}: whether it is held")
    claim(faulty == bool(device.fault), f"{place}: whether it is faulty")
    claim(idle == (not held and not faulty and not kept), f"{place}: whether it is idle")


def _check_resources(
    state: State, node: Node, runs: Sequence[Run], kept: Sequence[Earmark], devices: Sequence[NodeDevice], held: Mask
) -> None:
    """free + share groups + charged to runs + earmarked + faulty devices that no run holds = capacity, and none is negative."""
    lost = sum(1 for device in devices if device.fault and not held >> device.index & 1)
    owned = [*(run.charged for run in runs), *(earmark.kept for earmark in kept), Vector(devices=lost)]
    owned += [Vector(devices=len({index for run in runs if run.group for index in run.devices}))]
    if present(node) is None:
        claim(not (runs or kept or lost), f"node {node.name} is deleted, and something is there")
        claim(state.free_resources.free(node.id) == ZERO, f"node {node.name} is deleted, and has room")
        return
    claim(min(beside_devices(state, node.id)) >= 0, f"node {node.name}: work without devices has what goes with its devices")
    free = state.free_resources.free(node.id)
    claim(min(free) >= 0, f"node {node.name} has {free} free")
    claim(add(free, _total(owned)) == node.capacity, f"node {node.name}: free, owned and earmarked do not add up")


def _total(amounts: Iterable[Vector]) -> Vector:
    total = ZERO
    for amount in amounts:
        total = add(total, amount)
    return total


def _check_earmark(state: State, earmark: Earmark) -> None:
    """An earmark waits for a queued job, keeps no more than it wants, and is promised the rest by runs that are stopping."""
    job = state.jobs.rows.get(earmark.job_id)
    claim(job is not None and job.state is JobState.QUEUED, f"earmark {earmark.id} is for a job that does not wait")
    claim(fits(earmark.kept, earmark.want), f"earmark {earmark.id} keeps more than it wants")
    leaving = []
    for key in earmark.victims:
        run = state.runs.rows.get(key)
        if run is None or not run.phase.exits_soon or run.node != earmark.node:
            raise Broken(f"earmark {earmark.id} waits for {key}, which is not leaving")
        leaving.append(run)
    promised = resources_released(state, leaving)
    together = [state.earmarks.rows[i] for i in state.earmarks_of[earmark.job_id]]
    complete = not any(other.victims for other in together)
    claim((earmark.deadline_us is not None) == complete, f"earmark {earmark.id}: deadline and victims")
    claim(len({other.node for other in together}) == len(together), f"job {earmark.job_id} has two earmarks on a node")
    want = earmark.want  # named devices carry their share of the host
    want = Vector(devices=want.devices) if earmark.devices else want
    claim(fits(want, add(earmark.kept, promised)), f"earmark {earmark.id} was promised too little")
