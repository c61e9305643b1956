"""Growth: an elastic job takes the idle devices of its server, and gives them back when a job wants them (Gandiva, 4.2.2).

A job grows only after the devices have been idle for some time, only on the server on which it runs, and only while no job
waits. In a virtual cluster, a guaranteed job grows within the cells of this virtual cluster as far as it can, and then beyond
its guarantee (`hived/growth_beyond_quota.py`): there it has opportunistic tasks in any idle cells, which it gives back if they
are reclaimed. An opportunistic job grows into any idle cells. A job that is stopped, and has no room at the size to which it
has grown, resumes with the tasks that it had before.

If several jobs could grow, the one that gains the most for each device does, relative to what it does now, by what was measured
of its progress (`speedup`). With nothing measured at other sizes that is the one with the fewest devices.
"""

from collections.abc import Callable, Iterator

from scheduler_service.core.allocation.guarantee import guaranteed_in_part
from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Bind, Place, Plan, Remember, Resize
from scheduler_service.core.model import Job, JobState, Run
from scheduler_service.core.model.memo import shared_subject
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.core.model.values import SECOND, Vector, fits, times
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.memos import forget, memo_of
from scheduler_service.policies.gandiva.slicing.probes import NAME
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.gandiva.slicing.take_turns import would_do
from scheduler_service.policies.gandiva.speedup import LEAST_GAIN, gain, note_progress
from scheduler_service.policies.stages import Where


def since_subject(job_id: int) -> str:
    """The subject of the memo that says since when a job could grow."""
    return f"could-grow/{job_id}"


def grown_subject(vc: str) -> str:
    """The subject of the memo that says which jobs have grown, and from how many tasks."""
    return shared_subject(vc, "grown")


def sizes_before_growth(state: State, vc: str) -> dict[int, int]:
    """The tasks that each job had before it grew. Jobs that have ended, or neither have nor will have more than that, are left
    out."""
    memo, found = memo_of(state, grown_subject(vc)), dict[int, int]()
    if memo is not None:
        for job_id, before in zip(map(int, memo.value[::2]), map(int, memo.value[1::2]), strict=True):
            job = state.jobs.rows.get(job_id)
            if job is not None and (job.beyond or max(job.spec.gang[0].size, job.resize_to) > before):
                found[job_id] = before
    return found


def _remember_grown(vc: str, jobs: dict[int, int]) -> Remember:
    value = tuple(part for job_id in sorted(jobs) for part in (job_id, jobs[job_id]))
    return Remember(NAME, grown_subject(vc), value or None)


# ---- growth ------------------------------------------------------------------------------------------------------------


def grow(state: State, where: Where, nodes: range, settings: Settings) -> Proposals:
    """Grow jobs on these nodes, one job of each node at a time."""
    vc = where.vc
    waiting = any(queue.first is not None for queues in state.queues.values() for queue in queues.values())
    if (memo := memo_of(state, grown_subject(vc))) is not None and len(memo.value) > 2 * len(sizes_before_growth(state, vc)):
        yield (_remember_grown(vc, sizes_before_growth(state, vc)),)
    for node in nodes:
        yield from note_progress(state, vc, node)
        candidates = sorted(_could_grow(state, where, node, waiting))
        for _, _, job_id, tasks, beyond in candidates:
            memo, now = memo_of(state, since_subject(job_id)), state.cluster.clock_us
            if memo is None:
                yield (Remember(NAME, since_subject(job_id), (now,), job_id),)
            elif (idle_us := now - int(memo.value[0])) >= settings.grow_after * SECOND:
                why = f"it grows: devices of {state.nodes.rows[node].name} were idle for {idle_us / SECOND:.0f} s"
                why += f"; {beyond} of the tasks {'is' if beyond == 1 else 'are'} beyond its guarantee" if beyond else ""
                before = sizes_before_growth(state, vc)
                job = state.jobs.rows[job_id]
                before.setdefault(job_id, job.queued_tasks)
                notes = (forget(since_subject(job_id)), _remember_grown(vc, before))
                plan: Plan = (Resize(job_id, tasks, why, beyond), *notes)
                if would_do(state, plan):
                    yield plan
                break
        could = {job_id for _, _, job_id, *_ in candidates}
        here = {key.job_id for key in state.runs_on.get(node, ()) if state.runs.rows[key].vc == vc}
        for job_id in sorted(here - could):
            if memo_of(state, since_subject(job_id)) is not None:
                yield (forget(since_subject(job_id)),)


def _could_grow(state: State, where: Where, node: int, waiting: bool) -> Iterator[tuple[float, int, int, int, int]]:
    """The jobs that could, with what they would gain for each device (negative: the first of a sorted list gains the most), the
    number of tasks that they have and that they could have, and how many of these would be beyond their guarantee."""
    idle = state.idle_devices.get(node, 0).bit_count()
    jobs = sorted({key.job_id for key in state.runs_on.get(node, ())})
    resizes = any(state.jobs.rows[job_id].resize_to for job_id in jobs)  # they may get the devices
    if waiting or resizes or not idle or not state.free_resources.is_open(node):
        return
    for job_id in jobs:
        job = state.jobs.rows[job_id]
        if not job.spec.elastic or not job.spec.grace_us or job.state is not JobState.RUNNING or job_id in state.operation_of:
            continue
        runs = state.runs_of(job_id)
        if any(run.node != node or run.group or not run.phase.preemptible or run.vc != where.vc for run in runs):
            continue
        group = job.spec.gang[0]
        more = _more_tasks(group.demand, state.free_resources.free(node)._replace(devices=idle))
        size, beyond = min(job.spec.max_tasks, group.size + more), 0
        if where.vc:
            size, beyond = _in_cells(state, where, job, node, size)
        if size > group.size and group.demand.devices and (more_rate := gain(state, job, size)) >= LEAST_GAIN:
            yield -more_rate / ((size - group.size) * group.demand.devices), group.size, job_id, size, beyond


def _in_cells(state: State, where: Where, job: Job, node: int, most: int) -> tuple[int, int]:
    """The most tasks, up to these, with which the job would start at once on its server, as what it is now: guaranteed in cells
    of its own, or opportunistic; and how many of these would be beyond its guarantee, as few as can be. 0: no more than it
    has."""
    cells, best = job.spec.cells, (job.spec.gang[0].size, 0)
    runs = state.runs_of(job.id)
    opportunistic = job.spec.guarantee is Guarantee.OPPORTUNISTIC
    if where.plan is None or cells.levels or cells.within or runs[0].guaranteed is opportunistic:
        return 0, 0
    least = best[0] + 1 if opportunistic or where.more is None else job.queued_tasks
    with state.supposing():
        for run in runs:
            state.put(state.runs, run.key, None)
        for size in range(most, least - 1, -1):
            view = job.with_tasks(size)
            plan = where.plan(state, view)
            places = [action for action in plan or () if not isinstance(action, Bind)]
            if plan is None or len(places) != 1 or not isinstance(places[0], Place):
                continue
            if where.more is not None and not opportunistic and size < most:
                plan = where.more(state, view, plan, most - size)
            place = plan[-1]
            assert isinstance(place, Place)  # `more` adds to it
            if {spot.node for spot in place.spots} == {node} and len(place.spots) > best[0]:
                best = len(place.spots), place.beyond
            if best[0] == most:
                break
    return best if best[0] > job.spec.gang[0].size else (0, 0)


def _more_tasks(each: Vector, free: Vector) -> int:
    """How many more tasks fit into what is free."""
    more = 0
    while any(each) and fits(times(each, more + 1), free):
        more += 1
    return more


# ---- shrinking ---------------------------------------------------------------------------------------------------------


def shrink_for(state: State, vc: str, job: Job) -> Plan | None:
    """Make a job that has grown give back as much as this one needs, which has no room. Empty: one is about to. None: no such
    job would make room."""
    jobs, need = sizes_before_growth(state, vc), job.spec.demand
    if not jobs or job.spec.gang or not need.devices:
        return None
    for job_id, before in jobs.items():
        runs = state.runs_of(job_id)
        if runs and runs[0].phase.exits_soon and (target := state.jobs.rows[job_id].resize_to):
            if target < len(runs) and _makes_room(state, job, job_id, len(runs) - target):
                return ()
            continue
        if not runs or state.jobs.rows[job_id].state is not JobState.RUNNING:
            continue
        for fewer in range(1, len(runs) - before + 1):
            if _makes_room(state, job, job_id, fewer):
                plan: Plan = (Resize(job_id, len(runs) - fewer, f"it gives back devices that job {job.id} needs"),)
                return plan if would_do(state, plan) else None
    return None


def shrink_in(state: State, job: Job, where: Where) -> Plan | None:
    """As `shrink_for`, in the cells of a virtual cluster."""
    if where.plan is None:
        return None
    for job_id, before in sizes_before_growth(state, where.vc).items():
        other, runs = state.jobs.rows[job_id], state.runs_of(job_id)
        if not runs or runs[0].guaranteed is not where.guaranteed:
            continue
        if runs[0].phase.exits_soon:
            if 0 < other.resize_to < len(runs) and _makes_room_in(state, job, where, runs[other.resize_to :]):
                return ()
            continue
        for size in range(len(runs) - 1, before - 1, -1):
            if other.state is JobState.RUNNING and _makes_room_in(state, job, where, runs[size:]):
                return _shrink(state, other, size, f"it gives back devices that job {job.id} needs")
    return None


def _shrink(state: State, job: Job, tasks: int, why: str) -> Plan | None:
    """Shrink the job to so many tasks; those beyond its guarantee go first."""
    beyond = max(job.beyond - (job.spec.gang[0].size - tasks), 0)
    plan: Plan = (Resize(job.id, tasks, why, beyond),)
    return plan if would_do(state, plan) else None


def retreat(state: State, job: Job, where: Where, otherwise: Callable[[], Plan | None]) -> Plan | None:
    """Make a job give back what it has beyond its guarantee, if the waiting one has a way (`otherwise`) once that has happened:
    a job with such tasks neither takes turns nor is parked. Empty: one is about to. None: that would change nothing."""
    if where.plan is None or not where.guaranteed:
        return None
    for job_id in sizes_before_growth(state, where.vc):
        other, runs = state.jobs.rows[job_id], state.runs_of(job_id)
        if not guaranteed_in_part(runs):
            continue
        if runs[0].phase.exits_soon:
            if other.resize_to and _makes_room_in(state, job, where, runs):
                return ()
            continue
        with state.supposing():
            for run in runs:
                state.put(state.runs, run.key, None)
            state.put(state.jobs, job_id, other.with_tasks(other.queued_tasks))
            for run in runs[: other.queued_tasks]:
                state.put(state.runs, run.key, run)
            helps = other.state is JobState.RUNNING and bool(otherwise())
        if helps:
            return _shrink(state, other, other.queued_tasks, f"job {job.id} takes turns with it, or takes its place")
    return None


def _makes_room_in(state: State, job: Job, where: Where, runs: list[Run]) -> bool:
    assert where.plan is not None
    with state.supposing():
        for run in runs:
            state.put(state.runs, run.key, None)
        return where.plan(state, job) is not None


def as_before(state: State, job: Job, where: Where) -> Plan | None:
    """Gives a queued job that has grown, and has no room, the size that it had before. None: it has not grown."""
    before = sizes_before_growth(state, where.vc).get(job.id, 0) if job.spec.elastic else 0
    if not before:
        return None
    plan: Plan = (Resize(job.id, before, "there is no room for the size to which it has grown"),)
    return plan if would_do(state, plan) else None


def _makes_room(state: State, job: Job, job_id: int, fewer: int) -> bool:
    """Whether the job would fit on the server of another one, once that one has so many tasks fewer."""
    run = state.runs_of(job_id)[0]
    free = state.free_resources.free(run.node)._replace(devices=state.idle_devices.get(run.node, 0).bit_count())
    more = times(run.demand, fewer)
    room = Vector(*(a + b for a, b in zip(free, more, strict=True)))
    return state.is_usable(job.spec, run.node) and fits(job.spec.demand, room)
