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
from client_sdk._snapshots import carried_out, taken, upload
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

    `address` is host:port, or several with commas between them, where a site has more than one scheduler: calls then go to
    the one that leads, and follow when another takes over. Left out, it is taken from EBB_ADDRESS, else 127.0.0.1:7737.
    `timeout` (seconds) is what each call may take, tries over a scheduler that restarts included. With `standby_reads` what
    only reads is answered by whichever scheduler is asked; else by the leader, and by a standby while there is none.

    `token` (or EBB_TOKEN; or the file named by `token_file` or EBB_TOKEN_FILE) says who you are, where the scheduler asks for
    it. `tls_ca` (or EBB_TLS_CA), the certificate of the site's CA, turns TLS on; `tls_cert` and `tls_key` (EBB_TLS_CERT,
    EBB_TLS_KEY) are your own, where it wants to see one. A token never leaves this machine without TLS.

    Every method raises an `EbbError`: `Unauthenticated` where the scheduler does not know the token, `PermissionDenied`
    where its owner may not do this, `FailedPrecondition` where a file named above cannot be used, `Unavailable` where the
    scheduler could not be reached in time,
    `DeadlineExceeded` where it did not answer in time, and what the method's own text names.
    """

    def _set_up(self) -> None:
        self._lock = threading.Lock()
        self.exchange = Exchange(self._ask)
        """Cells that virtual clusters give each other for windows of time."""

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

        The scheduler takes the same `request_id` for the same job, however often it is sent. One is made up where none
        is given, and kept over this call's own tries; give one to make retries of your own program safe too. `timeout`
        (seconds) is what all tries together may take; by default it is the client's.

        Raises InvalidArgument for a job that is no job, AlreadyExists for a request_id of a different one,
        FailedPrecondition for one that could never start, and ResourceExhausted while the scheduler has too much waiting.
        """
        archive = taken(options)
        spec = job_spec(command, **options)
        if archive is not None:
            spec = replace(spec, snapshots=(carried_out(upload(archive), self._ask),))
        return self.submit_spec(spec, request_id=request_id, timeout=timeout)

    def functions(self, *, python: str | None = None, **options: Unpack[JobOptions]) -> "FunctionExecutor":
        """Runs Python functions as jobs with these options, each by `submit` of what this returns:

        >>> with Client() as client:                                          # doctest: +SKIP
        ...     gpu = client.functions(devices=1, memory="16GiB", snapshot=True)
        ...     future = gpu.submit(train, lr=0.1)
        ...     print(future.result())

        `python` is the program that runs them on the node: of the same version as this one, and with the package `cloudpickle`.
        By default it is the interpreter of this program, by its path, or that of `venv` or `conda` if you name one.
        Raises InvalidArgument for options that make no sense, and FailedPrecondition where `cloudpickle` is missing here.
        """
        from client_sdk._functions.executors import FunctionExecutor

        return FunctionExecutor(self, python, options)

    def submit_spec(self, spec: JobSpec, *, request_id: str | None = None, timeout: float | None = None) -> Job:
        """As `submit`, from a spec: one that another job's `spec` field holds, for example."""
        return self._transport.ask(jobs.submit(spec, request_id), timeout)

    def preview(self, command: Sequence[str | os.PathLike[str]], **options: Unpack[JobOptions]) -> Preview:
        """What would happen if this were submitted now, with the options of `submit`: nothing is kept of it.

        Would it start, and where? Would runs have to leave for it? Else, whom would it wait for? Raises as `submit` does.
        """
        return self._ask(jobs.TryOut(job_spec(command, **options)))

    def get(self, job: Job | int) -> Job:
        """A job as it stands now. Raises NotFound."""
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

        Raises NotFound for a virtual cluster that there is not, and of which there never was a job.
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
        """One page of what `list` goes through, which may be smaller than `page_size`, and how many jobs follow it (unless
        `count` is False). The next page is that of its `next_page_token`."""
        only = jobs.Only(vc, user, mine, name)
        return self._ask(jobs.ListPage(tuple(states), page_size, only, page_token, count))

    def watch(
        self, job: Job | int | None = None, *, after_commit: int = 0, timeout: float | None = None
    ) -> Iterator[JobUpdate]:
        """Every change of one job, or of all, from a snapshot of what is now (or after the commit in `after_commit`).

        Goes on where it was when a connection breaks, for as long as it takes once it has worked. The watch of one job
        ends after the job has; `timeout` (seconds) raises DeadlineExceeded. Raises NotFound for a job that is not there.
        Closing the iterator ends the watch.
        """
        watched = None if job is None else job_id(job)
        for update in self._transport.watch(watched or 0, after_commit, deadline_in(timeout)):
            yield update
            if is_last(update, watched):
                return

    def wait(self, job: Job | int, timeout: float | None = None) -> Job:
        """Waits until a job has ended, over restarts of the scheduler if need be, and returns it as it ended.

        Raises DeadlineExceeded when it has not after `timeout` seconds; the job itself goes on.
        """
        waiting = Waiting(job_id(job), timeout)
        try:
            for update in self.watch(waiting.job_id, timeout=timeout):
                if (ended := waiting.saw(update)) is not None:
                    return ended
        except (DeadlineExceeded, Unavailable) as error:
            looked = self.get(waiting.job_id) if waiting.needs_a_look(error) else None
            return waiting.too_late(looked)
        raise waiting.gone(self.address)

    def story(self, job: Job | int) -> Sequence[JobEvent]:
        """What happened to a job, in order, with causes. Raises NotFound."""
        return self._ask(jobs.Story(job_id(job)))

    def runs(self, job: Job | int) -> Iterator[Run]:
        """The runs of a job, the newest first, and the tasks of a run by rank; fetched page by page as the iterator advances.

        Raises NotFound.
        """
        token, of = "", job_id(job)
        while True:
            page = self._ask(jobs.ListRuns(of, token))
            yield from page.runs
            if not (token := page.next_page_token):
                return

    def explain(self, job: Job | int) -> Explanation:
        """Why a job waits: what blocks it, who is ahead, whose runs would leave for it, when it may start.

        Raises NotFound.
        """
        return self._ask(jobs.Explain(job_id(job)))

    def shares(self, vc: str = "") -> Shares:
        """Who has which share of the site, or of a virtual cluster; who has used how much; and which jobs are next.

        Raises FailedPrecondition where the policy does not go by usage, and NotFound for a virtual cluster that does not exist.
        """
        return self._ask(jobs.ListShares(vc))

    def logs(self, job: Job | int, *, follow: bool = False, run: int | None = None, task: int = 0) -> Iterator[str]:
        """A job's output, in pieces as they come: standard output and error of its current or last run, or of `run`.

        It comes from the job's node through the scheduler, and no faster than it is taken. `follow` waits for the job to
        start and goes on until it has ended, over all the runs that it has until then (with `run`: until that one is
        over), and over connections that break: no byte is lost or comes twice. `task` is the rank in a gang.

        Raises NotFound for a job that is not there, or whose output is not on its node any more, FailedPrecondition for
        one that has not run yet (unless followed), and Unavailable where its node is not connected.
        """
        from client_sdk._transport import logs as _logs

        course = LogCourse(job_id(job), run or 0, task, follow, self._timeout)
        pieces = _logs.read(self._transport, course)
        first = () if follow else (next(pieces),)
        return _logs.not_empty(chain(first, pieces))
