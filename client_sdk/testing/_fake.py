"""The fake cluster, by which a test controls what happens to its jobs."""

import contextlib
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from client_sdk._protobuf import convert, convert_explanations, convert_nodes
from client_sdk.aio import AsyncClient
from client_sdk.client import Client
from client_sdk.errors import EbbError, FailedPrecondition, Unavailable
from client_sdk.models import Job, JobState, Observations, Resources, Shares
from client_sdk.testing import _lifecycle as life
from client_sdk.testing import _nodes
from client_sdk.testing._output import log_file
from client_sdk.testing._server import Failure, Server
from client_sdk.testing._state import Outcome, Script, State, state_of

NODES: Mapping[str, Resources] = {"node-1": Resources(cpus=64, memory_mib=512 * 1024, devices=8)}
"""The default nodes of a fake cluster."""


class FakeCluster:
    """A cluster in this process; `cluster` makes one. Jobs are given as `Job` or by id. Safe to use from several threads."""

    def __init__(self, state: State, server: Server) -> None:
        self._state = state
        self._server = server
        self._clients: list[Client] = []

    @property
    def address(self) -> str:
        """HOST:PORT, for `Client(address)` or EBB_ADDRESS."""
        return self._server.address

    def client(self, *, timeout: float = 30.0) -> Client:
        """A real client of this cluster, closed with it, whatever the environment says of the site's own."""
        self._clients.append(Client(self.address, timeout=timeout, token="", tls_ca="", tls_cert="", tls_key=""))
        return self._clients[-1]

    def async_client(self, *, timeout: float = 30.0) -> AsyncClient:
        """A real client of this cluster for asyncio; close it, or use it by `async with`."""
        return AsyncClient(self.address, timeout=timeout, token="", tls_ca="", tls_cert="", tls_key="")

    @property
    def jobs(self) -> list[Job]:
        """Every job in its current state, in the order of submission."""
        with self._state.changed:
            return [convert.job(self._state.find(job_id)) for job_id in self._state.jobs]

    @property
    def calls(self) -> Counter[str]:
        """The number of calls by name, such as {"Submit": 2, "Watch": 1}, including failed tries."""
        with self._state.changed:
            return Counter(self._server.calls)

    @property
    def watches(self) -> int:
        """The number of watches, waits and followed logs in progress."""
        with self._state.changed:
            return self._server.watches

    def start(self, job: Job | int) -> Job:
        """Starts a queued job; for an array, starts and returns its next element.

        Raises FailedPrecondition if it fits on no node now, is held, or waits for another job.
        """
        with self._state.changed:
            started = life.start(self._state, _id(job))
            return self._shown(started.id)

    def finish(self, job: Job | int, exit_code: int = 0, *, exit_signal: int = 0, output: str = "", done: bool = False) -> Job:
        """Ends the run of a job; a queued job is started first.

        As with the service, a job that was cancelled is then CANCELLED. One that was told to stop (preempted, requeued, its
        node drained) is requeued, and one that was suspended is SUSPENDED, even with exit code 0, unless it is `done` (its
        program has written EBB_DONE_FILE) or was submitted with exit_0_after_stop="done".
        """
        with self._state.changed:
            life.finish(self._state, _id(job), Outcome(exit_code=exit_code, exit_signal=exit_signal, output=output, done=done))
            return self._shown(job)

    def write(self, job: Job | int, output: str) -> None:
        """Writes to the output of a job's current run. Raises FailedPrecondition for a job that is not running."""
        with self._state.changed:
            found = self._state.find(_id(job))
            if state_of(found) not in (JobState.RUNNING, JobState.STOPPING):
                raise FailedPrecondition(f"job {found.id} is {state_of(found).name} and writes nothing; start it first")
            with log_file(self._state.folder, found.id, found.run).open("a", encoding="utf-8") as log:
                log.write(output)
            self._state.changed.notify_all()

    def preempt(self, job: Job | int, *, for_: Job | int, leaves: bool = True) -> Job:
        """Preempts a running best-effort job for a trial. It exits immediately with exit code 143 and is requeued.

        With `leaves=False` it remains in its grace period (STOPPING) until `finish`.
        """
        with self._state.changed:
            life.preempt(self._state, _id(job), _id(for_), Outcome(exit_code=143) if leaves else None)
            return self._shown(job)

    def saves_nothing(self, job: Job | int) -> None:
        """Marks a job's program as saving nothing: it loses its work if it is stopped (`Client.lost_by_suspend`)."""
        with self._state.changed:
            self._state.unsaved.add(_id(job))

    def observe(self, node: str, seen: Observations | None) -> None:
        """Sets what `Client.node` returns about a node's devices, all of them or none, and about its runs; None: nothing.
        `Client.get` returns the steps of the job's tasks.

        A device with a fault is shown as faulty, but jobs are still placed on it.
        """
        with self._state.changed:
            _nodes.observe(self._state, node, None if seen is None else convert_nodes.observations_message(seen))

    def share(self, shares: Shares | None) -> None:
        """Sets what `Client.shares` returns; None: the policy does not order by usage, as in a new cluster."""
        with self._state.changed:
            self._state.shares = None if shares is None else convert_explanations.shares_message(shares)

    def fail_next(
        self, times: int = 1, error: type[EbbError] = Unavailable, *, call: str | None = None, after: bool = False
    ) -> None:
        """The next calls fail: any, or only those named `call`, such as "Submit".

        Clients retry on their own after Unavailable, DeadlineExceeded and Cancelled, within their timeout. With `after`, a
        call is carried out and its answer is lost.
        """
        with self._state.changed:
            self._server.failures += [Failure(error("the test wants it so"), call, after)] * times

    @contextlib.contextmanager
    def unavailable(self) -> Iterator[None]:
        """Inside this context, calls fail and watches break. Give clients a short timeout, or they wait until it expires."""
        with self._state.changed:
            self._server.down = Unavailable("the test wants it so")
            self._server.cut()
        try:
            yield
        finally:
            with self._state.changed:
                self._server.down = None

    def cut_watches(self) -> None:
        """Breaks the connection of every watch, wait and log; clients reconnect."""
        with self._state.changed:
            self._server.cut()

    def close(self) -> None:
        """Stops the cluster and closes its clients. Safe to repeat."""
        for client in self._clients:
            client.close()
        self._server.close()

    def _shown(self, job: Job | int) -> Job:
        return convert.job(self._state.find(_id(job)))


def _id(job: Job | int) -> int:
    return job.id if isinstance(job, Job) else job


def succeed(_job: Job) -> Outcome:
    """The default script of a fake cluster: every job succeeds."""
    return Outcome()


_SITE = ("EBB_TOKEN", "EBB_TOKEN_FILE", "EBB_TLS_CA", "EBB_TLS_CERT", "EBB_TLS_KEY", "EBB_VC")
"""Environment variables about the site's own scheduler, in addition to its address."""
_lock = threading.Lock()
_open = 0
_hidden: dict[str, str] = {}


@contextlib.contextmanager
def _site_hidden() -> Iterator[None]:
    """Code under test that makes its own client must not ask a fake for TLS, nor name a virtual cluster to it."""
    global _open
    with _lock:
        _open += 1
        _hidden.update({name: os.environ.pop(name) for name in _SITE if _open == 1 and name in os.environ})
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if not _open:
                os.environ.update(_hidden)
                _hidden.clear()


@contextlib.contextmanager
def cluster(
    nodes: Mapping[str, Resources] = NODES, *, script: Script = succeed, by_hand: bool = False, user: str = "tester"
) -> Iterator[FakeCluster]:
    """A fake cluster for as long as the context lasts.

    A job starts as soon as it fits on one of the `nodes`, and ends as `script` says: by default immediately with exit code
    0. If the script returns None, the job runs until `FakeCluster.finish`, or until it is cancelled. With `by_hand` nothing
    starts or ends on its own: a job waits for `start` and for `finish`, even after it was cancelled.

    Meanwhile EBB_TOKEN, EBB_TLS_CA, EBB_VC and the like, which are for a site's own scheduler, are not in `os.environ`.
    """
    with _site_hidden(), tempfile.TemporaryDirectory(prefix="ebb-fake-") as folder:
        state = State(nodes, script, by_hand, user, Path(folder))
        fake = FakeCluster(state, Server(state))
        try:
            yield fake
        finally:
            fake.close()
