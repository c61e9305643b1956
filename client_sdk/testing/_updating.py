"""Changes of jobs in the fake cluster, as users ask for them."""

from datetime import timedelta

from ebb.v1 import job_pb2, scheduler_pb2
from google.protobuf.duration_pb2 import Duration

from client_sdk.errors import FailedPrecondition
from client_sdk.models import Dependency, JobEventKind, JobState
from client_sdk.testing._handlers import DEFAULT_GRACE, live, refusal, still_awaited
from client_sdk.testing._lifecycle import go_on
from client_sdk.testing._state import State, state_of


def update(state: State, request: scheduler_pb2.UpdateRequest) -> job_pb2.Job:
    job = live(state, request.job_id)
    said = []
    if request.HasField("dependencies"):
        if state_of(job) is not JobState.QUEUED or job.run:
            raise refusal(job, "given other dependencies", "only a job that has never started can")
        waits = still_awaited(state, request.dependencies)
        if job.id in _awaited(state, waits):
            where = {"job_id": str(job.id)}
            cycle = f"job {job.id} would wait for itself, through its dependencies"
            raise FailedPrecondition(cycle, reason="DEPENDENCY_CYCLE", metadata=where)
        state.waits_for[job.id] = waits
        state.show_queued(job)
        said.append("dependencies")
    if request.HasField("priority"):
        job.priority = request.priority
        said.append("priority")
    if request.HasField("time_limit"):
        job.ClearField("time_limit")
        if request.time_limit.ToTimedelta():
            job.time_limit.CopyFrom(request.time_limit)
        said.append("time limit")
    if request.WhichOneof("grace") is not None:
        _set_grace(state, job, request)
        said.append("grace period")
    if request.HasField("skip_steps"):
        job.skip_steps = request.skip_steps
        said.append(f"its next launch skips the steps up to {job.skip_steps}" if job.skip_steps else "no step is skipped")
    if request.share and request.share != (job.share_next or job.spec.share or job_pb2.SHARE_MODE_EXCLUSIVE):
        said.append(_set_share(job, request.share))
    state.tell(job, JobEventKind.UPDATED, run=job.run, text="; ".join(said))
    told = state.find(job.id)
    go_on(state)
    return told


def _set_share(job: job_pb2.Job, share: job_pb2.ShareMode) -> str:
    """Raises FailedPrecondition for a job that cannot hold its device so."""
    mode, why = job_pb2.ShareMode.Name(share).removeprefix("SHARE_MODE_").lower(), ""
    if not (job.spec.gpu_fraction_ppm or job.spec.gpu_memory_mib):
        why = "it asks for whole devices, and has them alone; submit it with a part of one (--gpus 0.5)"
    elif share == job_pb2.SHARE_MODE_SLICED and not job.spec.gpu_fraction_ppm:
        why = "it asks for memory of a device, and not for a part of the time; submit it with a fraction (--gpus 0.5)"
    if why:
        said = f"job {job.id} cannot be made {mode}: {why}"
        raise FailedPrecondition(said, reason="CANNOT_SHARE", metadata={"job_id": str(job.id), "share": mode.upper()})
    job.share_next = job_pb2.SHARE_MODE_UNSPECIFIED
    if state_of(job) in (JobState.QUEUED, JobState.SUSPENDED):
        job.spec.share = share
    elif share != job.spec.share:
        job.share_next = share
    return f"share {mode}"


def _set_grace(state: State, job: job_pb2.Job, request: scheduler_pb2.UpdateRequest) -> None:
    """Raises FailedPrecondition for a grace period that leaves no time for the checkpoint signal or command."""
    period = Duration(seconds=DEFAULT_GRACE) if request.grace_follows else request.grace_period
    spec = job.spec
    least = int(spec.checkpoint_signal.partition("@")[2] or 0)
    saves = spec.checkpoint_signal or spec.checkpoint_command
    if saves and period.ToTimedelta() < max(timedelta(seconds=least), timedelta(microseconds=1)):
        raise FailedPrecondition(
            f"a grace period of {period.ToTimedelta().total_seconds():g} s leaves no time for the job's checkpoint signal or "
            "command; give a longer one",
            reason="GRACE_TOO_SHORT",
        )
    first = Duration()
    first.CopyFrom(spec.grace_period)
    state.first_graces.setdefault(job.id, first)
    spec.grace_period.CopyFrom(period)
    job.grace_follows = request.grace_follows


def _awaited(state: State, waits: tuple[Dependency, ...]) -> set[int]:
    """Every job that these wait for, through others, too."""
    found: set[int] = set()
    left = [d.job_id for d in waits]
    while left:
        job_id = left.pop()
        if job_id not in found:
            found.add(job_id)
            left += [d.job_id for d in state.waits_for.get(job_id, ())]
    return found
