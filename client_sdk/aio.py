"""The client for asyncio: what `Client` does, awaited."""

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from client_sdk import _requests
from client_sdk._waiting import Waiting, deadline_in, is_last
from client_sdk.errors import DeadlineExceeded, FailedPrecondition, Unavailable
from client_sdk.models import Job, JobClass, JobEvent, JobSpec, JobState, JobUpdate, Node

if TYPE_CHECKING:
    from client_sdk._aio_transport import AsyncTransport


class AsyncClient:
    """A connection to a scheduler, made with the first call, for one event loop. Any number of its tasks may share it.

    >>> async def train(names):
    ...     async with AsyncClient() as client:
    ...         jobs = [await client.submit(["python", "train.py", name], devices=1) for name in names]
    ...         return await asyncio.gather(*map(client.wait, jobs))

    Arguments, answers, retries and errors are those of `Client`. A task that is cancelled gives up its call at once; what
    it asked for may have happened all the same, as with DeadlineExceeded. `list`, `watch` and `logs` are asynchronous
    generators: who may leave a loop over one early closes it by `contextlib.aclosing`, as with any such generator.
    """

    def __init__(self, address: str | None = None, *, timeout: float = 30.0) -> None:
        self.address = _requests.address(address)
        self._timeout = timeout
        self._closed = False
        self._made: AsyncTransport | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection, and with it every call and watch under way: they raise Cancelled. Safe to repeat."""
        self._closed = True
        if self._made is not None:
            await self._made.close()

    @property
    def _transport(self) -> "AsyncTransport":
        from client_sdk._aio_transport import AsyncTransport  # with the first call, as in Client

        if self._closed:
            raise FailedPrecondition("this AsyncClient is closed; make another")
        if self._made is None:
            self._made = AsyncTransport(self.address, self._timeout)
        return self._made

    async def submit(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        name: str = "",
        job_class: JobClass | Literal["trial", "best-effort"] = "best-effort",
        cpus: float = 1,
        memory: str | int = "1GiB",
        devices: int = 0,
        grace: float | str | timedelta | None = None,
        env: Mapping[str, str] | None = None,
        working_directory: str | os.PathLike[str] | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Job:
        """As `Client.submit`. Give a request_id where the task may be cancelled and the job submitted again."""
        spec = _requests.job_spec(
            command,
            name=name,
            job_class=job_class,
            cpus=cpus,
            memory=memory,
            devices=devices,
            grace=grace,
            env=env,
            working_directory=working_directory,
        )
        return await self.submit_spec(spec, request_id=request_id, timeout=timeout)

    async def submit_spec(self, spec: JobSpec, *, request_id: str | None = None, timeout: float | None = None) -> Job:
        """As `Client.submit_spec`."""
        return await self._transport.ask(_requests.submit(spec, request_id), timeout)

    async def get(self, job_id: int) -> Job:
        """As `Client.get`. Raises NotFound."""
        return await self._transport.ask(_requests.Get(job_id))

    async def list(self, *, states: Sequence[JobState] = (), page_size: int = 500) -> AsyncGenerator[Job, None]:
        """As `Client.list`: newest first, fetched page by page."""
        token = ""
        while True:
            page = await self._transport.ask(_requests.ListPage(tuple(states), page_size, token))
            for job in page.jobs:
                yield job
            if not (token := page.next_token):
                return

    async def watch(
        self, job_id: int | None = None, *, after_commit: int = 0, timeout: float | None = None
    ) -> AsyncGenerator[JobUpdate, None]:
        """As `Client.watch`: a snapshot, then every change, over connections that break."""
        async with aclosing(self._transport.watch(job_id or 0, after_commit, deadline_in(timeout))) as updates:
            async for update in updates:
                yield update
                if is_last(update, job_id):
                    return

    async def wait(self, job: Job | int, timeout: float | None = None) -> Job:
        """As `Client.wait`. Waits share the client's connection, however many there are."""
        waiting = Waiting(_requests.job_id(job), timeout)
        try:
            async with aclosing(self.watch(waiting.job_id, timeout=timeout)) as updates:
                async for update in updates:
                    if (ended := waiting.saw(update)) is not None:
                        return ended
        except (DeadlineExceeded, Unavailable) as error:
            looked = await self.get(waiting.job_id) if waiting.needs_a_look(error) else None
            return waiting.too_late(looked)
        raise waiting.gone(self.address)

    async def cancel(self, job_id: int) -> Job:
        """As `Client.cancel`."""
        return await self._transport.ask(_requests.Cancel(job_id))

    async def story(self, job_id: int) -> Sequence[JobEvent]:
        """As `Client.story`. Raises NotFound."""
        return await self._transport.ask(_requests.Story(job_id))

    async def nodes(self) -> Sequence[Node]:
        """As `Client.nodes`."""
        return await self._transport.ask(_requests.ListNodes())

    async def logs(self, job_id: int, *, follow: bool = False) -> AsyncGenerator[str, None]:
        """As `Client.logs`; what that raises at once comes with the first piece here."""
        from client_sdk import _logs

        job = await self.get(job_id)
        pieces = _logs.follow_async(self.watch(job_id), job) if follow else _logs.read_async(job)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece
