"""ebb.v1.Scheduler: jobs, for users."""

from collections.abc import AsyncIterator
from typing import Any

from ebb.v1 import job_pb2, scheduler_pb2, scheduler_pb2_grpc

from scheduler_service.core.errors import NotFound
from scheduler_service.core.job import JobState
from scheduler_service.core.messages import Accepted, CancelRequested, Event, Submitted
from scheduler_service.rpc.convert import event_out, job_out, spec_in
from scheduler_service.rpc.front import Front, Leading
from scheduler_service.rpc.interceptors import Context, InvalidArgument
from scheduler_service.run.service import NotLeading
from scheduler_service.run.view import JobView

DEFAULT_PAGE = 100
LARGEST_SPEC = 1 << 20
_LAST_ID = 2**63 - 1  # the largest that the database can be asked about


class Scheduler(scheduler_pb2_grpc.SchedulerServicer):
    def __init__(self, front: Front) -> None:
        self._front = front

    async def Submit(self, request: scheduler_pb2.SubmitRequest, _context: Context) -> scheduler_pb2.SubmitResponse:  # noqa: N802
        if request.spec.ByteSize() > LARGEST_SPEC:
            too_large = f"spec: must be at most {LARGEST_SPEC} bytes"
            raise InvalidArgument("INVALID_FIELD", too_large, field="spec", rule="bytes.max_len")
        spec = spec_in(request.spec, self._front.default_grace_us)
        given = request.spec.HasField("grace_period")
        job = await self._ask(Submitted(self._front.user, request.request_id, spec, given))
        return scheduler_pb2.SubmitResponse(job=job)

    async def Get(self, request: scheduler_pb2.GetRequest, _context: Context) -> scheduler_pb2.GetResponse:  # noqa: N802
        leading = self._front.leading
        return scheduler_pb2.GetResponse(job=job_out(await _find(leading, request.job_id), leading.view.nodes))

    async def List(self, request: scheduler_pb2.ListRequest, _context: Context) -> scheduler_pb2.ListResponse:  # noqa: N802
        leading = self._front.leading
        size = request.page_size or DEFAULT_PAGE
        states = [JobState(s) for s in request.states if s]
        before = min(int(request.page_token), _LAST_ID) if request.page_token else None
        found = await leading.read(leading.reader.list_jobs, states, before, size + 1)
        names = leading.view.nodes
        # A live job's row comes from the view, whose reason knows its place in the queue.
        page = [leading.view.job(job.id) or JobView(job, run) for job, run in found[:size]]
        token = str(found[size - 1][0].id) if len(found) > size else ""
        return scheduler_pb2.ListResponse(jobs=[job_out(view, names) for view in page], next_page_token=token)

    async def Watch(  # noqa: N802
        self, request: scheduler_pb2.SchedulerWatchRequest, _context: Context
    ) -> AsyncIterator[scheduler_pb2.SchedulerWatchResponse]:
        leading = self._front.leading
        nodes = leading.view.nodes
        if request.job_id and (found := await _find(leading, request.job_id)).job.ended_us is not None:
            yield scheduler_pb2.SchedulerWatchResponse(
                snapshot=not leading.view.holds_after(request.after_commit),
                jobs=[job_out(found, nodes)],
                commit_no=leading.view.commit_no,
            )
            return
        async for update in leading.view.watch_jobs(request.after_commit, request.job_id):
            jobs = update.jobs
            if request.job_id and update.snapshot and not jobs:  # it has just ended: the view holds live jobs only
                jobs = (await _find(leading, request.job_id),)
            yield scheduler_pb2.SchedulerWatchResponse(
                snapshot=update.snapshot, jobs=[job_out(view, nodes) for view in jobs], commit_no=update.commit_no
            )
            if request.job_id and any(view.job.ended_us is not None for view in jobs):
                return
        raise NotLeading  # the view was closed: the watcher looks for the next leader

    async def Cancel(self, request: scheduler_pb2.CancelRequest, _context: Context) -> scheduler_pb2.CancelResponse:  # noqa: N802
        try:
            job = await self._ask(CancelRequested(request.job_id))
        except NotFound:  # not live: has it ended?
            leading = self._front.leading
            job = job_out(await _find(leading, request.job_id), leading.view.nodes)
        return scheduler_pb2.CancelResponse(job=job)

    async def Story(self, request: scheduler_pb2.StoryRequest, _context: Context) -> scheduler_pb2.StoryResponse:  # noqa: N802
        leading = self._front.leading
        events = await leading.read(leading.reader.story, request.job_id)
        if not events:
            await _find(leading, request.job_id)
        names = leading.view.nodes
        return scheduler_pb2.StoryResponse(events=[event_out(event, commit_no, names) for event, commit_no in events])

    async def _ask(self, event: Event) -> job_pb2.Job:
        """Has the engine take the event, and returns the job as it then stands."""
        leading = self._front.leading
        reply = await leading.service.handle(event)
        assert isinstance(reply, Accepted)
        return job_out(leading.view.job(reply.job_id) or await _find(leading, reply.job_id), leading.view.nodes)


async def _find(leading: Leading, job_id: int) -> JobView:
    """The job, live or ended. Raises NotFound."""
    if (live := leading.view.job(job_id)) is not None:
        return live
    stored: Any = await leading.read(leading.reader.find_job, job_id)
    if stored is None:
        raise NotFound("NO_SUCH_JOB", f"there is no job {job_id}; `ebb list --all` shows those there are", job_id=str(job_id))
    return JobView(*stored)
