"""The client: jobs and nodes of one scheduler, for programs."""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from client_sdk import _requests
from client_sdk._requests import DEFAULT_ADDRESS
from client_sdk._waiting import Waiting, deadline_in, is_last
from client_sdk.errors import DeadlineExceeded, FailedPrecondition, Unavailable
from client_sdk.models import Job, JobClass, JobEvent, JobSpec, JobState, JobUpdate, Node

if TYPE_CHECKING:
    from client_sdk._transport import Transport

__all__ = ["DEFAULT_ADDRESS", "Client"]


class Client:
    """A connection to a scheduler, made with the first call. Safe to use from several threads.

    >>> with Client() as client:                                              # doctest: +SKIP
    ...     job = client.submit(["python", "train.py"], name="resnet", devices=1)
    ...     job = client.wait(job)

    `address` is host:port; left out, it is taken from EBB_ADDRESS, else 127.0.0.1:7737. `timeout` (seconds) is what
    each call may take, tries over a scheduler that restarts included.

    Every method raises an `EbbError`: `Unavailable` where the scheduler could not be reached in time,
    `DeadlineExceeded` where it did not answer in time, and what the method's own text names.
    """

    def __init__(self, address: str | None = None, *, timeout: float = 30.0) -> None:
        self.address = _requests.address(address)
        self._timeout = timeout
        self._lock = threading.Lock()
        self._closed = False
        self._made: Transport | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, and with it every watch under way. Safe to repeat."""
        with self._lock:
            self._closed = True
            if self._made is not None:
                self._made.close()

    def another(self) -> "Client":
        """A client of the same scheduler with a connection of its own."""
        return Client(self.address, timeout=self._timeout)

    @property
    def _transport(self) -> "Transport":
        # gRPC takes a fifth of a second to import, which `ebb --help` and training scripts need not pay.
        from client_sdk._transport import Transport

        with self._lock:
            if self._closed:
                raise FailedPrecondition("this Client is closed; make another")
            if self._made is None:
                self._made = Transport(self.address, self._timeout)
            return self._made

    def submit(
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
        """Submits a job. It is on the scheduler's disk when this returns.

        `cpus` counts cores and may be a fraction; `memory` is like "4GiB", or a number of MiB; `grace` is like "30s",
        or a number of seconds: how long the job needs to save its work when it is preempted. None leaves it to the
        site, and zero says that the job may be killed at once and go on from its last checkpoint.

        The scheduler takes the same `request_id` for the same job, however often it is sent. One is made up where none
        is given, and kept over this call's own tries; give one to make retries of your own program safe too.

        Raises InvalidArgument for a job that is no job, AlreadyExists for a request_id of a different one, and
        ResourceExhausted while the scheduler has too much waiting.
        """
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
        return self.submit_spec(spec, request_id=request_id, timeout=timeout)

    def submit_spec(self, spec: JobSpec, *, request_id: str | None = None, timeout: float | None = None) -> Job:
        """As `submit`, from a spec: one that another job's `spec` field holds, for example."""
        return self._transport.ask(_requests.submit(spec, request_id), timeout)

    def get(self, job_id: int) -> Job:
        """A job as it stands. Raises NotFound."""
        return self._transport.ask(_requests.Get(job_id))

    def list(self, *, states: Sequence[JobState] = (), page_size: int = 500) -> Iterator[Job]:
        """Jobs in these states (none given means all), newest first, fetched page by page as the iterator advances."""
        token = ""
        while True:
            page = self._transport.ask(_requests.ListPage(tuple(states), page_size, token))
            yield from page.jobs
            if not (token := page.next_token):
                return

    def watch(self, job_id: int | None = None, *, after_commit: int = 0, timeout: float | None = None) -> Iterator[JobUpdate]:
        """Every change of one job, or of all, from a snapshot of what is now (or after the commit in `after_commit`).

        Goes on where it was when a connection breaks, for as long as it takes once it has worked. With a job_id it
        ends after the job has; `timeout` (seconds) raises DeadlineExceeded. Raises NotFound for a job that is not there.
        Closing the iterator ends the watch.
        """
        for update in self._transport.watch(job_id or 0, after_commit, deadline_in(timeout)):
            yield update
            if is_last(update, job_id):
                return

    def wait(self, job: Job | int, timeout: float | None = None) -> Job:
        """Waits until a job has ended, over restarts of the scheduler if need be, and returns it as it ended.

        Raises DeadlineExceeded when it has not after `timeout` seconds; the job itself goes on.
        """
        waiting = Waiting(_requests.job_id(job), timeout)
        try:
            for update in self.watch(waiting.job_id, timeout=timeout):
                if (ended := waiting.saw(update)) is not None:
                    return ended
        except (DeadlineExceeded, Unavailable) as error:
            looked = self.get(waiting.job_id) if waiting.needs_a_look(error) else None
            return waiting.too_late(looked)
        raise waiting.gone(self.address)

    def cancel(self, job_id: int) -> Job:
        """Asks for a job's end. A queued job ends at once, a running one gets its grace period. Safe to repeat."""
        return self._transport.ask(_requests.Cancel(job_id))

    def story(self, job_id: int) -> Sequence[JobEvent]:
        """What happened to a job, in order, with causes. Raises NotFound."""
        return self._transport.ask(_requests.Story(job_id))

    def nodes(self) -> Sequence[Node]:
        """Every node, with what is free on it and who holds its devices."""
        return self._transport.ask(_requests.ListNodes())

    def logs(self, job_id: int, *, follow: bool = False) -> Iterator[str]:
        """A job's output, in pieces as they come: standard output and error of its current or last run.

        `follow` goes on until the job has ended, over all the runs that it has until then. The output lies on the
        job's node and is read from there directly, so this works on that node (or where the path is shared).

        Raises FailedPrecondition for a job that has not run yet (unless followed), and NotFound or PermissionDenied
        with the node and the path in `metadata` where this machine cannot read it.
        """
        from client_sdk import _logs

        return _logs.follow(self, job_id) if follow else _logs.read(self.get(job_id))
