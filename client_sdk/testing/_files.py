"""Snapshots and results of the fake cluster, and functions, which it calls in this process."""

import hashlib
import io
import pickle
import tempfile
from pathlib import Path

from ebb.v1 import job_pb2, snapshots_pb2

from client_sdk._functions.call import RAISED, execute_call
from client_sdk._functions.packing import COMMAND
from client_sdk.errors import FailedPrecondition, InvalidArgument, NotFound
from client_sdk.testing._state import State
from ebb_common.archive import unpack


def find(state: State, request: snapshots_pb2.FindSnapshotRequest) -> snapshots_pb2.FindSnapshotResponse:
    data = state.files.get(request.digest, b"")
    return snapshots_pb2.FindSnapshotResponse(stored=len(data), complete=_is_whole(request.digest, data))


def put(state: State, request: snapshots_pb2.PutSnapshotRequest) -> snapshots_pb2.PutSnapshotResponse:
    digest, data = request.digest, state.files.get(request.digest, b"")
    if not _is_whole(digest, data) and request.offset == len(data) and len(data) + len(request.data) <= request.size:
        data = state.files[digest] = data + request.data
        if len(data) == request.size and not _is_whole(digest, data):
            del state.files[digest]
            said = f"the content of {digest} is not what the name says: it was damaged on its way; send it again"
            raise InvalidArgument(said, reason="DAMAGED", metadata={"digest": digest})
    return snapshots_pb2.PutSnapshotResponse(stored=len(data), complete=_is_whole(digest, data))


def result(state: State, request: snapshots_pb2.GetResultRequest) -> snapshots_pb2.GetResultResponse:
    job = state.find(request.job_id)
    data = state.results.get((job.id, job.run))
    if data is None:
        where = {"job_id": str(job.id), "run": str(job.run)}
        said = f"job {job.id} (run {job.run}) has left no result, or the result has not arrived from its node yet"
        raise NotFound(said, reason="NO_RESULT", metadata=where)
    return snapshots_pb2.GetResultResponse(data=data[request.offset :][: 1 << 20], size=len(data))


def check_stored(state: State, spec: job_pb2.JobSpec) -> None:
    """Raises FailedPrecondition for a snapshot that is not there."""
    for digest in spec.snapshots:
        if not _is_whole(digest, state.files.get(digest, b"")):
            said = f"you have stored no snapshot {digest}: send it by Snapshots.PutSnapshot, and submit the job again"
            raise FailedPrecondition(said, reason="NO_SUCH_SNAPSHOT", metadata={"digest": digest})


def calls_function(job: job_pb2.Job) -> bool:
    return bool(job.spec.snapshots) and COMMAND in " ".join(job.spec.command)


def call_function(state: State, job: job_pb2.Job) -> int:
    """Calls the function that a job is, in this process, and keeps the result; the exit code of the job."""
    with tempfile.TemporaryDirectory(dir=state.folder) as name:
        folder = Path(name) / "code"
        unpack(io.BytesIO(state.files[job.spec.snapshots[-1]]), folder)
        outcome = execute_call(str((folder / COMMAND).parent))
    state.results[(job.id, job.run)] = pickle.dumps(outcome)
    return 0 if outcome["good"] else RAISED


def _is_whole(digest: str, data: bytes) -> bool:
    return hashlib.sha256(data).hexdigest() == digest
