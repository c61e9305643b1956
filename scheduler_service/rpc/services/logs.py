"""Logs on their way from a node to a user, through here and without being kept here.

A user's stream and the agent's call that answers it are paired by a random id. The next piece is taken from the agent when
the user's stream has taken the last one. So a user who reads slowly slows the agent's reading down, by gRPC's own flow
control.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

from ebb.agent.v1 import agent_link_pb2
from ebb.v1 import scheduler_pb2

from scheduler_service.core.errors import FailedPrecondition, NotFound, Refused, ResourceExhausted
from scheduler_service.core.model import Job, RunKey
from scheduler_service.rpc.backend import Backend
from scheduler_service.rpc.interceptors import OutOfRange, Unavailable, check
from scheduler_service.rpc.method_table import Context
from scheduler_service.run.dispatch import Link, LogRequest
from scheduler_service.run.engine_thread import NotLeading
from scheduler_service.run.read_model import JobView

ANSWER_LIMIT = 10.0
"""Seconds in which an agent must have begun to answer."""

Sent = agent_link_pb2.SendLogRequest


class Transfer:
    """One log between the agent's call, which `carry` serves, and the user's, which asks for `next`."""

    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._wanted = asyncio.Event()
        self._came: asyncio.Queue[Sent | None] = asyncio.Queue()
        """Never holds more than was asked for, which is one, and the end."""
        self._carrier: asyncio.Task[Any] | None = None
        self._closed = False

    async def next(self) -> Sent | None:
        """Return the next message of the agent; None if it was cut off."""
        self._wanted.set()
        return await self._came.get()

    async def carry(self, first: Sent, rest: AsyncIterator[Sent]) -> None:
        """Hands on what the agent sends, piece by piece as that is asked for, until one of the two sides ends it.

        Raises InvalidArgument for a message that breaks a rule.
        """
        self._carrier = asyncio.current_task()
        message: Sent | None = first
        try:
            while message is not None and not self._closed:
                check(message)
                await self._wanted.wait()
                self._wanted.clear()
                self._came.put_nowait(message)
                await self._wanted.wait()  # nothing is read ahead
                message = await anext(rest, None)
        except asyncio.CancelledError:
            if not self._closed:
                raise
        finally:
            self._carrier = None
            self._came.put_nowait(None)

    def close(self, _: object = None) -> None:
        """Ends it from the user's side, or because the agent's link has ended. Safe to repeat."""
        self._closed = True
        self._forget()
        self._came.put_nowait(None)
        if self._carrier is not None:
            self._carrier.cancel()


class Transfers:
    """The logs that agents were asked for and have not begun to send. For the event loop alone."""

    def __init__(self) -> None:
        self._by_id: dict[str, Transfer] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def ask(self, link: Link, job_id: int, run: int, task: int, offset: int, follow: bool) -> Transfer:
        """Asks an agent for a log. Who asks has to close what is returned."""
        request = LogRequest(secrets.token_hex(16), job_id, run, task, offset, follow)

        def forget() -> None:
            self._by_id.pop(request.id, None)
            link.closed.remove_done_callback(made.close)

        made = self._by_id[request.id] = Transfer(forget)
        link.closed.add_done_callback(made.close)
        link.outbox.put_nowait(request)
        return made

    async def receive(self, messages: AsyncIterator[Sent]) -> None:
        """Serves an agent's call. Raises NotFound for one that nobody waits for, and InvalidArgument."""
        first = await anext(messages, None)
        transfer = self._by_id.pop(first.id, None) if first is not None else None
        if first is None or transfer is None:
            if first is not None:
                check(first)
            raise NotFound("NO_SUCH_REQUEST", "nobody waits for this log (any more)")
        await transfer.carry(first, messages)


async def read_logs(
    backend: Backend, transfers: Transfers, request: scheduler_pb2.LogsRequest, context: Context
) -> AsyncIterator[scheduler_pb2.LogsResponse]:
    """Yield the responses of Scheduler.Logs."""
    place = await _place(backend, request)
    if place is None:  # the job has ended without that run
        return
    node, run, over = place
    about = {"job_id": str(request.job_id), "run": str(run), "node": node}
    unavailable = Unavailable(
        "NODE_NOT_CONNECTED",
        f"node {node} is not connected, and the log of job {request.job_id} (run {run}) lies there; try again later",
        **about,
        over=str(over).lower(),
    )
    link = backend.leading.dispatch.connected_link(node)
    if link is None:
        raise unavailable
    transfer = transfers.ask(link, request.job_id, run, request.task, request.offset, request.follow)
    # Not left to a `finally` in here: that comes when the generator is collected, if its user has gone.
    context.add_done_callback(lambda _: transfer.close())  # type: ignore[arg-type]  # any callable will do
    at = request.offset
    try:
        async with asyncio.timeout(ANSWER_LIMIT):
            message = await transfer.next()
    except TimeoutError:
        message = None
    while message is not None:
        if message.error:
            raise _error_for_user(message.error, about)
        if message.end:
            return
        yield scheduler_pb2.LogsResponse(data=message.data, offset=at, run=run)
        at += len(message.data)
        message = await transfer.next()
    raise unavailable


def _error_for_user(said: str, about: dict[str, str]) -> Refused:
    """Return the error for the user that corresponds to the agent's. An unknown one is treated as temporary."""
    reason, _, why = said.partition(": ")
    text = f"job {about['job_id']} (run {about['run']}, node {about['node']}): {why}"
    match reason:
        case "NOT_STARTED":
            return FailedPrecondition("NOT_STARTED", text, **about)
        case "LOG_GONE":
            return NotFound("LOG_GONE", text, **about)
        case "OFFSET":
            return OutOfRange("OFFSET", text, **about)
        case "TOO_MANY_LOGS":
            return ResourceExhausted("TOO_MANY_LOGS", text, **about)
        case _:
            return Unavailable("LOG_UNREADABLE", text, **about)


async def _place(backend: Backend, request: scheduler_pb2.LogsRequest) -> tuple[str, int, bool] | None:
    """Return the node and number of the requested run, and whether it has ended; None if the job ended without that run.

    With `follow` it waits for the run to start, unless the job is an array, which has no runs. Raises NotFound, and
    FailedPrecondition (NOT_STARTED).
    """
    view = backend.leading.view
    found = await backend.find(request.job_id)
    while (run := request.run or found.job.run) == 0 or run > found.job.run:
        if not request.follow or found.job.spec.array is not None:
            said = f"job {request.job_id} is {found.job.state.name} and {_not_written(found.job, run)}"
            raise FailedPrecondition("NOT_STARTED", said, job_id=str(request.job_id))
        if found.job.ended_us is not None:
            return None
        found = await _await_change(backend, found)
    key = RunKey(request.job_id, run, request.task)
    task = next((task for task in found.runs if task.key == key), None) or await backend.read(backend.reader.find_run, key)
    if task is None:
        said = f"job {request.job_id} (run {run}) has no task {request.task}"
        raise NotFound("LOG_GONE", said, job_id=str(request.job_id), run=str(run))
    return view.nodes[task.node].name, run, task.phase.over


def _not_written(job: Job, run: int) -> str:
    """Why there is no log of this run; of the last, where it is 0."""
    if job.spec.array is not None:
        return "is an array: its elements are jobs of their own, and have the output"
    if job.ended_us is None:
        return f"{f'has had no run {run} yet' if run else 'has written nothing yet'}; follow it to wait for its output"
    return f"had no run {run}" if run else "has written nothing"


async def _await_change(backend: Backend, known: JobView) -> JobView:
    """The job once it is in another run than it is known to be in, or has ended. Raises NotLeading."""
    job_id = known.job.id
    async for update in backend.leading.view.watch_jobs(job_id=job_id):
        now = update.jobs[0] if update.jobs else await backend.find(job_id)  # in no snapshot: it has just ended
        if now.job.run != known.job.run or now.job.ended_us is not None:
            return now
    raise NotLeading
