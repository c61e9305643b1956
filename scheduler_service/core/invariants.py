"""What must hold after every step. Tests check it after each one; the service samples it."""

from collections import defaultdict
from collections.abc import Iterable

from scheduler_service.core.binding import suffices
from scheduler_service.core.errors import Broken
from scheduler_service.core.invariants_cells import check_cells
from scheduler_service.core.job import JobState, Reason, RunKey, RunPhase, present
from scheduler_service.core.state import State
from scheduler_service.core.values import ZERO, Vector, add, fits, mask_of

_INACTIVE = frozenset({JobState.QUEUED, JobState.SUSPENDED})


def check(state: State) -> None:
    """Raises Broken, naming the first invariant that does not hold. Costs a pass over everything that is live."""
    _check_runs(state)
    _check_arrays(state)
    _check_devices(state)
    _check_resources(state)
    _check_earmarks(state)
    if state.pools is not None:
        check_cells(state, state.pools)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


def _total(amounts: Iterable[Vector]) -> Vector:
    total = ZERO
    for amount in amounts:
        total = add(total, amount)
    return total


def _check_runs(state: State) -> None:
    """A job has an active run exactly when its state says so, and at most one; a run that ended stays ended."""
    runs_of: dict[int, list[RunKey]] = defaultdict(list)
    for key, run in state.runs.rows.items():
        runs_of[key.job_id].append(key)
        _require(run.phase is not RunPhase.ENDED, f"run {key} has ended and is still live")
        _require(key.job_id in state.jobs.rows, f"run {key} is active and its job is not live")
    for job in state.jobs.rows.values():
        active = runs_of[job.id]
        inactive = job.state in _INACTIVE or job.elements is not None
        _require(inactive == (not active), f"job {job.id} is {job.state.name} with runs {active}")
        for key in active:
            _require(key.run == job.run, f"job {job.id} is at run {job.run} but {key} is active")
        tasks = len(job.spec.tasks())
        _require(sorted(set(active)) == sorted(active) and all(key.task < tasks for key in active), f"job {job.id}: {active}")
        gathering = job.state is JobState.STARTING and not job.rendezvous and job.verdict is Reason.NONE
        _require(not gathering or len(active) == tasks, f"gang {job.id} has a part of its allocation: {active}")
        _require(not (inactive and (job.limit_us or job.start_by_us)), f"job {job.id} does not run and has a limit to it")
        _require(job.eligible_us is None or job.state is JobState.QUEUED, f"job {job.id} is to be tried and does not wait")
        _require(job.state is not JobState.SUSPENDED or job.suspend_requested, f"nobody suspended job {job.id}")


def _check_arrays(state: State) -> None:
    """An array counts its elements."""
    for job in state.jobs.rows.values():
        if job.elements is None or job.spec.array is None:
            _require(job.elements is None, f"job {job.id} has elements and is no array")
            continue
        live, of = state.elements_of.get(job.id, set()), job.spec.array
        begun, over = job.elements.begun, job.elements.succeeded + job.elements.failed
        _require(job.elements.live == len(live), f"array {job.id} counts {job.elements.live} live elements of {len(live)}")
        _require(begun == over + len(live) <= of.size, f"array {job.id} has begun {begun} elements and ended {over}")
        _require(not of.at_once or len(live) <= of.at_once, f"array {job.id} runs {len(live)} elements at once")
        indices = [state.jobs.rows[i].array_index for i in live]
        _require(len(set(indices)) == len(indices), f"array {job.id} has an element twice: {indices}")


def _check_devices(state: State) -> None:
    """A device is held by one run at most; a run holds as many as it asked for, all of them devices of its node. The same is so
    of CPUs, where they are in the place of devices."""
    holder: dict[tuple[int, int], RunKey] = {}
    for key, run in state.runs.rows.items():
        _require(suffices(state, run.node, run.demand, run.devices), f"run {key} holds not what carries {run.demand}")
        for place in ((run.node, index) for index in run.devices):
            there = place in state.devices.rows or bool(state.cpus_of(run.node) >> place[1] & 1)
            _require(there, f"run {key} holds device {place}, which is not there")
            _require(place not in holder, f"device {place} is held by {holder.get(place)} and {key}")
            holder[place] = key
    for node in state.nodes.rows:
        if cpus := state.cpus_of(node):
            held = mask_of(tuple(index for at, index in holder if at == node))
            _require(held == state.held_devices.get(node, 0), f"node {node}: CPUs that are held")
            free = cpus & ~(held | state.kept_devices.get(node, 0))
            _require(free == state.idle_devices.get(node, 0), f"node {node}: CPUs that are idle")
    for place, device in state.devices.rows.items():
        held, idle, faulty = (
            bool(mask.get(device.node, 0) >> device.index & 1)
            for mask in (state.held_devices, state.idle_devices, state.faulty_devices)
        )
        _require(held == (place in holder), f"device {place}: whether it is held")
        _require(faulty == bool(device.fault), f"device {place}: whether it is faulty")
        kept = bool(state.kept_devices.get(device.node, 0) >> device.index & 1)
        _require(idle == (not held and not faulty and not kept), f"device {place}: whether it is idle")


def _check_resources(state: State) -> None:
    """free + owned + earmarked + faulty devices that nobody holds = capacity, and none of them is negative."""
    owned: dict[int, list[Vector]] = defaultdict(list)
    for run in state.runs.rows.values():
        owned[run.node].append(run.demand)
    for operation in state.operations.rows.values():
        owned[operation.node].append(operation.kept)
    held = {(run.node, index) for run in state.runs.rows.values() for index in run.devices}
    for place, device in state.devices.rows.items():
        if device.fault and place not in held:
            owned[device.node].append(Vector(0, 0, 1))
    for node in state.nodes.rows.values():
        if present(node) is None:
            _require(not owned[node.id], f"node {node.name} is deleted, and something is there")
            _require(state.room.free(node.id) == ZERO, f"node {node.name} is deleted, and has room")
            continue
        loose = ZERO if state.host is None else state.host.free(node.id)
        _require(min(loose) >= 0, f"node {node.name}: work without devices has what goes with its devices")
        free = state.room.free(node.id)
        _require(min(free) >= 0, f"node {node.name} has {free} free")
        _require(
            add(free, _total(owned[node.id])) == node.capacity, f"node {node.name}: free, owned and earmarked do not add up"
        )


def _check_earmarks(state: State) -> None:
    """Each waits for a queued job, keeps no more than it wants, and what it misses is promised by runs that are leaving."""
    for operation in state.operations.rows.values():
        job = state.jobs.rows.get(operation.job_id)
        _require(job is not None and job.state is JobState.QUEUED, f"earmark {operation.id} is for a job that does not wait")
        _require(fits(operation.kept, operation.want), f"earmark {operation.id} keeps more than it wants")
        promised = ZERO
        for key in operation.victims:
            run = state.runs.rows.get(key)
            if run is None or run.phase is not RunPhase.STOPPING or run.node != operation.node:
                raise Broken(f"earmark {operation.id} waits for {key}, which is not leaving")
            promised = add(promised, run.demand)
        together = [state.operations.rows[i] for i in state.earmarks_of[operation.job_id]]
        complete = not any(other.victims for other in together)
        _require((operation.deadline_us is not None) == complete, f"earmark {operation.id}: deadline and victims")
        _require(len({other.node for other in together}) == len(together), f"job {operation.job_id} has two earmarks on a node")
        want = operation.want  # named devices carry their share of the host
        want = Vector(devices=want.devices) if operation.devices else want
        _require(fits(want, add(operation.kept, promised)), f"earmark {operation.id} was promised too little")
