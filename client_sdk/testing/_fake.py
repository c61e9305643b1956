"""The fake cluster, by which a test controls what happens to its jobs."""

import contextlib
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from client_sdk._protobuf import convert_explanations, convert_nodes
from client_sdk.aio import AsyncClient
from client_sdk.client import Client
from client_sdk.errors import EbbError, FailedPrecondition, Unavailable
from client_sdk.models import Job, JobState, Observations, Resources, Shares
from client_sdk.testing._script import Outcome, Script, succeed
from ebb_common import extras

if TYPE_CHECKING:
    from client_sdk.testing._service import Service

NODES: Mapping[str, Resources] = {"node-1": Resources(cpus=64, memory_mib=512 * 1024, devices=8)}
"""The default nodes of a fake cluster."""
_PREEMPTED = Outcome(exit_code=143)
_ACTIVE = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)


class FakeCluster:
    """A cluster in this process; `cluster` makes one. Jobs are given as `Job` or by id. Safe to use from several threads."""

    def __init__(self, service: "Service") -> None:
        self._service = service
        self._clients: list[Client] = []

    @property
    def address(self) -> str:
        """HOST:PORT, for `Client(address)` or EBB_ADDRESS."""
        return self._service.address

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
        return self._service.do(self._service.all_jobs)

    @property
    def calls(self) -> Counter[str]:
        """The number of calls by name, such as {"Submit": 2, "Watch": 1}, including failed tries."""
        return self._service.do(lambda: Counter(self._service.calls.counts))

    @property
    def watches(self) -> int:
        """The number of watches, waits and followed logs in progress."""
        return self._service.do(lambda: len(self._service.calls.streams))

    def start(self, job: Job | int) -> Job:
        """Starts a queued job; for an array, starts and returns its next element.

        Raises FailedPrecondition if it fits on no node now, is held, or waits for another job.
        """
        return self._service.call(self._start(_id(job)))

    def finish(self, job: Job | int, exit_code: int = 0, *, exit_signal: int = 0, output: str = "", done: bool = False) -> Job:
        """Ends the run of a job; a queued job is started first.

        As with the service, a job that was cancelled is then CANCELLED. One that was told to stop (preempted, requeued, its
        node drained) is requeued, and one that was suspended is SUSPENDED, even with exit code 0, unless it is `done` (its
        program has written EBB_DONE_FILE) or was submitted with exit_0_after_stop="done".
        """
        outcome = Outcome(exit_code=exit_code, exit_signal=exit_signal, output=output, done=done)
        return self._service.call(self._finish(_id(job), outcome))

    def write(self, job: Job | int, output: str) -> None:
        """Writes to the output of a job's current run. Raises FailedPrecondition for a job that is not running."""
        self._service.do(lambda: self._write(_id(job), output))

    def preempt(self, job: Job | int, *, for_: Job | int, leaves: bool = True) -> Job:
        """Preempts a running best-effort job for a trial. It exits immediately with exit code 143 and is requeued.

        With `leaves=False` it remains in its grace period (STOPPING) until `finish`.
        """
        return self._service.call(self._preempt(_id(job), _id(for_), _PREEMPTED if leaves else None))

    def saves_nothing(self, job: Job | int) -> None:
        """Marks a job's program as saving nothing: it loses its work if it is stopped (`Client.lost_by_suspend`)."""
        self._service.call(self._saves_nothing(_id(job)))

    def observe(self, node: str, seen: Observations | None) -> None:
        """Sets what `Client.node` returns about a node's devices, all of them or none, and about its runs; None: nothing.
        `Client.get` returns the steps of the job's tasks.

        A device with a fault is shown as faulty, but jobs are still placed on it.
        """
        message = None if seen is None else convert_nodes.observations_message(seen)
        self._service.call(self._service.observe(node, message))

    def share(self, shares: Shares | None) -> None:
        """Sets what `Client.shares` returns; None: the policy does not order by usage, as in a new cluster."""
        answer = None if shares is None else convert_explanations.shares_message(shares)
        self._service.do(lambda: setattr(self._service.calls, "shares", answer))

    def fail_next(
        self, times: int = 1, error: type[EbbError] = Unavailable, *, call: str | None = None, after: bool = False
    ) -> None:
        """The next calls fail: any, or only those named `call`, such as "Submit".

        Clients retry on their own after Unavailable, DeadlineExceeded and Cancelled, within their timeout. With `after`, a
        call is carried out and its answer is lost.
        """
        self._service.do(lambda: self._service.calls.fail(error("the test wants it so"), call, after, times))

    @contextlib.contextmanager
    def unavailable(self) -> Iterator[None]:
        """Inside this context, calls fail and watches break. Give clients a short timeout, or they wait until it expires."""
        self._service.do(lambda: self._service.calls.set_down(Unavailable("the test wants it so")))
        try:
            yield
        finally:
            self._service.do(lambda: self._service.calls.set_down(None))

    def cut_watches(self) -> None:
        """Breaks the connection of every watch, wait and log; clients reconnect."""
        self._service.do(self._service.calls.cut_streams)

    def close(self) -> None:
        """Stops the cluster and closes its clients. Safe to repeat."""
        for client in self._clients:
            client.close()
        self._service.stop()

    # ---- on the event loop of the service ------------------------------------------------------------------------------

    async def _start(self, job_id: int) -> Job:
        self._service.find(job_id)
        started = await self._service.start_job(job_id)
        await self._service.settle()
        return self._service.find(started)

    async def _finish(self, job_id: int, outcome: Outcome) -> Job:
        job = self._service.find(job_id)
        if job.state is JobState.QUEUED:
            job = await self._start(job_id)
        _require(job, *_ACTIVE)
        await self._service.runs.end(job.id, job.run, outcome)
        await self._service.settle()
        return self._service.find(job_id)

    async def _preempt(self, job_id: int, trial_id: int, outcome: Outcome | None) -> Job:
        _require(self._service.find(job_id), JobState.STARTING, JobState.RUNNING)
        self._service.find(trial_id)
        stays = self._service.runs.stays
        stays[job_id] = outcome
        try:
            await self._service.preempt_job(job_id, trial_id)
            await self._service.settle()
        finally:
            del stays[job_id]
        return self._service.find(job_id)

    def _write(self, job_id: int, output: str) -> None:
        job = self._service.find(job_id)
        running = self._service.runs.current(job.id, job.run)
        if job.state not in (JobState.RUNNING, JobState.STOPPING) or not running:
            raise FailedPrecondition(f"job {job.id} is {job.state.name} and writes nothing; start it first")
        running[0][0].write(output)

    async def _saves_nothing(self, job_id: int) -> None:
        self._service.runs.unsaved.add(job_id)
        for agent in self._service.agents.values():
            agent.send_observations()
        await self._service.settle()


def _require(job: Job, *states: JobState) -> None:
    if job.state not in states:
        wanted = " or ".join(state.name for state in states)
        raise FailedPrecondition(f"job {job.id} is {job.state.name}; for this it must be {wanted}")


def _id(job: Job | int) -> int:
    return job.id if isinstance(job, Job) else job


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
        if _open == 1:
            names = [name for name in os.environ if name in _SITE or name.startswith("EBB_SCHEDULER_")]
            _hidden.update({name: os.environ.pop(name) for name in names})
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
    nodes: Mapping[str, Resources] = NODES,
    *,
    script: Script = succeed,
    by_hand: bool = False,
    user: str = "tester",
    policy: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> Iterator[FakeCluster]:
    """A fake cluster for as long as the context lasts.

    A job starts as soon as the policy starts it on one of the `nodes`, and ends as `script` says: by default immediately with
    exit code 0. If the script returns None, the job runs until `FakeCluster.finish`, or until it is cancelled. With `by_hand`
    nothing starts or ends on its own: a job waits for `start` and for `finish`, even after it was cancelled.

    `policy` is the name of a scheduling policy of the service, such as "fitgpp" or "gandiva", and `config` has settings of the
    service by name, such as {"virtual_clusters": True}. Without `policy`, trials are first in the queue and preempt no job.

    Meanwhile EBB_TOKEN, EBB_TLS_CA, EBB_VC and the like, which are for a site's own scheduler, are not in `os.environ`.

    Raises ModuleNotFoundError without the extra `testing` of the package, and ValueError for wrong settings.
    """
    try:
        from client_sdk.testing import _service, _settings
    except ModuleNotFoundError as missing:
        if (said := extras.advice(missing, "client_sdk.testing.cluster", "testing")) is None:
            raise
        raise ModuleNotFoundError(said, name=missing.name) from None
    with _site_hidden(), tempfile.TemporaryDirectory(prefix="ebb-fake-") as folder:
        settings = _settings.settings(policy, by_hand, config or {})
        service = _service.Service(settings, nodes, script, by_hand, user, Path(folder))
        service.start()
        fake = FakeCluster(service)
        try:
            yield fake
        finally:
            fake.close()
