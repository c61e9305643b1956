"""The client: jobs and nodes of one scheduler, for programs."""

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from client_sdk._base import BaseClient
from client_sdk._exchange import Exchange
from client_sdk._job_changes import JobChanges
from client_sdk._nodes import NodeCalls
from client_sdk._requests import jobs
from client_sdk._requests.jobs import DEFAULT_ADDRESS
from client_sdk._snapshots import carry_out, take_snapshot, upload
from client_sdk._values.job_options import JobOptions
from client_sdk._values.options import job_id, job_spec
from client_sdk._virtual_clusters import VirtualClusterCalls
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

if TYPE_CHECKING:
    from client_sdk._functions.executors import FunctionExecutor
    from client_sdk._transport.blocking import Transport

T = TypeVar("T")

__all__ = ["DEFAULT_ADDRESS", "Client"]


class Client(JobChanges, NodeCalls, VirtualClusterCalls, BaseClient["Transport"]):
    """A connection to a scheduler, made with the first call. Safe to use from several threads.

    >>> with Client() as client:                                              # doctest: +SKIP
    ...     job = client.submit(["python", "train.py"], name="resnet", devices=1)
    ...     job = client.wait(job)

    `address` is host:port, or a comma-separated list on a site with more than one scheduler: calls then go to the leader, and
    to its successor after a failover. By default it is EBB_ADDRESS, or else 127.0.0.1:7737. `timeout` (seconds) limits each
    call, including retries while a scheduler restarts. With `standby_reads`, any scheduler answers calls that only read;
    without it, the leader does, or a standby while no scheduler leads.

    `token` (or EBB_TOKEN; or the file named by `token_file` or EBB_TOKEN_FILE) identifies you, if the scheduler requires
    authentication. `tls_ca` (or EBB_TLS_CA), the certificate of the site's CA, turns TLS on; `tls_cert` and `tls_key`
    (EBB_TLS_CERT, EBB_TLS_KEY) are your client certificate, if the scheduler requires one. A token never leaves this machine
    without TLS.

    Every method raises an `EbbError`: `Unauthenticated` if the scheduler does not know the token, `PermissionDenied` if its
    owner may not do this, `FailedPrecondition` if a file named above cannot be used, `Unavailable` if the scheduler could not
    be reached in time, `DeadlineExceeded` if it did not answer in time, and the errors that the method documents.
    """

    def _set_up(self) -> None:
        self._lock = threading.Lock()
        self.exchange = Exchange(self._ask)
        """Calls for the exchange of cells between virtual clusters."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection, which ends all watches. Safe to repeat."""
        with self._lock:
            self._closed = True
            if self._made is not None:
                self._made.close()

    def another(self) -> "Client":
        """A client of the same scheduler with its own connection."""
        asked = self._access
        return Client(
            self.address,
            timeout=self._timeout,
            standby_reads=self._standby_reads,
            token=asked.token,
            token_file=asked.token_file,
            tls_ca=asked.tls_ca,
            tls_cert=asked.tls_cert,
            tls_key=asked.tls_key,
        )

    @property
    def _transport(self) -> "Transport":
        with self._lock:
            if self._closed:
                raise FailedPrecondition("this Client is closed; make another")
            if self._made is None:
                # gRPC takes a fifth of a second to import, which `ebb --help` and training scripts need not pay.
                from client_sdk._transport.blocking import Transport

                self._made = Transport(self.address, self._timeout, self._access, self._standby_reads)
            return self._made

    def _ask(self, request: jobs.Request[T]) -> T:
        return self._transport.ask(request)

    def submit(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        request_id: str | None = None,
        timeout: float | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Submits a job. It is on the scheduler's disk when this returns.

        `client_sdk.JobOptions` describes every option of a job, such as `name`, `cpus`, `memory`, `devices` and `time_limit`.

        `request_id` is an idempotency key: a repeated submit with the same ID creates no second job. By default it is
        generated and covers the retries within this call; pass one to make retries by your own program safe, too. `timeout`
        (seconds) limits all tries together; by default it is the client's.

        Raises InvalidArgument for an invalid job, AlreadyExists for the request_id of a different job, FailedPrecondition
        for a job that could never start, and ResourceExhausted while too many requests wait in the scheduler.
        """
        archive = take_snapshot(options)
        spec = job_spec(command, **options)
        if archive is not None:
            spec = replace(spec, snapshots=(carry_out(upload(archive), self._ask),))
        return self.submit_spec(spec, request_id=request_id, timeout=timeout)

    def functions(self, *, python: str | None = None, **options: Unpack[JobOptions]) -> "FunctionExecutor":
        """Runs Python functions as jobs with these options, each by `submit` of what this returns:

        >>> with Client() as client:                                          # doctest: +SKIP
        ...     gpu = client.functions(devices=1, memory="16GiB", snapshot=True)
        ...     future = gpu.submit(train, lr=0.1)
        ...     print(future.result())

        `python` is the interpreter on the node: it must have the same version as this one, and the package `cloudpickle`.
        By default it is this program's interpreter, by its path, or that of `venv` or `conda` if you name one.
        Raises InvalidArgument for invalid options, and FailedPrecondition if `cloudpickle` is not installed here.
        """
        from client_sdk._functions.executors import FunctionExecutor

        return FunctionExecutor(self, python, options)

    def submit_spec(self, spec: JobSpec, *, request_id: str | None = None, timeout: float | None = None) -> Job:
        """As `submit`, from a spec, such as another job's `spec` field."""
        return self._transport.ask(jobs.submit(spec, request_id), timeout)

    def preview(self, command: Sequence[str | os.PathLike[str]], **options: Unpack[JobOptions]) -> Preview:
        """The outcome of a `submit` with these options, if it were made now. The scheduler stores nothing.

        It tells whether and where the job would start, which runs would be preempted for it, or what it would wait for. Raises
        as `submit` does.
        """
        return self._ask(jobs.TryOut(job_spec(command, **options)))

    def get(self, job: Job | int) -> Job:
        """A job in its current state. Raises NotFound."""
        return self._ask(jobs.OfJob("Get", job_id(job)))

    def list(
        self,
        *,
        states: Sequence[JobState] = (),
        vc: str = "",
        user: str = "",
        mine: bool = False,
        name: str = "",
        page_size: int = 500,
    ) -> Iterator[Job]:
        """Jobs in these states (none given means all), newest first, fetched page by page as the iterator advances: all, or
        only those of a virtual cluster, of a user, the caller's own (`mine`), or of exactly this name.

        Raises NotFound for a virtual cluster that does not exist and never had a job.
        """
        only, token = jobs.Only(vc, user, mine, name), ""
        while True:
            page = self._ask(jobs.ListPage(tuple(states), page_size, only, token))
            yield from page.jobs
            if not (token := page.next_page_token):
                return

    def list_page(
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
        """One page of `list`, which may be smaller than `page_size`, and the number of jobs after it (unless `count` is False).
        Its `next_page_token` fetches the next page."""
        only = jobs.Only(vc, user, mine, name)
        return self._ask(jobs.ListPage(tuple(states), page_size, only, page_token, count))

    def watch(
        self, job: Job | int | None = None, *, after_commit: int = 0, timeout: float | None = None
    ) -> Iterator[JobUpdate]:
        """Every change of one job, or of all jobs, after a snapshot of the current state (or after the commit `after_commit`).

        If a connection that has worked breaks, it reconnects for as long as necessary and continues where it was. The watch
        of one job ends after the job has; `timeout` (seconds) raises DeadlineExceeded. Raises NotFound for a job that does not
        exist. Closing the iterator ends the watch.
        """
        watched = None if job is None else job_id(job)
        for update in self._transport.watch(watched or 0, after_commit, deadline_in(timeout)):
            yield update
            if is_last(update, watched):
                return

    def wait(self, job: Job | int, timeout: float | None = None) -> Job:
        """Waits until a job has ended, even across restarts of the scheduler, and returns the ended job.

        Raises DeadlineExceeded if it has not ended after `timeout` seconds; the job itself continues.
        """
        waiting = Waiting(job_id(job), timeout)
        try:
            for update in self.watch(waiting.job_id, timeout=timeout):
                if (ended := waiting.find_ended(update)) is not None:
                    return ended
        except (DeadlineExceeded, Unavailable) as error:
            looked = self.get(waiting.job_id) if waiting.needs_a_look(error) else None
            return waiting.too_late(looked)
        raise waiting.job_gone_error(self.address)

    def story(self, job: Job | int) -> Sequence[JobEvent]:
        """The events of a job, in order, with causes. Raises NotFound."""
        return self._ask(jobs.Story(job_id(job)))

    def runs(self, job: Job | int) -> Iterator[Run]:
        """The runs of a job, newest first, and by rank within a run; fetched page by page as the iterator advances.

        Raises NotFound.
        """
        token, of = "", job_id(job)
        while True:
            page = self._ask(jobs.ListRuns(of, token))
            yield from page.runs
            if not (token := page.next_page_token):
                return

    def explain(self, job: Job | int) -> Explanation:
        """Why a job waits: what blocks it, which jobs are ahead, which runs would be preempted for it, when it may start.

        Raises NotFound.
        """
        return self._ask(jobs.Explain(job_id(job)))

    def shares(self, vc: str = "") -> Shares:
        """Shares and usage of projects and users, in the site or a virtual cluster, and the jobs that are next.

        Raises FailedPrecondition if the policy does not order by usage, and NotFound for a virtual cluster that does not exist.
        """
        return self._ask(jobs.ListShares(vc))

    def logs(self, job: Job | int, *, follow: bool = False, run: int | None = None, task: int = 0) -> Iterator[str]:
        """A job's standard output and error, of its current or last run or of `run`, in pieces as they arrive.

        It is streamed from the job's node through the scheduler, no faster than it is consumed. `follow` waits for the job to
        start and continues until it has ended, through all of its runs (with `run`: until that run has ended) and across
        broken connections: no byte is lost or repeated. `task` is the rank in a gang.

        Raises NotFound for a job that does not exist, or whose output is no longer on its node, FailedPrecondition for one
        that has not run yet (unless followed), and Unavailable if its node is not connected.
        """
        from client_sdk._transport import logs as _logs

        course = LogCourse(job_id(job), run or 0, task, follow, self._timeout)
        pieces = _logs.read(self._transport, course)
        first = () if follow else (next(pieces),)
        return _logs.not_empty(chain(first, pieces))
