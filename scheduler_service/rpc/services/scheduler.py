"""ebb.v1.Scheduler: jobs, for users."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from ebb.v1 import job_pb2, scheduler_pb2_grpc
from ebb.v1 import scheduler_pb2 as pb

from scheduler_service.core.errors import FailedPrecondition, LookupNeeded, NotFound, no_such_vc
from scheduler_service.core.messages import (
    Accepted,
    CancelRequested,
    Event,
    HoldRequested,
    JobRequest,
    MigrateRequested,
    ReleaseRequested,
    RequeueRequested,
    ResizeRequested,
    ResumeRequested,
    Submitted,
    SuspendRequested,
    UpdateRequested,
)
from scheduler_service.core.model import Job, JobState, Run, ShareMode
from scheduler_service.policies.explain.launch import why_in_this_configuration, why_it_holds_devices_so
from scheduler_service.rpc.access import user
from scheduler_service.rpc.backend import Backend
from scheduler_service.rpc.chunking import LARGEST_BYTES, chunks, in_turns
from scheduler_service.rpc.convert.jobs import add_closeness, event_out, job_out
from scheduler_service.rpc.convert.specs import dependencies_in, spec_in
from scheduler_service.rpc.convert.values import duration_in
from scheduler_service.rpc.method_table import Context
from scheduler_service.rpc.paging import DEFAULT_PAGE, last_id
from scheduler_service.rpc.redaction import sight
from scheduler_service.rpc.services import logs
from scheduler_service.rpc.services.at_risk import jobs_at_risk, try_out
from scheduler_service.rpc.services.explain import Answers, preempted_out
from scheduler_service.rpc.services.observation_answers import checkpoints_of, mini_batch_of, steps_of, turn_of
from scheduler_service.rpc.services.runs import list_runs
from scheduler_service.rpc.services.shares import shares
from scheduler_service.rpc.services.snapshots import check_stored
from scheduler_service.rpc.services.spec_checks import check_checkpoint, check_configurations, check_spec
from scheduler_service.run.engine_thread import NotLeading
from scheduler_service.run.read_model import JobView

T = TypeVar("T")

MOST_COUNTED = 1_000_000
"""Jobs: what is counted takes a second or so in a database of many more."""
AT_ONCE = 100
"""Jobs that are read for a page at once."""


Ends = tuple[tuple[int, JobState], ...]


class Scheduler(scheduler_pb2_grpc.SchedulerServicer):
    def __init__(self, backend: Backend, transfers: logs.Transfers) -> None:
        self._backend = backend
        self._transfers = transfers
        self._answers = Answers(backend)

    async def Submit(self, request: pb.SubmitRequest, _context: Context) -> pb.SubmitResponse:
        check_spec(request.spec)
        spec = spec_in(request.spec, self._backend.default_grace_us)
        check_configurations(spec)
        check_checkpoint(spec)
        given = request.spec.HasField("grace_period")
        who = user()
        if spec.snapshots and not request.validate_only:
            await check_stored(self._backend, who, spec.snapshots)

        async def submit(ends: Ends) -> pb.SubmitResponse:
            if request.validate_only:
                return await self._answers.preview(Submitted(who, "", spec, given, ends))
            return pb.SubmitResponse(job=await self._ask(Submitted(who, request.request_id, spec, given, ends)))

        return await self._with_ends(submit)

    async def Get(self, request: pb.GetRequest, _context: Context) -> pb.GetResponse:
        found = await self._backend.find(request.job_id)
        job = await self._show_job(found)
        if found.runs:
            job.began_from, job.checkpoint = checkpoints_of(self._backend.leads, found.runs[0])
        if (leading := self._backend.leads) is not None:
            job.steps.extend(steps for run in found.runs if (steps := steps_of(leading, run)) is not None)
            job.mini_batches.extend(each for run in found.runs if (each := mini_batch_of(leading, run)) is not None)
            add_closeness(job, found, leading.view)
            job.turn = turn_of(leading, found.runs)
        return pb.GetResponse(job=job)

    async def List(self, request: pb.ListRequest, _context: Context) -> pb.ListResponse:
        backend = self._backend
        size = request.page_size or DEFAULT_PAGE
        states = [JobState(s) for s in request.states if s]
        begins = last_id(request.page_token)
        names = await backend.names()
        leading = backend.leads
        seen = sight(backend.secrets)
        if request.mine and request.user not in ("", user()):
            return pb.ListResponse()
        only = request.virtual_cluster, user() if request.mine else request.user, request.name

        def make_job(found: tuple[Job, tuple[Run, ...]]) -> job_pb2.Job:
            # A live job's row comes from the leader's view, whose reason knows its place in the queue.
            view = (leading and leading.view.job(found[0].id)) or JobView(*found)
            out = job_out(view, names, seen)
            if leading is not None and view.runs and view.runs[0].group:
                out.turn = turn_of(leading, view.runs)
            return out

        page: list[job_pb2.Job] = []
        room, more = LARGEST_BYTES, True
        while more and room > 0 and len(page) < size:
            wanted = min(size - len(page), AT_ONCE)
            found = await backend.read(backend.reader.list_jobs, states, begins, wanted + 1, *only)
            if not found and not page and request.virtual_cluster:
                await _check_vc(backend, request.virtual_cluster)
            piece = next(chunks(found[:wanted], make_job, room))
            page += piece
            more = len(piece) < len(found)
            room -= sum(job.ByteSize() for job in piece) if len(piece) == wanted else room
            begins = page[-1].id if page else None
        answer = pb.ListResponse(jobs=page, next_page_token=str(page[-1].id) if more else "")
        if request.count_more and more:
            answer.more = await backend.read(backend.reader.count_jobs, states, begins, MOST_COUNTED, *only)
        return answer

    async def Watch(self, request: pb.SchedulerWatchRequest, _context: Context) -> AsyncIterator[pb.SchedulerWatchResponse]:
        leading = self._backend.leading
        nodes = leading.view.nodes
        seen = sight(self._backend.secrets)
        if request.job_id and (found := await self._backend.find(request.job_id)).job.ended_us is not None:
            yield pb.SchedulerWatchResponse(
                snapshot=not leading.view.holds_after(request.after_commit),
                jobs=[job_out(found, nodes, seen)],
                commit_no=leading.view.commit_no,
            )
            return
        async for update in leading.view.watch_jobs(request.after_commit, request.job_id):
            jobs = update.jobs
            if request.job_id and update.snapshot and not jobs:  # it has just ended: the view holds live jobs only
                jobs = (await self._backend.find(request.job_id),)
            async for piece, first, last in in_turns(jobs, lambda view: job_out(view, nodes, seen)):
                snapshot, commit_no = update.snapshot and first, update.commit_no if last else 0
                yield pb.SchedulerWatchResponse(snapshot=snapshot, jobs=piece, commit_no=commit_no)
            if request.job_id and any(view.job.ended_us is not None for view in jobs):
                return
        raise NotLeading  # the view was closed: the watcher looks for the next leader

    async def Cancel(self, request: pb.CancelRequest, _context: Context) -> pb.CancelResponse:
        try:
            job = await self._ask(CancelRequested(request.job_id))
        except NotFound:  # not live: has it ended?
            job = await self._show_job(await self._backend.find(request.job_id))
        return pb.CancelResponse(job=job)

    async def Suspend(self, request: pb.SuspendRequest, _context: Context) -> pb.SuspendResponse:
        event = SuspendRequested(request.job_id, request.park, request.park_only)
        stops = not (request.park or request.park_only)
        return pb.SuspendResponse(**await self._stop(event, request.validate_only, stops))

    async def Resume(self, request: pb.ResumeRequest, _context: Context) -> pb.ResumeResponse:
        return pb.ResumeResponse(job=await self._request(ResumeRequested(request.job_id)))

    async def Hold(self, request: pb.HoldRequest, _context: Context) -> pb.HoldResponse:
        return pb.HoldResponse(job=await self._request(HoldRequested(request.job_id)))

    async def Release(self, request: pb.ReleaseRequest, _context: Context) -> pb.ReleaseResponse:
        return pb.ReleaseResponse(job=await self._request(ReleaseRequested(request.job_id)))

    async def Requeue(self, request: pb.RequeueRequest, _context: Context) -> pb.RequeueResponse:
        return pb.RequeueResponse(**await self._stop(RequeueRequested(request.job_id, request.run), request.validate_only))

    async def Resize(self, request: pb.ResizeRequest, _context: Context) -> pb.ResizeResponse:
        return pb.ResizeResponse(job=await self._request(ResizeRequested(request.job_id, request.tasks)))

    async def Migrate(self, request: pb.MigrateRequest, _context: Context) -> pb.MigrateResponse:
        nodes = tuple(place.node for place in request.destinations)
        devices = tuple(tuple(place.devices) for place in request.destinations)
        event = MigrateRequested(request.job_id, nodes, devices if any(devices) else ())
        return pb.MigrateResponse(**await self._stop(event, request.validate_only))

    async def Update(self, request: pb.UpdateRequest, _context: Context) -> pb.UpdateResponse:
        priority = request.priority if request.HasField("priority") else None
        limit = duration_in(request.time_limit) if request.HasField("time_limit") else None
        wanted = dependencies_in(request.dependencies.dependencies) if request.HasField("dependencies") else None
        grace = duration_in(request.grace_period) if request.HasField("grace_period") else None
        skip = request.skip_steps if request.HasField("skip_steps") else None

        share = ShareMode(request.share) if request.share else None

        async def update(ends: Ends) -> pb.UpdateResponse:
            change = grace, request.grace_follows, skip, share
            event = UpdateRequested(request.job_id, priority, limit, wanted, ends, *change)
            return pb.UpdateResponse(job=await self._request(event))

        return await self._with_ends(update)

    async def Explain(self, request: pb.ExplainRequest, _context: Context) -> pb.ExplainResponse:
        found = await self._backend.find(request.job_id)
        explanation = await self._answers.explain(found.job)
        story = [event for event, _ in await self._backend.read(self._backend.reader.story, request.job_id)]
        explanation.configuration_reason = why_in_this_configuration(found.job, story)
        # Of those who came later, only the share group tells.
        explanation.sharing_reason = why_it_holds_devices_so(found.job, story) or explanation.sharing_reason
        if (cost := preempted_out(story, found)) is not None:
            by = await self._backend.read(self._backend.reader.find_job, cost.by_job_id)
            cost.by_user = by[0].user if by else ""
            explanation.preempted.CopyFrom(cost)
        job = await self._show_job(found)
        if (leading := self._backend.leads) is not None:
            add_closeness(job, found, leading.view)
        return pb.ExplainResponse(job=job, explanation=explanation)

    async def Shares(self, request: pb.SharesRequest, _context: Context) -> pb.SharesResponse:
        return await shares(self._backend.leading, request.virtual_cluster)

    async def Story(self, request: pb.StoryRequest, _context: Context) -> pb.StoryResponse:
        backend = self._backend
        events = await backend.read(backend.reader.story, request.job_id)
        if not events:
            await backend.find(request.job_id)
        names = await backend.names()
        return pb.StoryResponse(events=[event_out(event, commit_no, names) for event, commit_no in events])

    async def ListRuns(self, request: pb.ListRunsRequest, _context: Context) -> pb.ListRunsResponse:
        return await list_runs(self._backend, request)

    async def Logs(self, request: pb.LogsRequest, context: Context) -> AsyncIterator[pb.LogsResponse]:
        async for response in logs.read_logs(self._backend, self._transfers, request, context):
            yield response

    async def _stop(self, event: JobRequest, only_validate: bool, stops: bool = True) -> dict[str, Any]:
        """Handle a request that may stop a job's run; return the response's fields. `stops`: report which work is lost."""
        lost = [] if only_validate or not stops else await jobs_at_risk(self._backend, (event.job_id,))
        job = await self._request(event, only_validate)
        if only_validate and stops:
            lost = await jobs_at_risk(self._backend, (event.job_id,), wait=True)
        return {"job": job, "jobs_at_risk": lost}

    async def _request(self, event: JobRequest, only_validate: bool = False) -> job_pb2.Job:
        """Handle a user's request about a job, which may have ended."""
        try:
            if only_validate:
                await try_out(self._backend, event)
                return await self._show_job(await self._backend.find(event.job_id))
            return await self._ask(event)
        except LookupNeeded:
            raise
        except NotFound as missing:
            if missing.reason != "NO_LIVE_JOB":
                raise
            found = await self._backend.find(event.job_id)  # has it ended?
            ended = found.job.state.name
            text = f"job {event.job_id} has ended as {ended}, which nothing changes; submit it again for another try"
            raise FailedPrecondition("JOB_ENDED", text, job_id=str(event.job_id), state=ended) from None

    async def _with_ends(self, attempt: Callable[[Ends], Awaitable[T]]) -> T:
        """Makes a request that may depend on jobs that have ended: those are looked up, and it is made again. Another of them
        may end meanwhile."""
        ends: dict[int, JobState] = {}
        while True:
            try:
                return await attempt(tuple(sorted(ends.items())))
            except LookupNeeded as needed:
                found = await self._backend.read(self._backend.reader.find_ends, needed.jobs)
                if len(found) < len(needed.jobs):
                    missing = next(job_id for job_id in needed.jobs if job_id not in found)
                    raise LookupNeeded((missing,)) from None  # its message says that the job does not exist
                ends |= found

    async def _ask(self, event: Event) -> job_pb2.Job:
        """Have the engine handle the event, and return the job after it."""
        leading = self._backend.leading
        reply = await leading.service.handle(event)
        assert isinstance(reply, Accepted)
        found = leading.view.job(reply.job_id) or await self._backend.find(reply.job_id)
        return job_out(found, leading.view.nodes, sight(self._backend.secrets))

    async def _show_job(self, found: JobView) -> job_pb2.Job:
        """Return the job as the caller may see it."""
        return job_out(found, await self._backend.names(), sight(self._backend.secrets))


async def _check_vc(backend: Backend, name: str) -> None:
    """Raise NotFound if no such virtual cluster exists and no job names it: it is probably misspelled. Jobs of a deleted
    virtual cluster can still be listed."""
    names = await backend.read(backend.reader.market.virtual_clusters)
    if name not in names.values() and not await backend.read(backend.reader.list_jobs, [], None, 1, name):
        raise no_such_vc(name, names.values())
