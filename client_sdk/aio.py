"""The client for asyncio: what `Client` does, awaited."""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from client_sdk._base import BaseClient
from client_sdk._exchange import AsyncExchange
from client_sdk._job_changes import AsyncJobChanges
from client_sdk._nodes import AsyncNodeCalls
from client_sdk._requests import jobs
from client_sdk._snapshots import carry_out_async, take_snapshot, upload
from client_sdk._values.job_options import JobOptions
from client_sdk._values.options import job_id, job_spec
from client_sdk._virtual_clusters import AsyncVirtualClusterCalls
from client_sdk._watch_cursor import LogCourse, Waiting, deadline_in, is_last
from client_sdk.errors import DeadlineExceeded, FailedPrecondition, Unavailable
from client_sdk.models import (
    Explanation,
    Job,
    JobEvent,
    JobPage,
    JobSpec,
    JobState,
    JobUpdate,
    Preview,
    Run,
    Shares,
)

T = TypeVar("T")

if TYPE_CHECKING:
    from client_sdk._functions.executors import AsyncFunctionExecutor
    from client_sdk._transport.asynchronous import AsyncTransport


class AsyncClient(AsyncJobChanges, AsyncNodeCalls, AsyncVirtualClusterCalls, BaseClient["AsyncTransport"]):
    """A connection to a scheduler, made with the first call, for one event loop. Any number of its tasks may share it.

    >>> async def train(names):
    ...     async with AsyncClient() as client:
    ...         jobs = [await client.submit(["python", "train.py", name], devices=1) for name in names]
    ...         return await asyncio.gather(*map(client.wait, jobs))

    Arguments, answers, retries and errors are those of `Client`. Cancelling a task abandons its call immediately, but the
    scheduler may still carry it out, as with DeadlineExceeded. A process forked while an AsyncClient is connected cannot
    use another one: start it by multiprocessing's spawn, or use `Client` there. `list`, `watch` and `logs` are asynchronous
    generators: if a loop over one may end early, close it by `contextlib.aclosing`, as with any such generator.
    """

    def _set_up(self) -> None:
        self.exchange = AsyncExchange(self._ask)
        """As `Client.exchange`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; calls and watches in progress raise Cancelled. Safe to repeat."""
        self._closed = True
        if self._made is not None:
            await self._made.close()

    @property
    def _transport(self) -> "AsyncTransport":
        if self._closed:
            raise FailedPrecondition("this AsyncClient is closed; make another")
        if self._made is None:
            from client_sdk._transport.asynchronous import AsyncTransport  # with the first call, as in Client

            self._made = AsyncTransport(self.address, self._timeout, self._access, self._standby_reads)
        return self._made

    async def _ask(self, request: jobs.Request[T]) -> T:
        return await self._transport.ask(request)

    async def submit(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        request_id: str | None = None,
        timeout: float | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """As `Client.submit`. Pass a request_id if the task may be cancelled and the job submitted again."""
        spec = job_spec(command, **options)
        if options.get("snapshot"):
            import asyncio  # of a program that uses this, it is loaded

            archive = await asyncio.to_thread(take_snapshot, options)
            assert archive is not None
            spec = replace(spec, snapshots=(await carry_out_async(upload(archive), self._ask),))
        return await self.submit_spec(spec, request_id=request_id, timeout=timeout)

    def functions(self, *, python: str | None = None, **options: Unpack[JobOptions]) -> "AsyncFunctionExecutor":
        """As `Client.functions`; the returned executor's `submit` and its futures' `result` are coroutines."""
        from client_sdk._functions.executors import AsyncFunctionExecutor

        return AsyncFunctionExecutor(self, python, options)

    async def submit_spec(self, spec: JobSpec, *, request_id: str | None = None, timeout: float | None = None) -> Job:
        """As `Client.submit_spec`."""
        return await self._transport.ask(jobs.submit(spec, request_id), timeout)

    async def preview(self, command: Sequence[str | os.PathLike[str]], **options: Unpack[JobOptions]) -> Preview:
        """As `Client.preview`."""
        return await self._ask(jobs.TryOut(job_spec(command, **options)))

    async def get(self, job: Job | int) -> Job:
        """As `Client.get`. Raises NotFound."""
        return await self._ask(jobs.OfJob("Get", job_id(job)))

    async def list(
        self,
        *,
        states: Sequence[JobState] = (),
        vc: str = "",
        user: str = "",
        mine: bool = False,
        name: str = "",
        page_size: int = 500,
    ) -> AsyncGenerator[Job, None]:
        """As `Client.list`: newest first, fetched page by page."""
        only, token = jobs.Only(vc, user, mine, name), ""
        while True:
            page = await self._ask(jobs.ListPage(tuple(states), page_size, only, token))
            for job in page.jobs:
                yield job
            if not (token := page.next_page_token):
                return

    async def list_page(
        self,
        *,
        states: Sequence[JobState] = (),
        vc: str = "",
        user: str = "",
        mine: bool = False,
        name: str = "",
        page_size: int = 100,
        page_token: str = "",
        count: bool = True,
    ) -> JobPage:
        """As `Client.list_page`."""
        only = jobs.Only(vc, user, mine, name)
        return await self._ask(jobs.ListPage(tuple(states), page_size, only, page_token, count))

    async def watch(
        self, job: Job | int | None = None, *, after_commit: int = 0, timeout: float | None = None
    ) -> AsyncGenerator[JobUpdate, None]:
        """As `Client.watch`: a snapshot, then every change, across broken connections."""
        watched = None if job is None else job_id(job)
        async with aclosing(self._transport.watch(watched or 0, after_commit, deadline_in(timeout))) as updates:
            async for update in updates:
                yield update
                if is_last(update, watched):
                    return

    async def wait(self, job: Job | int, timeout: float | None = None) -> Job:
        """As `Client.wait`. Waits share the client's connections, 64 on each."""
        waiting = Waiting(job_id(job), timeout)
        try:
            async with aclosing(self.watch(waiting.job_id, timeout=timeout)) as updates:
                async for update in updates:
                    if (ended := waiting.find_ended(update)) is not None:
                        return ended
        except (DeadlineExceeded, Unavailable) as error:
            looked = await self.get(waiting.job_id) if waiting.needs_a_look(error) else None
            return waiting.too_late(looked)
        raise waiting.job_gone_error(self.address)

    async def story(self, job: Job | int) -> Sequence[JobEvent]:
        """As `Client.story`. Raises NotFound."""
        return await self._ask(jobs.Story(job_id(job)))

    async def runs(self, job: Job | int) -> AsyncGenerator[Run, None]:
        """As `Client.runs`."""
        token, of = "", job_id(job)
        while True:
            page = await self._ask(jobs.ListRuns(of, token))
            for run in page.runs:
                yield run
            if not (token := page.next_page_token):
                return

    async def explain(self, job: Job | int) -> Explanation:
        """As `Client.explain`."""
        return await self._ask(jobs.Explain(job_id(job)))

    async def shares(self, vc: str = "") -> Shares:
        """As `Client.shares`."""
        return await self._ask(jobs.ListShares(vc))

    async def logs(
        self, job: Job | int, *, follow: bool = False, run: int | None = None, task: int = 0
    ) -> AsyncGenerator[str, None]:
        """As `Client.logs`; errors that it raises immediately are raised with the first piece here."""
        from client_sdk._transport import logs as _logs

        course = LogCourse(job_id(job), run or 0, task, follow, self._timeout)
        async with aclosing(_logs.read_async(self._transport, course)) as pieces:
            async for piece in pieces:
                yield piece
