"""Migrations in the fake cluster: a job begins at its destination at once."""

from collections import Counter

from ebb.v1 import job_pb2, scheduler_pb2

from client_sdk.errors import FailedPrecondition
from client_sdk.models import JobEventKind, JobReason, JobState
from client_sdk.testing import _nodes
from client_sdk.testing._handlers import live, refusal
from client_sdk.testing._lifecycle import begin
from client_sdk.testing._state import State, state_of


def migrate(state: State, request: scheduler_pb2.MigrateRequest) -> job_pb2.Job:
    job = live(state, request.job_id)
    places = list(request.destinations)
    for place in places:
        _nodes.known(state, place.node)
    if len(places) == 1:
        places *= len(job.tasks) or 1
    if len(places) != (len(job.tasks) or 1):
        said = f"job {job.id} has {len(job.tasks)} tasks; name one node for all, or one for each, with devices for all or none"
        raise FailedPrecondition(said, reason="WRONG_NUMBER_OF_PLACES", metadata={"job_id": str(job.id)})
    if state_of(job) is not JobState.RUNNING or job.cancel_requested:
        raise refusal(job, "migrated", "only a running job can")
    if all(task.node == place.node for task, place in zip(job.tasks, places, strict=True)):
        return state.find(job.id)
    tasks = []
    taken: Counter[str] = Counter()
    for task, place in zip(job.tasks, places, strict=True):
        need = len(task.devices)
        free = _nodes.idle_devices(state, place.node)[taken[place.node] :]
        devices = list(place.devices) or free[:need]
        taken[place.node] += need
        if len(free) < need:
            said = f"job {job.id} needs {need} device{'' if need == 1 else 's'}, and node {place.node} has {len(free)} "
            said += f"idle device{'' if len(free) == 1 else 's'} that it can use"
            raise FailedPrecondition(said, reason="NO_ROOM_THERE", metadata={"job_id": str(job.id), "node": place.node})
        tasks.append(job_pb2.Task(rank=task.rank, node=place.node, devices=devices, resources=task.resources))
    where = {"run": job.run, "node": job.node, "reason": JobReason.MIGRATED}
    names = ", ".join(dict.fromkeys(task.node for task in tasks))
    state.tell(job, JobEventKind.MIGRATING, text=f"to {names}, which makes itself ready", **where)
    told = job_pb2.Job()
    told.CopyFrom(state.find(job.id))
    state.tell(job, JobEventKind.VACATED, **where)
    begin(state, job, _nodes.Placed(job.configuration, tasks))
    state.tell(job, JobEventKind.MIGRATED, run=job.run, node=job.node, reason=JobReason.MIGRATED)
    return told
