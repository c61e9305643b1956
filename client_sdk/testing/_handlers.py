"""The fake cluster's handlers for the requests of users, and its refusals."""

from dataclasses import replace

from ebb.v1 import cluster_pb2, job_pb2, scheduler_pb2

from client_sdk import models
from client_sdk._protobuf import convert
from client_sdk.errors import AlreadyExists, EbbError, FailedPrecondition, InvalidArgument, NotFound
from client_sdk.models import ENDED, Dependency, JobEventKind, JobReason, JobState
from client_sdk.testing import _nodes, _parking, _runs
from client_sdk.testing._field_rules import check_checkpoint, check_elastic, check_share
from client_sdk.testing._files import check_stored
from client_sdk.testing._lifecycle import TOLD, end, finish, go_on, holds, leave
from client_sdk.testing._state import ACTIVE, Outcome, State, set_tasks, state_of

DEFAULT_GRACE = 30
"""Seconds, as the default of a site."""


def whole_spec(state: State, request: scheduler_pb2.SubmitRequest) -> job_pb2.JobSpec:
    """With what the request leaves out. Raises as a submit does that can never start."""
    if request.spec.virtual_cluster:
        raise FailedPrecondition(NO_VIRTUAL_CLUSTERS, reason="NO_VIRTUAL_CLUSTERS")
    spec = job_pb2.JobSpec()
    spec.CopyFrom(request.spec)
    spec.job_class = spec.job_class or job_pb2.JOB_CLASS_BEST_EFFORT
    if not spec.HasField("grace_period"):
        spec.grace_period.seconds = DEFAULT_GRACE
    for one in _nodes.configurations(spec):
        _nodes.name_resources(state, one)
        if one.task_groups:
            one.resources.CopyFrom(_total(one))
    _check_alternatives(spec)
    check_checkpoint(spec)
    check_elastic(spec)
    check_share(spec)
    _nodes.check_can_ever_run(state, spec)
    return spec


def _total(spec: _nodes.Configured) -> job_pb2.Resources:
    total = job_pb2.Resources()
    for group in spec.task_groups:
        total.cpu_milli += group.count * group.resources.cpu_milli
        total.memory_mib += group.count * group.resources.memory_mib
        total.devices += group.count * group.resources.devices
    return total


def _check_alternatives(spec: job_pb2.JobSpec) -> None:
    """Raises InvalidArgument for two that are equal. An alternative without a command has the job's."""
    seen: list[models.Configuration] = []
    for number, one in enumerate(convert.spec(spec).configurations):
        command, environment = one.command or tuple(spec.command), dict(spec.environment) | dict(one.environment)
        plain = replace(one, estimate=None, command=command, environment=environment)
        if plain in seen:
            said = f"configurations {seen.index(plain)} and {number} are equal; leave one out"
            field = f"spec.alternatives[{number - 1}]"
            where = {"field": field, "rule": "alternatives.unique"}
            raise InvalidArgument(f"{field}: {said}", reason="INVALID_FIELD", metadata=where)
        seen.append(plain)


AN_ARRAY = "it is an array, whose elements are jobs: "
NO_VIRTUAL_CLUSTERS = "this scheduler runs without virtual clusters; so does every fake cluster"


def submit(state: State, request: scheduler_pb2.SubmitRequest) -> job_pb2.Job:
    spec = whole_spec(state, request)
    if (known := state.requests.get(request.request_id)) is not None:
        asked = job_pb2.JobSpec()
        asked.CopyFrom(spec)
        asked.ClearField("inherited_environment")
        asked.MergeFrom(job_pb2.JobSpec(inherited_environment=state.jobs[known].spec.inherited_environment))
        if asked.max_tasks and state.jobs[known].spec.max_tasks:  # it may have been resized since
            set_tasks(asked, state.jobs[known].spec.task_groups[0].count)
        first = job_pb2.JobSpec()
        first.CopyFrom(state.jobs[known].spec)
        first.grace_period.CopyFrom(state.first_graces.get(known, first.grace_period))
        if first != asked:
            raise AlreadyExists(
                f"request_id {request.request_id!r} was already used for job {known}, which asks for something else; "
                "take a new request_id for a new job",
                reason="REQUEST_ID_REUSED",
                metadata={"job_id": str(known)},
            )
        return state.find(known)
    check_stored(state, spec)
    waits = still_awaited(state, spec)
    job = state.add(spec)
    job.grace_follows = not request.spec.HasField("grace_period")
    if request.request_id:
        state.requests[request.request_id] = job.id
    if waits:
        state.waits_for[job.id] = waits
    state.show_queued(job)
    state.tell(job, JobEventKind.SUBMITTED)
    accepted = state.find(job.id)
    go_on(state)
    return accepted


def still_awaited(state: State, wanted: job_pb2.JobSpec | scheduler_pb2.Dependencies) -> tuple[Dependency, ...]:
    """Those of the dependencies that do not hold yet. Raises where one can never hold."""
    found = sorted({(d.job_id, convert.dependency(d).kind) for d in wanted.dependencies})
    for job_id, kind in found:
        where = {"job_id": str(job_id)}
        if job_id not in state.jobs:
            raise NotFound(f"there is no job {job_id}, which this was to wait for", reason="NO_SUCH_JOB", metadata=where)
        ended = state_of(state.jobs[job_id])
        if ended in ENDED and not holds(kind, ended):
            said = f"job {job_id} has ended as {ended.name}, so that what waits for it "
            said += f"{kind.name.lower().replace('_', '-')} would never start"
            raise FailedPrecondition(said, reason="DEPENDENCY_NEVER", metadata=where)
    return tuple(Dependency(*pair) for pair in found if state_of(state.jobs[pair[0]]) not in ENDED)


def cancel(state: State, job_id: int) -> job_pb2.Job:
    job = state.known(job_id)
    if job.cancel_requested or state_of(job) in ENDED:
        return state.find(job_id)
    job.cancel_requested = True
    state.tell(job, JobEventKind.CANCEL_REQUESTED, run=job.run)
    elements = [other.id for other in state.jobs.values() if other.array_job_id == job_id and state_of(other) not in ENDED]
    if job.parked:
        _parking.end(state, job)
        _runs.end(state, job, TOLD)
    if state_of(job) not in ACTIVE and not elements:
        end(state, job, JobState.CANCELLED, JobReason.CANCELLED, Outcome())
        return state.find(job_id)
    leave(state, job, JobReason.CANCELLED)
    told = state.find(job_id)
    for element in elements:
        cancel(state, element)
    if not elements:
        _goes(state, job)
    return told


def suspend(state: State, request: scheduler_pb2.SuspendRequest) -> job_pb2.Job:
    job_id = request.job_id
    job = live(state, job_id)
    if job.suspend_requested:
        return state.find(job_id)
    if job.HasField("array"):
        more = ", and hold it to keep others from starting" if job.array.pending else ""
        raise refusal(job, "suspended", f"{AN_ARRAY}suspend those{more}")
    if state_of(job) not in ACTIVE:
        raise refusal(job, "suspended", "hold a queued job to keep it from starting")
    if job.cancel_requested:
        raise refusal(job, "suspended", "it is being cancelled")
    text = _parking.park(state, job, request) if request.park or request.park_only else ""
    if job.parked:
        told = state.find(job_id)
        go_on(state)
        return told
    job.suspend_requested = True
    state.tell(job, JobEventKind.SUSPEND_REQUESTED, run=job.run, text=text)
    return told_to_leave(state, job, JobReason.SUSPENDED)


def resume(state: State, job_id: int) -> job_pb2.Job:
    job = live(state, job_id)
    if job.parked:
        if job.suspend_requested:
            _parking.resume(state, job)
        return state.find(job_id)
    if not job.suspend_requested:
        if JobReason(job.reason) is JobReason.RESUMED:
            return state.find(job_id)
        raise refusal(job, "resumed", "only a suspended job can")
    job.suspend_requested = False
    state.tell(job, JobEventKind.RESUMED, run=job.run)
    if state_of(job) is JobState.SUSPENDED:
        state.show(job, JobState.QUEUED, JobReason.RESUMED)
        state.tell(job, JobEventKind.REQUEUED, run=job.run, reason=JobReason.RESUMED)
    told = state.find(job_id)
    go_on(state)
    return told


def hold(state: State, job_id: int) -> job_pb2.Job:
    job = live(state, job_id)
    if not job.held:
        if state_of(job) is not JobState.QUEUED:
            instead = "suspend a running job to have it save its work and leave"
            if state_of(job) is JobState.SUSPENDED:
                instead = "it stays aside until it is resumed"
            elif job.HasField("array"):
                instead = f"{AN_ARRAY}all have begun: suspend those that run"
            raise refusal(job, "held", instead)
        job.held = True
        state.show_queued(job)
        state.tell(job, JobEventKind.HELD, run=job.run)
    return state.find(job_id)


def release(state: State, job_id: int) -> job_pb2.Job:
    job = live(state, job_id)
    if job.held:
        job.held = False
        state.show_queued(job)
        state.tell(job, JobEventKind.RELEASED, run=job.run)
    told = state.find(job_id)
    go_on(state)
    return told


def requeue(state: State, job_id: int) -> job_pb2.Job:
    job = live(state, job_id)
    if state_of(job) is JobState.QUEUED and job.run:
        return state.find(job_id)
    if state_of(job) is JobState.STOPPING and not (job.cancel_requested or job.suspend_requested):
        return state.find(job_id)  # it leaves already, and queues again
    if job.parked:
        _parking.end(state, job)
        job.suspend_requested = False
        state.tell(job, JobEventKind.REQUEUE_REQUESTED, run=job.run)
        return told_to_leave(state, job, JobReason.REQUEUED)
    if job.HasField("array"):
        raise refusal(job, "put back into its queue", f"{AN_ARRAY}put those back that run")
    if state_of(job) not in ACTIVE or job.cancel_requested or job.suspend_requested:
        raise refusal(job, "put back into its queue", "only a running job can; resume a suspended one")
    state.tell(job, JobEventKind.REQUEUE_REQUESTED, run=job.run)
    return told_to_leave(state, job, JobReason.REQUEUED)


def drain(state: State, request: cluster_pb2.DrainRequest) -> cluster_pb2.Node:
    for job_id in _nodes.drain(state, request):
        job = state.jobs[job_id]
        if state_of(job) in (JobState.STARTING, JobState.RUNNING):
            why, text = JobReason.NODE_DRAINED, state.drains[request.node].reason
            state.tell(job, JobEventKind.REQUEUE_REQUESTED, reason=int(why), run=job.run, node=request.node, text=text)
            told_to_leave(state, job, why)
    return _nodes.node(state, request.node)


def undrain(state: State, name: str) -> cluster_pb2.Node:
    _nodes.undrain(state, name)
    go_on(state)
    return _nodes.node(state, name)


def fence(state: State, name: str) -> cluster_pb2.Node:
    """The nodes of a fake cluster are always heard, so none of them can be declared dead."""
    raise _up(state, name, "only a silent node can be declared dead; drain it instead")


def delete_node(state: State, name: str) -> cluster_pb2.DeleteNodeResponse:
    """Nor can any be deleted."""
    raise _up(state, name, "stop its agent first, and wait until it is silent")


def _up(state: State, name: str, instead: str) -> EbbError:
    found = _nodes.node(state, name)
    return FailedPrecondition(f"node {name} is up: {instead}", reason="NODE_UP", metadata={"node": found.name})


# ---- what they share ---------------------------------------------------------------------------------------------------


def live(state: State, job_id: int) -> job_pb2.Job:
    job = state.known(job_id)
    if (ended := state_of(job)) in ENDED:
        said = f"job {job_id} has ended as {ended.name}, which nothing changes; submit it again for another try"
        raise FailedPrecondition(said, reason="JOB_ENDED", metadata={"job_id": str(job_id), "state": ended.name})
    return job


def refusal(job: job_pb2.Job, what: str, instead: str) -> EbbError:
    stands = state_of(job).name
    said = f"job {job.id} is {stands} and cannot be {what}; {instead}"
    return FailedPrecondition(said, reason="WRONG_STATE", metadata={"job_id": str(job.id), "state": stands})


def told_to_leave(state: State, job: job_pb2.Job, reason: JobReason) -> job_pb2.Job:
    """Stop the job, and return its state directly after it was told to stop."""
    leave(state, job, reason)
    told = state.find(job.id)
    _goes(state, job)
    return told


def _goes(state: State, job: job_pb2.Job) -> None:
    if not state.by_hand:
        finish(state, job.id, TOLD)
