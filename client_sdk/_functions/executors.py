"""Functions as jobs, for both kinds of client."""

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, cast

from client_sdk._functions.call import RAISED
from client_sdk._functions.packing import COMMAND, cloudpickle, name_of, pack_function, value_of
from client_sdk._requests.files import GetResult, Piece
from client_sdk._requests.jobs import Request
from client_sdk._snapshots import Asked, carry_out, carry_out_async, take_snapshot, upload
from client_sdk._values.job_options import JobOptions
from client_sdk._values.options import job_spec
from client_sdk.errors import FunctionFailed, InvalidArgument, NotFound
from client_sdk.models import Job, JobReason, JobSpec, JobState

if TYPE_CHECKING:
    from ebb_common.archive import Archive

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

ARRIVAL = 30.0
"""Seconds that a result may take from the end of its job until it has arrived from the node."""
_LOOK_AGAIN = 0.2
_NO_PROGRAM = (126, 127)
"""With these the shell exits if it cannot run a program."""


class Blocking(Protocol):
    """The methods of `Client` that an executor uses."""

    def _ask(self, request: Request[T]) -> T: ...
    def submit_spec(self, spec: JobSpec) -> Job: ...
    def get(self, job: Job | int) -> Job: ...
    def wait(self, job: Job | int, timeout: float | None = None) -> Job: ...
    def cancel(self, job: Job | int) -> Job: ...


class Awaited(Protocol):
    """The methods of `AsyncClient` that an executor uses."""

    async def _ask(self, request: Request[T]) -> T: ...
    async def submit_spec(self, spec: JobSpec) -> Job: ...
    async def get(self, job: Job | int) -> Job: ...
    async def wait(self, job: Job | int, timeout: float | None = None) -> Job: ...
    async def cancel(self, job: Job | int) -> Job: ...


class _Executor:
    """Base of both executors: the options of the jobs, and the snapshot that they share."""

    def __init__(self, python: str | None, options: Mapping[str, Any]) -> None:
        cloudpickle()
        if options.get("array") is not None:
            raise InvalidArgument("a function is no array; submit it once for each element")
        if options.get("working_directory") is not None and options.get("snapshot"):
            raise InvalidArgument("snapshot and working_directory exclude each other here; leave one out")
        self._options = dict(options)
        self._command = [python or _interpreter(options), COMMAND]
        self._spec("check")
        self._snapshot: str | None = None
        """Its digest, once it is stored."""

    def _spec(self, name: str) -> JobSpec:
        options = cast(JobOptions, {"name": name} | {key: value for key, value in self._options.items() if key != "snapshot"})
        command = self._command
        if (folder := self._options.get("working_directory")) is not None:
            # The call is where snapshots are unpacked, and the function is where the user wants it.
            command = ["/bin/sh", "-c", f'exec "$0" "$EBB_SNAPSHOT_DIR/{COMMAND}"', command[0]]
            options["working_directory"] = folder
        return job_spec(command, **options)

    def _take_snapshot(self) -> "Archive | None":
        """The snapshot, if it is not stored yet."""
        return take_snapshot(self._options) if self._snapshot is None else None

    def _digests(self, call: "Archive", archive: "Archive | None") -> Asked[tuple[str, ...]]:
        """Stores what the job needs: its call, and `archive`."""
        if archive is not None:
            self._snapshot = yield from upload(archive)
        digest = yield from upload(call)
        return (self._snapshot, digest) if self._snapshot else (digest,)


def _interpreter(options: Mapping[str, Any]) -> str:
    """The Python of this program, which has what its functions need, such as the kernel of a notebook. An environment that is
    named has a Python of its own."""
    named = options.get("venv") is not None or options.get("conda") is not None
    return "python" if named or not sys.executable else sys.executable


def _job_name(function: Callable[..., Any]) -> str:
    """A name for the job: what else it may not have in it is replaced."""
    plain = "".join(char if char.isascii() and (char.isalnum() or char in "._") else "_" for char in name_of(function))
    return plain.strip("._")[:128] or "function"


class FunctionExecutor(_Executor):
    """Submits functions as jobs with the same options; `Client.functions` makes one."""

    def __init__(self, client: Blocking, python: str | None, options: Mapping[str, Any]) -> None:
        super().__init__(python, options)
        self._client = client

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "FunctionFuture[R]":
        """Submits the call of a function with these arguments; it is on the scheduler's disk when this returns.

        What the function refers to in its own module travels along if that module is the main one; other modules must be
        importable on the node: from the snapshot, or from the environment. Raises InvalidArgument for what cannot be pickled,
        and as `Client.submit` does.
        """
        call = pack_function(function, args, kwargs)
        digests = carry_out(self._digests(call, self._take_snapshot()), self._client._ask)
        spec = self._spec(_job_name(function))

        return FunctionFuture(self._client, self._client.submit_spec(replace(spec, snapshots=digests)))


class FunctionFuture(Generic[R]):
    """The result of a function that runs as a job, once there is one."""

    def __init__(self, client: Blocking, job: Job) -> None:
        self._client = client
        self.job = job
        """As it was when it was last looked at."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of job {self.job.id}, {self.job.state.name}>"

    def done(self) -> bool:
        """Whether the job has ended."""
        if not self.job.ended:
            self.job = self._client.get(self.job)
        return self.job.ended

    def cancel(self) -> None:
        """Asks for the job's end, as `Client.cancel`."""
        self.job = self._client.cancel(self.job)

    def result(self, timeout: float | None = None) -> R:
        """Waits for the end of the job, over preemptions and retries, and returns what the function returned.

        Raises what the function raised, whose cause is then the traceback on the node; FunctionFailed where the job ended
        without a result or with one that cannot be read here; DeadlineExceeded where it has not ended after `timeout` seconds.
        """
        if not self.job.ended:
            self.job = self._client.wait(self.job, timeout)
        _check_ended(self.job)
        limit = time.monotonic() + ARRIVAL
        while True:
            try:
                data = carry_out(_read_result(self.job.id), self._client._ask)
            except NotFound as error:
                if error.reason != "NO_RESULT" or time.monotonic() > limit:
                    raise _missing_result(self.job) from error
                time.sleep(_LOOK_AGAIN)
            else:
                return cast(R, value_of(data, _describe_job(self.job)))


class AsyncFunctionExecutor(_Executor):
    """As FunctionExecutor; `AsyncClient.functions` makes one."""

    def __init__(self, client: Awaited, python: str | None, options: Mapping[str, Any]) -> None:
        super().__init__(python, options)
        self._client = client

    def submit(
        self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, "AsyncFunctionFuture[R]"]:
        """As `FunctionExecutor.submit`."""
        return self._submit(function, pack_function(function, args, kwargs))

    async def _submit(self, function: Callable[..., R], call: "Archive") -> "AsyncFunctionFuture[R]":

        archive = await asyncio.to_thread(self._take_snapshot)
        digests = await carry_out_async(self._digests(call, archive), self._client._ask)
        spec = replace(self._spec(_job_name(function)), snapshots=digests)
        return AsyncFunctionFuture(self._client, await self._client.submit_spec(spec))


class AsyncFunctionFuture(Generic[R]):
    """As FunctionFuture, awaited."""

    def __init__(self, client: Awaited, job: Job) -> None:
        self._client = client
        self.job = job
        """As it was when it was last looked at."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of job {self.job.id}, {self.job.state.name}>"

    async def done(self) -> bool:
        """As `FunctionFuture.done`."""
        if not self.job.ended:
            self.job = await self._client.get(self.job)
        return self.job.ended

    async def cancel(self) -> None:
        """As `FunctionFuture.cancel`."""
        self.job = await self._client.cancel(self.job)

    async def result(self, timeout: float | None = None) -> R:
        """As `FunctionFuture.result`."""
        if not self.job.ended:
            self.job = await self._client.wait(self.job, timeout)
        _check_ended(self.job)
        limit = time.monotonic() + ARRIVAL
        while True:
            try:
                data = await carry_out_async(_read_result(self.job.id), self._client._ask)
            except NotFound as error:
                if error.reason != "NO_RESULT" or time.monotonic() > limit:
                    raise _missing_result(self.job) from error
                await asyncio.sleep(_LOOK_AGAIN)
            else:
                return cast(R, value_of(data, _describe_job(self.job)))


def _read_result(job_id: int) -> Asked[bytes]:
    """The result of a job. Raises NotFound."""
    data = bytearray()
    while True:
        piece: Piece = yield GetResult(job_id, len(data))
        data += piece.data
        if not piece.data or len(data) >= piece.size:
            return bytes(data)


def _check_ended(job: Job) -> None:
    """Raises FunctionFailed for a job that cannot have left a result."""
    raised = job.state is JobState.FAILED and job.reason is JobReason.EXITED and job.exit_code == RAISED
    if job.state is JobState.SUCCEEDED or raised:
        return
    why = f" with code {job.exit_code}" if job.exit_code else f": {job.reason_detail}" if job.reason_detail else ""
    if job.reason is JobReason.LAUNCH_FAILED or job.exit_code in _NO_PROGRAM:
        python = next((word for word in job.spec.command if word.rpartition("/")[2].startswith("python")), "Python")
        why += f". Its node may have no {python}: name one that it has, by python, venv or conda"
    raise FunctionFailed(f"{_describe_job(job)} has no result: the job ended as {job.state.name} ({job.reason.name}){why}")


def _missing_result(job: Job) -> FunctionFailed:
    return FunctionFailed(
        f"{_describe_job(job)} has no result: the job ended as {job.state.name} with code {job.exit_code}, and nothing has "
        f"arrived from its node; see `ebb logs {job.id}`. A result may also have been larger than the site takes"
    )


def _describe_job(job: Job) -> str:
    return f"{job.spec.name} (job {job.id})"
