"""The scheduler's gRPC server with its engine and PostgreSQL, in this process; and an agent that does as it is told."""

import asyncio
import getpass
import queue
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.agent.v1 import agent_link_pb2_grpc
from ebb.v1 import (
    cluster_pb2,
    cluster_pb2_grpc,
    exchange_pb2_grpc,
    job_pb2,
    scheduler_pb2,
    scheduler_pb2_grpc,
    virtual_clusters_pb2_grpc,
)
from google.rpc import error_details_pb2, status_pb2

from scheduler_service import app
from scheduler_service.config import Config
from scheduler_service.rpc.backend import Backend
from scheduler_service.rpc.server import serving
from tests.store.waiting import wait_for

LIMIT = 30.0
USER = getpass.getuser()


class _Loop(asyncio.SelectorEventLoop):
    """Signals go to the main thread: here a call of `end` stands for them."""

    end: Callable[[], None]

    def add_signal_handler(self, _number: int, callback: Callable[[], Any]) -> None:  # type: ignore[override]
        self.end = callback


class Server:
    """`app.serve` in a thread, from its start to its stop. Use as a context; `leads=False` does not wait until it leads."""

    def __init__(self, url: str, leads: bool = True, **settings: Any) -> None:
        # As published: tests have trials preempt at once, and not when a run is a minute old.
        self._config = Config(database=url, listen="127.0.0.1:0", **{"preset": "paper", **settings})
        self._leads = leads
        self._serving = threading.Event()
        self._migrated = threading.Event()
        self._loop = _Loop()
        self._thread = threading.Thread(target=self._run, name="server")

    def __enter__(self) -> "Server":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(app, "serving", self._listen)
            patch.setattr(app, "_migrate", partial(self._migrate, app._migrate))
            self._thread.start()
            assert self._serving.wait(LIMIT)
            assert self._migrated.wait(LIMIT)  # without a database it would end there
        if self._leads:
            wait_for(lambda: self.backend._leading is not None, LIMIT)
        self.channel = grpc.insecure_channel(self.address)
        self.scheduler: Any = scheduler_pb2_grpc.SchedulerStub(self.channel)
        self.cluster: Any = cluster_pb2_grpc.ClusterStub(self.channel)
        self.vcs: Any = virtual_clusters_pb2_grpc.VirtualClustersStub(self.channel)
        self.exchange: Any = exchange_pb2_grpc.ExchangeStub(self.channel)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Safe to repeat."""
        self.channel.close()
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.end)
            self._thread.join(LIMIT)
            assert not self._thread.is_alive()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(app.serve(self._config))

    @asynccontextmanager
    async def _listen(self, listen: str, backend: Backend, *access: Any) -> AsyncIterator[tuple[str, Any]]:
        async with serving(listen, backend, *access) as (self.address, health):
            self.backend = backend
            self._serving.set()
            yield self.address, health

    def _migrate(self, migrate: Callable[[str], None], url: str) -> None:
        try:
            migrate(url)
        finally:
            self._migrated.set()

    # ---- calls ---------------------------------------------------------------------------------------------------------

    def submit(self, *, request_id: str = "", timeout: float = LIMIT, **spec: Any) -> Any:
        return self.scheduler.Submit(submit_request(request_id, **spec), timeout=timeout).job

    def get(self, job_id: int) -> Any:
        return self.scheduler.Get(scheduler_pb2.GetRequest(job_id=job_id), timeout=LIMIT).job

    def cancel(self, job_id: int) -> Any:
        return self.scheduler.Cancel(scheduler_pb2.CancelRequest(job_id=job_id), timeout=LIMIT).job

    def watch(self, job_id: int = 0, after_commit: int = 0) -> Any:
        request = scheduler_pb2.SchedulerWatchRequest(job_id=job_id, after_commit=after_commit)
        return self.scheduler.Watch(request, timeout=LIMIT)

    def until(self, job_id: int, state: "job_pb2.JobState | str") -> Any:
        wanted = job_pb2.JobState.Value(f"JOB_STATE_{state}")
        with closing(self.watch(job_id)) as updates:
            return next(job for update in updates for job in update.jobs if job.state == wanted)

    def logs(self, job_id: int, timeout: float = LIMIT, **fields: Any) -> Any:
        return self.scheduler.Logs(scheduler_pb2.LogsRequest(job_id=job_id, **fields), timeout=timeout)

    def nodes(self) -> Any:
        return self.cluster.ListNodes(cluster_pb2.ListNodesRequest(), timeout=LIMIT).nodes


class closing:  # noqa: N801 - as contextlib's, for calls
    def __init__(self, call: Any) -> None:
        self.call = call

    def __enter__(self) -> Any:
        return self.call

    def __exit__(self, *_: object) -> None:
        self.call.cancel()


def submit_request(
    request_id: str = "", command: Sequence[str] = ("true",), cpu_milli: int = 1000, devices: int = 0, **fields: Any
) -> Any:
    resources = job_pb2.Resources(cpu_milli=cpu_milli, memory_mib=1, devices=devices)
    return scheduler_pb2.SubmitRequest(
        spec=job_pb2.JobSpec(command=command, resources=resources, **fields), request_id=request_id
    )


class Failure:
    """What a call failed with."""

    def __init__(self, error: Any) -> None:
        self.code: grpc.StatusCode = error.code()
        self.text: str = error.details()
        self.info = error_details_pb2.ErrorInfo()
        self.retry: error_details_pb2.RetryInfo | None = None
        details = dict(error.trailing_metadata()).get("grpc-status-details-bin", b"")
        for detail in status_pb2.Status.FromString(details).details:
            if not detail.Unpack(self.info):
                self.retry = error_details_pb2.RetryInfo()
                detail.Unpack(self.retry)
        assert self.info.domain == "ebb"

    @property
    def reason(self) -> str:
        return self.info.reason


def failure(call: Callable[[], Any]) -> Failure:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return Failure(caught.value)


class Agent:
    """An agent's end of the link. Use as a context."""

    def __init__(
        self,
        server: Server,
        node: str = "n1",
        boot: str = "boot-1",
        devices: int = 2,
        metadata: Sequence[tuple[str, str]] = (),
        **hello: Any,
    ) -> None:
        self.node = node
        self._out: queue.Queue[Any] = queue.Queue()
        self._channel = grpc.insecure_channel(server.address)
        self.stub: Any = agent_link_pb2_grpc.AgentLinkStub(self._channel)
        self.call = self.stub.Connect(iter(self._out.get, None), timeout=LIMIT, metadata=metadata)
        self.hello = link_pb.Hello(
            node=node,
            boot_id=boot,
            **{
                "capacity": job_pb2.Resources(cpu_milli=8000, memory_mib=8000, devices=devices),
                "devices": [cluster_pb2.Device(index=i, uuid=f"{node}-{i}") for i in range(devices)],
                **hello,
            },
        )

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *_: object) -> None:
        self.call.cancel()
        self._out.put(None)
        self._channel.close()

    def connect(self) -> Any:
        """Says hello; the welcome."""
        self.send(hello=self.hello)
        return self.receive("welcome")

    def hang_up(self) -> None:
        """Ends the stream from this side, and waits until the scheduler has ended it too."""
        self._out.put(None)
        assert self.ended() is None

    def send(self, **message: Any) -> None:
        self._out.put(link_pb.ConnectRequest(**message))

    def send_report(self, report: link_pb.Report) -> None:
        self.send(reports=link_pb.Reports(reports=[report]))

    def started(self, sequence: int, job_id: int, run: int = 1) -> None:
        started = link_pb.RunStarted(pid=1, log_path="/log")
        self.send_report(link_pb.Report(sequence=sequence, job_id=job_id, run=run, started=started))

    def ready(self, sequence: int, job_id: int, task: int, **where: Any) -> None:
        ready = link_pb.RunReady(**where)
        self.send_report(link_pb.Report(sequence=sequence, job_id=job_id, run=1, task=task, ready=ready))

    def exited(self, sequence: int, job_id: int, run: int = 1, **how: Any) -> None:
        exited = link_pb.RunExited(**how)
        self.send_report(link_pb.Report(sequence=sequence, job_id=job_id, run=run, exited=exited))

    def receive(self, kind: str) -> Any:
        """The next message, which is of this kind."""
        message = next(self.call)
        assert message.WhichOneof("message") == kind, message
        return getattr(message, kind)

    def orders(self) -> list[Any]:
        return list(self.receive("desired_runs").runs)

    def acknowledged(self) -> int:
        return int(self.receive("acknowledgement").sequence)

    def ended(self) -> Failure | None:
        """How the stream ends; None: in order. Nothing else comes before."""
        try:
            message = next(self.call, None)
        except grpc.RpcError as error:
            return Failure(error)
        assert message is None, message
        return None


class Sending:
    """An agent's answer to a request for a log. Use as a context."""

    def __init__(self, agent: Agent, request: Any) -> None:
        self.taken = 0
        """Bytes of data that gRPC has taken from here."""
        self._id = request.id
        self._out: queue.Queue[Any] = queue.Queue()
        self.call = agent.stub.SendLog.future(iter(self._next, None), timeout=LIMIT)

    def __enter__(self) -> "Sending":
        return self

    def __exit__(self, *_: object) -> None:
        self.call.cancel()
        self.half_close()

    def send(self, *pieces: bytes, **message: Any) -> None:
        """The pieces, and then the message, where there is one."""
        for fields in [*({"data": piece} for piece in pieces), *([message] if message else [])]:
            self._out.put(link_pb.SendLogRequest(id=self._id, **fields))
            self._id = ""

    def half_close(self) -> None:
        """Says that nothing more comes, with or without having said that this is the end."""
        self._out.put(None)

    def _next(self) -> Any:
        message = self._out.get()
        self.taken += len(message.data) if message is not None else 0
        return message
