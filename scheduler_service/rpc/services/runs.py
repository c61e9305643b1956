"""The runs of a job, for users."""

from ebb.v1 import scheduler_pb2 as pb

from scheduler_service.rpc.backend import Backend
from scheduler_service.rpc.convert.runs import run_out
from scheduler_service.rpc.paging import DEFAULT_PAGE
from scheduler_service.rpc.services.observation_answers import checkpoints_of


async def list_runs(backend: Backend, request: pb.ListRunsRequest) -> pb.ListRunsResponse:
    """As they are stored, which every answer waits for, with the checkpoints of those that live. Raises NotFound."""
    await backend.find(request.job_id)
    size = request.page_size or DEFAULT_PAGE
    after = None
    if request.page_token:
        run, task = request.page_token.split(".")
        after = min(int(run), 2**31 - 1), min(int(task), 2**31 - 1)
    found = await backend.read(backend.reader.list_runs, request.job_id, after, size + 1)
    names, page = await backend.names(), found[:size]
    more = f"{page[-1].run}.{page[-1].task}" if len(found) > size else ""
    leading, runs = backend.leads, [run_out(run, names) for run in page]
    for row, out in zip(page, runs, strict=True):
        out.began_from, out.checkpoint = checkpoints_of(leading, row)
    return pb.ListRunsResponse(runs=runs, next_page_token=more)
