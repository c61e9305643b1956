"""ebb.v1.Snapshots, and the part of ebb.agent.v1.AgentLink that carries snapshots and results.

The engine knows snapshots by their digests alone. Who may read a file follows from its owner: users read their own, and agents
what a job names.
"""

from ebb.agent.v1 import agent_link_pb2
from ebb.v1 import snapshots_pb2 as pb
from ebb.v1 import snapshots_pb2_grpc

from scheduler_service.core.errors import FailedPrecondition, NotFound, ResourceExhausted
from scheduler_service.core.model import Job
from scheduler_service.database import UserFiles
from scheduler_service.rpc.access import user
from scheduler_service.rpc.backend import Backend
from scheduler_service.rpc.interceptors import InvalidArgument
from scheduler_service.rpc.method_table import Context
from scheduler_service.run.token_cache import wall_clock
from scheduler_service.store import DamagedFile, TooMuchStored, UserFile


class Snapshots(snapshots_pb2_grpc.SnapshotsServicer):
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def FindSnapshot(self, request: pb.FindSnapshotRequest, _context: Context) -> pb.FindSnapshotResponse:
        found = await self._backend.in_files(files_of(self._backend).use, user(), request.digest, wall_clock())
        return (
            pb.FindSnapshotResponse()
            if found is None
            else pb.FindSnapshotResponse(stored=found.stored, complete=found.complete)
        )

    async def PutSnapshot(self, request: pb.PutSnapshotRequest, _context: Context) -> pb.PutSnapshotResponse:
        most = files_of(self._backend).limits.snapshot
        found = await put_piece(self._backend, user(), request.digest, request, most, "a snapshot", request.digest)
        return pb.PutSnapshotResponse(stored=found.stored, complete=found.complete)

    async def GetResult(self, request: pb.GetResultRequest, _context: Context) -> pb.GetResultResponse:
        job = (await self._backend.find(request.job_id)).job
        piece = files_of(self._backend).piece
        found = await self._backend.in_files(piece, job.user, result_name(job.id, job.run), request.offset)
        if found is None:
            why = f"job {job.id} (run {job.run}) has left no result, or the result has not arrived from its node yet"
            raise NotFound("NO_RESULT", why, job_id=str(job.id), run=str(job.run))
        return pb.GetResultResponse(data=found[0], size=found[1])


async def check_stored(backend: Backend, owner: str, digests: tuple[str, ...]) -> None:
    """Raises FailedPrecondition for a snapshot that this user has not stored. Those that are there count as used now."""
    for digest in digests:
        found = await backend.in_files(files_of(backend).use, owner, digest, wall_clock())
        if found is None or not found.complete:
            why = f"you have stored no snapshot {digest}: send it by Snapshots.PutSnapshot, and submit the job again"
            raise FailedPrecondition("NO_SUCH_SNAPSHOT", why, digest=digest)


async def for_agent(backend: Backend, request: agent_link_pb2.GetSnapshotRequest) -> agent_link_pb2.GetSnapshotResponse:
    """A piece of a snapshot that a job names. Raises NotFound."""
    job = (await backend.find(request.job_id)).job
    found = None
    if request.digest in job.spec.snapshots:
        found = await backend.in_files(files_of(backend).piece, job.user, request.digest, request.offset)
    if found is None:
        why = f"the snapshot {request.digest} of job {job.id} is not stored any more: submit the job again"
        raise NotFound("NO_SUCH_SNAPSHOT", why, digest=request.digest)
    return agent_link_pb2.GetSnapshotResponse(data=found[0], size=found[1])


async def from_agent(backend: Backend, request: agent_link_pb2.PutResultRequest) -> agent_link_pb2.PutResultResponse:
    """A piece of a result. Raises NotFound for a job that there is not, and ResourceExhausted for a result that is too large.

    Stored whatever else its owner stores: a refused result would be lost. Snapshots find less room then.
    """
    job: Job = (await backend.find(request.job_id)).job
    name = result_name(job.id, request.run)
    found = await put_piece(backend, job.user, name, request, files_of(backend).limits.result, f"a result of job {job.id}")
    return agent_link_pb2.PutResultResponse(stored=found.stored)


def result_name(job_id: int, run: int) -> str:
    return f"result-{job_id}.{run}"


def files_of(backend: Backend) -> UserFiles:
    assert backend.files is not None, "only tests of other things leave it out"
    return backend.files


async def put_piece(
    backend: Backend,
    owner: str,
    name: str,
    piece: pb.PutSnapshotRequest | agent_link_pb2.PutResultRequest,
    most: int,
    what: str,
    digest: str = "",
) -> UserFile:
    """Store a piece, of a snapshot if there is a digest. Raises ResourceExhausted if the file is too large, or the snapshot
    together with all that its owner stores; and InvalidArgument."""
    if piece.size > most:
        why = f"{what} may have {most >> 20} MiB, and this one has {_mib(piece.size)}"
        raise ResourceExhausted("TOO_LARGE", why, size=str(piece.size), most=str(most))
    files = files_of(backend)
    at = wall_clock()
    try:
        return await backend.in_files(
            files.put, owner, name, piece.size, piece.offset, piece.data, at, digest, files.limits.of_user if digest else 0
        )
    except TooMuchStored as error:
        raise ResourceExhausted("TOO_MUCH_STORED", str(error), user=owner, most=str(files.limits.of_user)) from error
    except DamagedFile as error:
        raise InvalidArgument("DAMAGED", str(error), digest=digest) from error


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
