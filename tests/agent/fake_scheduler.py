"""A scheduler's end of the agent link that does what a test tells it to, and remembers what it heard."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import grpc
from ebb.agent.v1 import agent_link_pb2 as pb
from ebb.agent.v1 import agent_link_pb2_grpc
from ebb.v1 import job_pb2
from google.protobuf.duration_pb2 import Duration

T = TypeVar("T")
LIMIT = 60.0


class FakeScheduler(agent_link_pb2_grpc.AgentLinkServicer):
    """Acknowledges every report unless `acknowledging` is off."""

    def __init__(self, cluster_id: str = "c1", epoch: int = 1, port: int = 0) -> None:
        self.cluster_id = cluster_id
        self.epoch = epoch
        self.acknowledging = True
        self.heartbeat = 0.2
        self.transfer_key = b""
        self.heard = threading.Condition()
        self.hellos: list[pb.Hello] = []
        self.reports: list[pb.Report] = []
        """All that came, repeats included."""
        self.arrivals: list[float] = []
        self.heartbeats = 0
        self.observations: list[pb.Observations] = []
        self.committed = 0
        self.on_hello: Callable[[], object] = lambda: None
        self.out: queue.Queue[pb.ConnectResponse | None] = queue.Queue()
        self.desired: dict[tuple[int, int, int], pb.DesiredRun] = {}
        """What was desired last of each run."""
        self.logs: dict[str, Log] = {}
        self.snapshots: dict[str, bytes] = {}
        self.fetched: list[tuple[str, int]] = []
        """The pieces that were asked for: digest and offset."""
        self.fetching = threading.Event()
        """Cleared: whoever asks for a piece from byte `halt_at` on waits."""
        self.halt_at = 0
        self.fetching.set()
        self.ended_days: dict[int, int] = {}
        """Job -> how many days ago it ended."""
        self.asked: list[tuple[list[int], int]] = []
        """The jobs of which it was asked whether they have ended, and the days."""
        self.results: dict[tuple[int, int], bytes] = {}
        self.piece, self.most_result = 1 << 20, 1 << 30
        self.server = grpc.server(ThreadPoolExecutor(100), options=[("grpc.so_reuseport", 0)])
        agent_link_pb2_grpc.add_AgentLinkServicer_to_server(self, self.server)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        self.server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def Connect(  # noqa: N802
        self,
        request_iterator: Iterator[pb.ConnectRequest],
        context: Any,  # noqa: ARG002
    ) -> Iterator[pb.ConnectResponse]:
        hello = next(request_iterator).hello
        self.on_hello()
        out: queue.Queue[pb.ConnectResponse | None] = queue.Queue()
        out.put(
            pb.ConnectResponse(
                welcome=pb.Welcome(
                    cluster_id=self.cluster_id,
                    epoch=self.epoch,
                    seal=b"epoch %d" % self.epoch,
                    transfer_key=self.transfer_key,
                    configuration=pb.NodeConfiguration(heartbeat_interval=_duration(self.heartbeat)),
                    acknowledged=self.committed if self.hellos and self.hellos[-1].boot_id == hello.boot_id else 0,
                )
            )
        )
        with self.heard:
            self.hellos.append(hello)
            self.out = out
            self.heard.notify_all()
        threading.Thread(target=self._listen, args=(request_iterator, out), daemon=True).start()
        while (message := out.get()) is not None:
            yield message

    def SendLog(self, request_iterator: Iterator[pb.SendLogRequest], context: Any) -> pb.SendLogResponse:  # noqa: N802
        log = Log(context.cancel)

        def over() -> None:
            with self.heard:
                log.over = True
                self.heard.notify_all()

        context.add_callback(over)
        try:
            for message in request_iterator:
                with self.heard:
                    if message.id:
                        assert not log.messages
                        self.logs[message.id] = log
                    log.messages.append(message)
                    self.heard.notify_all()
        except Exception:  # the agent went
            pass
        return pb.SendLogResponse()

    def GetSnapshot(self, request: pb.GetSnapshotRequest, context: Any) -> pb.GetSnapshotResponse:  # noqa: N802
        with self.heard:
            self.fetched.append((request.digest, request.offset))
            self.heard.notify_all()
        if request.offset >= self.halt_at:
            self.fetching.wait(LIMIT)
        data = self.snapshots.get(request.digest)
        if data is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"the snapshot {request.digest} is not stored any more")
        assert data is not None
        return pb.GetSnapshotResponse(data=data[request.offset :][: self.piece], size=len(data))

    def FindEnded(self, request: pb.FindEndedRequest, context: Any) -> pb.FindEndedResponse:  # noqa: ARG002, N802
        days = request.after.ToTimedelta().days
        with self.heard:
            self.asked.append((list(request.job_ids), days))
            self.heard.notify_all()
        return pb.FindEndedResponse(job_ids=[job for job in request.job_ids if self.ended_days.get(job, 0) >= days])

    def PutResult(self, request: pb.PutResultRequest, context: Any) -> pb.PutResultResponse:  # noqa: N802
        with self.heard:
            if request.size > self.most_result:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "it is too large")
            key = request.job_id, request.run
            known = self.results.get(key, b"")
            if request.offset == len(known):
                self.results[key] = known + request.data
            self.heard.notify_all()
            return pb.PutResultResponse(stored=len(self.results[key]))

    def result(self, job: int, size: int, run: int = 1) -> bytes:
        return self.wait(lambda: len(self.results.get((job, run), b"")) == size and self.results[(job, run)])  # type: ignore[return-value]

    def _listen(self, requests: Iterator[pb.ConnectRequest], out: "queue.Queue[pb.ConnectResponse | None]") -> None:
        try:
            for request in requests:
                with self.heard:
                    if request.WhichOneof("message") == "heartbeat":
                        self.heartbeats += 1
                    elif request.WhichOneof("message") == "observations":
                        self.observations.append(request.observations)
                    else:
                        self.reports += request.reports.reports
                        self.arrivals.append(time.monotonic())
                        if self.acknowledging:
                            self.committed = self.reports[-1].sequence
                            ack = pb.Acknowledgement(sequence=self.committed)
                            out.put(pb.ConnectResponse(acknowledgement=ack))
                    self.heard.notify_all()
        except Exception:  # the agent went
            pass
        finally:
            out.put(None)

    def wait(self, what: Callable[[], T], limit: float = LIMIT) -> T:
        """The first true value of `what`, which is asked after everything that is heard."""
        with self.heard:
            assert self.heard.wait_for(what, limit), f"not in {limit} s; reports: {self.reports}"
            return what()

    def connected(self, times: int = 1) -> pb.Hello:
        self.wait(lambda: len(self.hellos) >= times)
        return self.hellos[-1]

    def started(self, job: int, run: int = 1, task: int = 0) -> pb.RunStarted:
        return self.wait(lambda: self._event(job, run, task, "started")).started

    def ready(self, job: int, run: int = 1, task: int = 0) -> pb.RunReady:
        return self.wait(lambda: self._event(job, run, task, "ready")).ready

    def exited(self, job: int, run: int = 1, limit: float = LIMIT, task: int = 0) -> pb.RunExited:
        return self.wait(lambda: self._event(job, run, task, "exited"), limit).exited

    def event(self, kind: str, job: int, run: int = 1, task: int = 0, times: int = 1) -> Any:
        """The report of this kind that came so often, repeats not counted."""

        def found() -> list[pb.Report]:
            reports = {r.sequence: r for r in self.of(job, run, task) if r.WhichOneof("event") == kind}
            return list(reports.values())[times - 1 :]

        return getattr(self.wait(found)[0], kind)

    def slices(self) -> dict[int, pb.SliceObservation]:
        """What was seen last of each job that takes turns."""
        return {seen.job_id: seen for seen in self.observations[-1].slices} if self.observations else {}

    def of(self, job: int, run: int = 1, task: int = 0) -> list[pb.Report]:
        return [r for r in self.reports if (r.job_id, r.run, r.task) == (job, run, task)]

    def _event(self, job: int, run: int, task: int, kind: str) -> pb.Report | None:
        return next((r for r in self.of(job, run, task) if r.WhichOneof("event") == kind), None)

    def start(
        self,
        job: int,
        *command: str,
        run: int = 1,
        devices: tuple[int, ...] = (),
        gang: pb.Gang | None = None,
        array_index: int | None = None,
        share: pb.SharePlan | None = None,
        park_within: float | None = None,
        source: tuple[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """Has it run, unless it is of a gang whose rendezvous is missing: then it is to be prepared. Or has it parked."""
        launch = pb.Launch(spec=job_pb2.JobSpec(command=command, **spec), user="u", devices=devices, array_index=array_index)
        if gang is not None:
            launch.gang.CopyFrom(gang)
        if share is not None:
            launch.share.CopyFrom(share)
        if source is not None:
            launch.checkpoint.CopyFrom(pb.CheckpointSource(node=source[0], address=source[1]))
        state = "prepared" if gang is not None and not gang.master_address else "running"
        if park_within is not None:
            park = pb.Park(launch=launch, time_limit=_duration(park_within))
            self.desire(job, run, launch.gang.rank, parked=park)
            return
        self.desire(job, run, launch.gang.rank, **{state: launch})

    def stop(
        self,
        job: int,
        grace: float,
        run: int = 1,
        reason: pb.StopReason = pb.STOP_REASON_PREEMPTED,
        task: int = 0,
        cause: int = 0,
    ) -> None:
        self.desire(job, run, task, stopped=pb.Stop(grace_period=_duration(grace), reason=reason, cause_job_id=cause))

    def desire(self, job: int, run: int, task: int, **state: Any) -> None:
        """Has that hold of a run from now on. The same again is a repeat, and anything else a new generation."""
        before = self.desired.get((job, run, task), pb.DesiredRun(job_id=job, run=run, task=task))
        wanted = pb.DesiredRun(job_id=job, run=run, task=task, generation=before.generation, **state)
        if wanted != before:
            wanted.generation += 1
        self.say(wanted)

    def say(self, *runs: pb.DesiredRun) -> None:
        """Sends that as it is, old or new."""
        self.desired |= {(run.job_id, run.run, run.task): run for run in runs}
        self.out.put(pb.ConnectResponse(desired_runs=pb.DesiredRuns(commit_no=1, runs=runs)))

    def configure(self, heartbeat: float) -> None:
        """Tells the agent that is connected."""
        self.out.put(pb.ConnectResponse(configuration=pb.NodeConfiguration(heartbeat_interval=_duration(heartbeat))))

    def ask_log(self, id_: str, job: int, run: int = 1, offset: int = 0, follow: bool = False, task: int = 0) -> None:
        request = pb.LogRequest(id=id_, job_id=job, run=run, task=task, offset=offset, follow=follow)
        self.out.put(pb.ConnectResponse(log_request=request))

    def log(self, id_: str, until: Callable[["Log"], bool] = lambda log: log.over) -> "Log":
        """The answer to `ask_log`, once that is so."""
        self.wait(lambda: id_ in self.logs and until(self.logs[id_]))
        return self.logs[id_]

    def begin_anew(self, cluster_id: str) -> None:
        """As with a new database."""
        self.cluster_id, self.epoch, self.committed = cluster_id, 1, 0
        for heard in (self.hellos, self.reports, self.arrivals):
            heard.clear()

    def hang_up(self) -> None:
        """Ends the stream from this side."""
        self.out.put(None)

    def close(self) -> None:
        self.out.put(None)
        self.server.stop(None).wait()


class Log:
    """What an agent sent for one request."""

    def __init__(self, hang_up: Callable[[], object]) -> None:
        self.hang_up = hang_up
        self.messages: list[pb.SendLogRequest] = []
        self.over = False
        """The call has ended."""

    @property
    def data(self) -> bytes:
        return b"".join(message.data for message in self.messages)


def gang(rank: int = 0, *, go: tuple[str, int] | None = None, size: int = 3) -> pb.Gang:
    """One of several tasks, of which this node has the first two; `go` is where they meet."""
    here = rank < 2
    place = pb.Gang(
        rank=rank,
        world_size=size,
        local_rank=rank if here else rank - 2,
        local_world_size=2 if here else size - 2,
        node_rank=0 if here else 1,
        nodes=["n1", "n2"],
    )
    if go is not None:
        place.master_address, place.master_port = go
    return place


def _duration(seconds: float) -> Duration:
    return Duration(seconds=int(seconds), nanos=round((seconds % 1) * 1e9))


def share_plan(*rows: tuple[int, ...], period: float, generation: int = 1, weights: tuple[int, ...] = ()) -> pb.SharePlan:
    """Jobs of one run and one task that take turns."""
    each = zip(rows, weights or (1,) * len(rows), strict=True)
    made = [pb.ShareRow(runs=[pb.ShareMember(job_id=job, run=1) for job in row], weight=weight) for row, weight in each]
    return pb.SharePlan(group=1, generation=generation, rows=made, period=_duration(period))
