"""The output of jobs of the fake cluster, for `Scheduler.Logs`."""

from dataclasses import dataclass
from pathlib import Path

from ebb.v1 import job_pb2, scheduler_pb2

from client_sdk.errors import FailedPrecondition, InvalidArgument, NotFound
from client_sdk.models import ENDED, JobState


@dataclass(frozen=True, slots=True)
class Output:
    """The output of one run."""

    run: int
    """0: the requested run has not started."""
    data: bytes
    """All output up to now."""
    over: bool
    """No more output will follow."""


def log_file(folder: Path, job_id: int, run: int) -> Path:
    return folder / f"{job_id}.{run}.log"


def output(job: job_pb2.Job, request: scheduler_pb2.LogsRequest, folder: Path) -> Output:
    """Return the output of the run. Raises the same errors as the service."""
    state = JobState(job.state)
    run = request.run or job.run
    if run == 0 or run > job.run:
        if not request.follow or job.HasField("array"):
            if job.HasField("array"):
                nothing = "is an array: its elements are jobs of their own, and have the output"
            elif state in ENDED:
                nothing = f"had no run {run}" if run else "has written nothing"
            else:
                yet = f"has had no run {run} yet" if run else "has written nothing yet"
                nothing = f"{yet}; follow it to wait for its output"
            said = f"job {job.id} is {state.name} and {nothing}"
            raise FailedPrecondition(said, reason="NOT_STARTED", metadata={"job_id": str(job.id)})
        return Output(0, b"", state in ENDED)
    where = {"job_id": str(job.id), "run": str(run)}
    if request.task:
        raise NotFound(f"job {job.id} (run {run}) has no task {request.task}", reason="LOG_GONE", metadata=where)
    data = log_file(folder, job.id, run).read_bytes()
    if request.offset > len(data):
        said = f"its log has {len(data)} bytes, and none at {request.offset}; read it from its beginning"
        said = f"job {job.id} (run {run}, node {job.node}): {said}"
        raise InvalidArgument(said, reason="OFFSET", metadata={**where, "node": job.node})
    return Output(run, data, run < job.run or state in ENDED or state is JobState.QUEUED)
