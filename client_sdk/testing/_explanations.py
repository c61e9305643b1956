"""Why a job of the fake cluster waits, and what a submit would meet."""

from collections.abc import Iterator

from ebb.v1 import job_pb2, scheduler_pb2

from client_sdk._protobuf import convert
from client_sdk.errors import FailedPrecondition
from client_sdk.models import JobEventKind, JobReason, JobState, Resources
from client_sdk.testing import _nodes
from client_sdk.testing._handlers import NO_VIRTUAL_CLUSTERS, still_awaited, whole_spec
from client_sdk.testing._state import State, at_limit, class_of, state_of


def explain(state: State, job_id: int) -> scheduler_pb2.ExplainResponse:
    job = state.find(job_id)
    told = _explanation(state, job)
    last = next((e for e in reversed(state.story(job_id)) if e.kind == int(JobEventKind.PREEMPTED)), None)
    if last is not None:
        told.preempted.by_job_id, told.preempted.by_user = last.cause_job_id, state.user
        told.preempted.time.CopyFrom(last.time)
    return scheduler_pb2.ExplainResponse(job=job, explanation=told)


def preview(state: State, request: scheduler_pb2.SubmitRequest) -> scheduler_pb2.SubmitResponse:
    """Takes the job in, looks, and forgets it."""
    spec = whole_spec(state, request)
    waits = still_awaited(state, spec)
    job = state.add(spec)
    try:
        if waits:
            state.waits_for[job.id] = waits
        state.show_queued(job)
        shown, told = state.find(job.id), _explanation(state, job)
        placed = None if told.blockers else _nodes.place(state, spec)
    finally:
        del state.jobs[job.id]
        state.waits_for.pop(job.id, None)
    shown.id = 0
    if placed is None:
        return scheduler_pb2.SubmitResponse(job=shown, preview=scheduler_pb2.Preview(explanation=told))
    state.show(shown, JobState.STARTING)
    shown.configuration = placed.configuration
    return scheduler_pb2.SubmitResponse(job=shown, preview=scheduler_pb2.Preview(starts=True, tasks=placed.tasks))


def shares(state: State, request: scheduler_pb2.SharesRequest) -> scheduler_pb2.SharesResponse:
    """As the test has said. A fake cluster itself does not count usage."""
    if request.virtual_cluster:
        raise FailedPrecondition(NO_VIRTUAL_CLUSTERS, reason="NO_VIRTUAL_CLUSTERS")
    if state.shares is None:
        said = "this cluster does not go by usage, so that there are no shares; FakeCluster.share says what they are"
        raise FailedPrecondition(said, reason="NO_SHARES")
    return state.shares


def _explanation(state: State, job: job_pb2.Job) -> scheduler_pb2.Explanation:
    if state_of(job) is JobState.SUSPENDED:
        return scheduler_pb2.Explanation(blockers=[_blocker(JobReason.SUSPENDED, "it does not return by itself: resume it")])
    if state_of(job) is not JobState.QUEUED:
        return scheduler_pb2.Explanation()
    own = list(_own_reasons(state, job))
    if own:
        return scheduler_pb2.Explanation(blockers=own)
    ahead = []
    for other in state.queue(class_of(job)):
        if other.id == job.id:
            break
        ahead.append(other.id)
    told = scheduler_pb2.Explanation(ahead=len(ahead), ahead_job_ids=ahead[:16])
    if ahead:
        jobs = "1 job is" if len(ahead) == 1 else f"{len(ahead)} jobs are"
        told.blockers.append(_blocker(JobReason.BEHIND, f"{jobs} before it", ahead[0]))
    if _nodes.place(state, job.spec) is None:
        for number, one in enumerate(_nodes.configurations(job.spec)):
            blocker = _no_room(state, one)
            if job.spec.alternatives:
                blocker.detail = "; ".join(filter(None, (f"configuration {number}", blocker.detail)))
            told.blockers.append(blocker)
    if told.blockers:
        told.estimate.basis = "a fake cluster foresees nothing"
    return told


def _own_reasons(state: State, job: job_pb2.Job) -> Iterator[scheduler_pb2.Blocker]:
    """Yield the blockers that keep the job out of its queue."""
    if job.held:
        yield _blocker(JobReason.HELD, "a user holds it: release it")
    for waits in state.waits_for.get(job.id, ()):
        how = waits.kind.name.lower().replace("_", "-")
        other = state_of(state.jobs[waits.job_id]).name
        yield _blocker(JobReason.DEPENDENCY, f"{how} job {waits.job_id}, which is {other}", waits.job_id)
    if at_limit(job):
        yield _blocker(
            JobReason.ARRAY_LIMIT, f"{job.array.live} of its elements have begun and not ended, as many as may at once"
        )


def _no_room(state: State, spec: _nodes.Configured) -> scheduler_pb2.Blocker:
    need = max(_nodes.demands(spec), key=lambda each: (each.devices, each.cpus, each.memory_mib))
    usable = {name: _nodes.free_on(state, name) for name in _nodes.suitable(state, spec) if name not in state.drains}
    closest = max(usable, key=lambda name: _share(usable[name], need), default="")
    blocker = _blocker(JobReason.NO_ROOM, "" if usable else _none_open(state))
    blocker.need.CopyFrom(convert.resources_message(need))
    if closest:
        blocker.node = closest
        blocker.free.CopyFrom(convert.resources_message(usable[closest]))
    blocker.nodes, blocker.nodes_usable = len(state.nodes), len(usable)
    blocker.nodes_large_enough = sum(_nodes.fits(need, capacity) for capacity in state.nodes.values())
    return blocker


def _none_open(state: State) -> str:
    if not state.nodes:
        return "the cluster has no node yet"
    drained = len(state.nodes)  # those of a fake cluster are never silent
    return f"no node is up and open: {drained} node{' is' if drained == 1 else 's are'} drained"


def _share(free: Resources, need: Resources) -> float:
    """How much of the need there is, of what is most wanting."""
    pairs = ((free.cpus, need.cpus), (free.memory_mib, need.memory_mib), (free.devices, need.devices))
    return min((min(f / n, 1.0) for f, n in pairs if n), default=1.0)


def _blocker(reason: JobReason, detail: str, cause: int = 0) -> scheduler_pb2.Blocker:
    return scheduler_pb2.Blocker(reason=int(reason), detail=detail, cause_job_id=cause)  # type: ignore[arg-type]
