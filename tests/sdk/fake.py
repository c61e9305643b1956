"""A scheduler of a few lines behind a real gRPC server, for what the SDK has to cope with."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from ebb.v1 import cluster_pb2, cluster_pb2_grpc, job_pb2, scheduler_pb2, scheduler_pb2_grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

REFUSALS = {
    "OFFSET": grpc.StatusCode.OUT_OF_RANGE,
    "LOG_GONE": grpc.StatusCode.NOT_FOUND,
    "NOT_STARTED": grpc.StatusCode.FAILED_PRECONDITION,
    "TOO_MANY_LOGS": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "NODE_NOT_CONNECTED": grpc.StatusCode.UNAVAILABLE,
}


def _too_many(seconds: float, context: grpc.ServicerContext) -> None:
    details = [error_details_pb2.ErrorInfo(reason="TOO_MANY_REQUESTS", domain="ebb")]
    if seconds:
        delay = Duration()
        delay.FromMilliseconds(int(seconds * 1000))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))  # type: ignore[arg-type]
    packed = [AnyMessage() for _ in details]
    for each, detail in zip(packed, details, strict=True):
        each.Pack(detail)
    status = status_pb2.Status(code=8, message="100 requests of ada wait already", details=packed)
    context.abort_with_status(rpc_status.to_status(status))


class Fake(scheduler_pb2_grpc.SchedulerServicer, cluster_pb2_grpc.ClusterServicer):
    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.jobs: dict[int, job_pb2.Job] = {}
        self.commits: dict[int, int] = {}
        self.commit_no = 0
        self.requests: dict[str, int] = {}
        self.submits: list[scheduler_pb2.SubmitRequest] = []
        self.calls: Counter[str] = Counter()
        self.fail: dict[str, list[grpc.StatusCode]] = {}
        self.busy: list[float] = []
        """For each Submit that is refused as too many wait: the seconds after which to try again; 0: that is not said."""
        self.watches: list[scheduler_pb2.SchedulerWatchRequest] = []
        self.cut_after = 0  # messages after which a watch breaks; 0: never
        self.events: list[job_pb2.JobEvent] = []
        self.nodes: list[cluster_pb2.Node] = []
        self.page = 2
        self.stopping = False
        self.log_requests: list[scheduler_pb2.LogsRequest] = []
        self.log_answers: list[list[bytes | str | grpc.StatusCode]] = []
        """What each call of Logs is answered: pieces, and at its end a status, or a reason of a refusal."""
        self.log_lost: set[int] = set()
        """Runs that are over, and whose node is away."""

    def put(self, job: job_pb2.Job) -> None:
        with self.changed:
            self.commit_no += 1
            self.jobs[job.id] = job
            self.commits[job.id] = self.commit_no
            self.changed.notify_all()

    def change(self, job_id: int, **fields: Any) -> None:
        job = job_pb2.Job()
        job.CopyFrom(self.jobs[job_id])
        job.MergeFrom(job_pb2.Job(**fields))
        self.put(job)

    def _enter(self, name: str, context: grpc.ServicerContext) -> None:
        self.calls[name] += 1
        if self.fail.get(name):
            context.abort(self.fail[name].pop(0), "as the test wants it")

    def _job(self, job_id: int, context: grpc.ServicerContext) -> job_pb2.Job:
        if job_id not in self.jobs:
            info = AnyMessage()
            info.Pack(error_details_pb2.ErrorInfo(reason="NO_SUCH_JOB", domain="ebb", metadata={"job_id": str(job_id)}))
            status = status_pb2.Status(code=5, message=f"job {job_id} does not exist", details=[info])
            context.abort_with_status(rpc_status.to_status(status))
        return self.jobs[job_id]

    def Submit(self, request: scheduler_pb2.SubmitRequest, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self.submits.append(request)
        if self.busy:
            _too_many(self.busy.pop(0), context)
        if request.request_id not in self.requests:
            job = job_pb2.Job(id=len(self.jobs) + 1, spec=request.spec, user="ada", state=1, reason=2)
            job.submit_time.FromJsonString("2026-01-02T03:04:05Z")
            self.requests[request.request_id] = job.id
            self.put(job)
        self._enter("Submit", context)  # after the commit: the answer is what gets lost
        return scheduler_pb2.SubmitResponse(job=self.jobs[self.requests[request.request_id]])

    def Get(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._enter("Get", context)
        return scheduler_pb2.GetResponse(job=self._job(request.job_id, context))

    def List(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._enter("List", context)
        only = request.virtual_cluster, request.user, request.name
        of = (j for j in self.jobs.values() if _matches(only, (j.spec.virtual_cluster, j.user, j.spec.name)))
        jobs = sorted((j for j in of if not request.states or j.state in request.states), key=lambda j: -j.id)
        start = int(request.page_token or 0)
        end = start + min(self.page, request.page_size or 100)
        more = len(jobs) - end
        answer = scheduler_pb2.ListResponse(jobs=jobs[start:end], next_page_token=str(end) if more > 0 else "")
        answer.more = max(more, 0) if request.count_more else 0
        return answer

    def Watch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        self._enter("Watch", context)
        self.watches.append(request)
        if request.job_id:
            self._job(request.job_id, context)
        sent, seen = 0, request.after_commit
        while context.is_active():
            with self.changed:
                if self.commit_no <= seen and not self.stopping:
                    self.changed.wait(0.2)  # a client that left is noticed at the next round
                chosen = [self.jobs[i] for i, at in self.commits.items() if at > seen and request.job_id in (0, i)]
                snapshot, now = seen == 0, self.commit_no
            if self.stopping:
                return
            if chosen or snapshot:
                yield scheduler_pb2.SchedulerWatchResponse(snapshot=snapshot, jobs=chosen, commit_no=now)
                sent += 1
            seen = now
            if sent == self.cut_after:
                context.abort(grpc.StatusCode.UNAVAILABLE, "cut")

    def Cancel(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._enter("Cancel", context)
        self._job(request.job_id, context)
        self.change(request.job_id, state=8, reason=9)
        return scheduler_pb2.CancelResponse(job=self.jobs[request.job_id])

    def Story(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._job(request.job_id, context)
        return scheduler_pb2.StoryResponse(events=self.events)

    def Logs(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        self._enter("Logs", context)
        self.log_requests.append(request)
        at, run = request.offset, request.run or 1
        for said in ["NODE_NOT_CONNECTED true"] if run in self.log_lost else self.log_answers.pop(0):
            match said:
                case bytes():
                    yield scheduler_pb2.LogsResponse(run=run, offset=at, data=said)
                    at += len(said)
                case str():
                    info = AnyMessage()
                    reason, _, over = said.partition(" ")
                    info.Pack(
                        error_details_pb2.ErrorInfo(
                            reason=reason, domain="ebb", metadata={"over": over or "false", "run": str(run)}
                        )
                    )
                    code = REFUSALS[reason]
                    status = status_pb2.Status(code=code.value[0], message=f"the log says {said}", details=[info])
                    context.abort_with_status(rpc_status.to_status(status))
                case _:
                    context.abort(said, "as the test wants it")

    def ListNodes(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: ARG002, N802
        return cluster_pb2.ListNodesResponse(nodes=self.nodes)


@contextmanager
def serve(fake: Fake, port: int = 0) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(16), options=(("grpc.so_reuseport", 0),))
    scheduler_pb2_grpc.add_SchedulerServicer_to_server(fake, server)
    cluster_pb2_grpc.add_ClusterServicer_to_server(fake, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    fake.stopping = False
    try:
        yield f"127.0.0.1:{port}"
    finally:
        with fake.changed:
            fake.stopping = True
            fake.changed.notify_all()
        server.stop(0).wait(10)


def until(condition: Any, seconds: float = 20.0) -> None:
    """Waits for what another thread or process is to do."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def _matches(asked: Sequence[str], has: Sequence[str]) -> bool:
    return all(a in ("", b) for a, b in zip(asked, has, strict=True))
