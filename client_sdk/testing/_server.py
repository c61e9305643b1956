"""A real gRPC server, on the loopback interface of this process, that serves a `State`."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, NoReturn

import grpc
from ebb.v1 import cluster_pb2, exchange_pb2, scheduler_pb2, snapshots_pb2, virtual_clusters_pb2
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from client_sdk._transport.statuses import ERRORS
from client_sdk.errors import EbbError, FailedPrecondition, Internal, Unavailable
from client_sdk.testing import _explanations, _field_rules, _files, _handlers, _migrating, _nodes, _resizing, _runs, _updating
from client_sdk.testing._state import State

_THREADS = 1024
"""At most: a watch keeps a thread for as long as it lasts. Those that nobody needs are not made."""
_PIECE = 64 * 1024
_OPTIONS = (("grpc.so_reuseport", 0), ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000))
_serialize = methodcaller("SerializeToString")
_CODES = {error: code for code, error in reversed(ERRORS.items())} | {Internal: grpc.StatusCode.INTERNAL}


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure to inject into the next call, or the next `call` of this name: before or after it is carried out."""

    error: EbbError
    call: str | None
    after: bool


Answer = Callable[[Any], Message]


def _scheduler(state: State) -> dict[str, Answer]:
    """Return the answers to calls about jobs."""

    def submit(request: scheduler_pb2.SubmitRequest) -> Message:
        if request.validate_only:
            return _explanations.preview(state, request)
        return scheduler_pb2.SubmitResponse(job=_handlers.submit(state, request))

    def get(request: scheduler_pb2.GetRequest) -> Message:
        answer = scheduler_pb2.GetResponse(job=state.find(request.job_id))
        answer.job.steps.extend(_nodes.steps_of(state, answer.job))
        answer.job.mini_batches.extend(_nodes.mini_batches_of(state, answer.job))
        return answer

    return {
        "Submit": submit,
        "Get": get,
        "List": state.page,
        "Cancel": lambda r: scheduler_pb2.CancelResponse(job=_handlers.cancel(state, r.job_id)),
        "Suspend": lambda r: (
            scheduler_pb2.SuspendResponse(job=state.find(r.job_id), jobs_at_risk=_runs.at_risk(state, r))
            if r.validate_only
            else scheduler_pb2.SuspendResponse(job=_handlers.suspend(state, r))
        ),
        "Resume": lambda r: scheduler_pb2.ResumeResponse(job=_handlers.resume(state, r.job_id)),
        "Hold": lambda r: scheduler_pb2.HoldResponse(job=_handlers.hold(state, r.job_id)),
        "Release": lambda r: scheduler_pb2.ReleaseResponse(job=_handlers.release(state, r.job_id)),
        "Requeue": lambda r: (
            scheduler_pb2.RequeueResponse(job=state.find(r.job_id), jobs_at_risk=_runs.at_risk(state, r))
            if r.validate_only
            else scheduler_pb2.RequeueResponse(job=_handlers.requeue(state, r.job_id))
        ),
        "Resize": lambda r: scheduler_pb2.ResizeResponse(job=_resizing.resize(state, r)),
        "Migrate": lambda r: (
            scheduler_pb2.MigrateResponse(job=state.find(r.job_id), jobs_at_risk=_runs.at_risk(state, r))
            if r.validate_only
            else scheduler_pb2.MigrateResponse(job=_migrating.migrate(state, r))
        ),
        "Update": lambda r: scheduler_pb2.UpdateResponse(job=_updating.update(state, r)),
        "Explain": lambda r: _explanations.explain(state, r.job_id),
        "Shares": lambda r: _explanations.shares(state, r),
        "ListRuns": lambda r: _runs.list_runs(state, r),
        "Story": lambda r: scheduler_pb2.StoryResponse(events=state.story(r.job_id)),
    }


def _snapshots(state: State) -> dict[str, Answer]:
    """Return the answers to calls about snapshots and results."""
    return {
        "FindSnapshot": lambda r: _files.find(state, r),
        "PutSnapshot": lambda r: _files.put(state, r),
        "GetResult": lambda r: _files.result(state, r),
    }


def _cluster(state: State) -> dict[str, Answer]:
    """Return the answers to calls about nodes."""
    return {
        "ListNodes": lambda r: _nodes.nodes(state, r),
        "GetNode": lambda r: _nodes.found(state, r.node),
        "Drain": lambda r: (
            cluster_pb2.DrainResponse(node=_nodes.node(state, r.node), jobs_at_risk=_nodes.at_risk(state, r))
            if r.validate_only
            else cluster_pb2.DrainResponse(node=_handlers.drain(state, r))
        ),
        "Undrain": lambda r: cluster_pb2.UndrainResponse(node=_handlers.undrain(state, r.node)),
        "Fence": lambda r: cluster_pb2.FenceResponse(node=_handlers.fence(state, r.node)),
        "DeleteNode": lambda r: _handlers.delete_node(state, r.node),
    }


def _without(messages: Any, service: str) -> dict[str, Answer]:
    """The fake is a site without virtual clusters, and so without this service."""

    def refuse(_: Any) -> NoReturn:
        raise FailedPrecondition(_handlers.NO_VIRTUAL_CLUSTERS, reason="NO_VIRTUAL_CLUSTERS")

    return {method.name: refuse for method in messages.DESCRIPTOR.services_by_name[service].methods}


class Server:
    """Serves from its making until `close`. Everything is guarded by the state's `changed`."""

    def __init__(self, state: State) -> None:
        self.calls: Counter[str] = Counter()
        self.failures: list[Failure] = []
        self.down: EbbError | None = None
        """The error with which every call fails; None: calls are answered."""
        self.watches = 0
        """The number of watches in progress, including followed logs."""
        self._state = state
        self._cuts = 0
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="ebb-fake")
        self._server = grpc.server(self._pool, options=_OPTIONS)
        scheduler = self._calls(_scheduler(state), scheduler_pb2) | {
            "Watch": grpc.unary_stream_rpc_method_handler(
                self._watch, scheduler_pb2.SchedulerWatchRequest.FromString, _serialize
            ),
            "Logs": grpc.unary_stream_rpc_method_handler(self._logs, scheduler_pb2.LogsRequest.FromString, _serialize),
        }
        cluster = self._calls(_cluster(state), cluster_pb2)
        virtual_clusters = self._calls(_without(virtual_clusters_pb2, "VirtualClusters"), virtual_clusters_pb2)
        snapshots = self._calls(_snapshots(state), snapshots_pb2)
        exchange = self._calls(_without(exchange_pb2, "Exchange"), exchange_pb2)
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler("ebb.v1.Scheduler", scheduler),
                grpc.method_handlers_generic_handler("ebb.v1.Cluster", cluster),
                grpc.method_handlers_generic_handler("ebb.v1.VirtualClusters", virtual_clusters),
                grpc.method_handlers_generic_handler("ebb.v1.Exchange", exchange),
                grpc.method_handlers_generic_handler("ebb.v1.Snapshots", snapshots),
            )
        )
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        with self._state.changed:
            self.down = Unavailable("the fake cluster is closed")
            self.cut()
        self._server.stop(0).wait()
        self._pool.shutdown()

    def cut(self) -> None:
        """Breaks every watch and log."""
        self._cuts += 1
        self._state.changed.notify_all()

    def _calls(self, answers: "dict[str, Answer]", messages: Any) -> dict[str, Any]:
        return {name: self._unary(name, getattr(messages, f"{name}Request"), answer) for name, answer in answers.items()}

    def _unary(self, name: str, request: type[Message], answer: Callable[[Any], Message]) -> Any:
        def behave(asked: Message, context: grpc.ServicerContext) -> Message:
            with self._state.changed:
                try:
                    failure = self._enter(name)
                    _field_rules.check(asked)
                    answered = answer(asked)
                    if failure is not None:
                        raise failure.error
                except EbbError as error:
                    _abort(context, error)
                except Exception as error:
                    _abort(context, Internal(f"the fake cluster, or the test's script, raised {error!r}"))
                return answered

        return grpc.unary_unary_rpc_method_handler(behave, request.FromString, _serialize)

    def _enter(self, name: str) -> Failure | None:
        """Counts the call and raises what it is to fail with; returns that where it is to fail afterwards."""
        self.calls[name] += 1
        if self.down is not None:
            raise self.down
        failure = next((f for f in self.failures if f.call in (None, name)), None)
        if failure is not None:
            self.failures.remove(failure)
            if not failure.after:
                raise failure.error
        return failure

    def _watch(
        self, request: scheduler_pb2.SchedulerWatchRequest, context: grpc.ServicerContext
    ) -> Iterator[scheduler_pb2.SchedulerWatchResponse]:
        state = self._state
        with state.changed:
            try:
                self._enter("Watch")
                _field_rules.check(request)
                if request.job_id:
                    state.find(request.job_id)
            except EbbError as error:
                _abort(context, error)
            at, cuts = request.after_commit, self._cuts
            self._watch_began(context)
        while True:
            with state.changed:
                snapshot, jobs = state.since(at, request.job_id)
                while not (snapshot or jobs) and context.is_active() and self._cuts == cuts:
                    state.changed.wait()
                    snapshot, jobs = state.since(at, request.job_id)
                if not context.is_active():
                    return
                if self._cuts != cuts:
                    _abort(context, Unavailable("the fake cluster broke the connection"))
                at = state.commit_no
            yield scheduler_pb2.SchedulerWatchResponse(snapshot=snapshot, jobs=jobs, commit_no=at)

    def _logs(self, request: scheduler_pb2.LogsRequest, context: grpc.ServicerContext) -> Iterator[scheduler_pb2.LogsResponse]:
        state = self._state
        with state.changed:
            try:
                self._enter("Logs")
                _field_rules.check(request)
                found = state.output(request)
            except EbbError as error:
                _abort(context, error)
            cuts = self._cuts
            self._watch_began(context)
        said, at = False, request.offset
        while True:
            with state.changed:
                while context.is_active() and self._cuts == cuts:
                    found = state.output(request)
                    if found.over or not request.follow or (found.run and not said) or len(found.data) > at:
                        break
                    state.changed.wait()
                if not context.is_active():
                    return
                if self._cuts != cuts:
                    _abort(context, Unavailable("the fake cluster broke the connection"))
            if found.run and not said:
                yield scheduler_pb2.LogsResponse(offset=at, run=found.run)
                request.run, said = found.run, True
            if found.data[at:]:
                yield scheduler_pb2.LogsResponse(data=found.data[at : at + _PIECE], offset=at, run=found.run)
                at += len(found.data[at : at + _PIECE])
            elif found.over or not request.follow:
                return

    def _watch_began(self, context: grpc.ServicerContext) -> None:
        self.watches += 1
        # Also wakes its loop, which else would notice with the next change only that its watcher has left.
        if not context.add_callback(self._watch_ended):
            self._watch_ended()

    def _watch_ended(self) -> None:
        with self._state.changed:
            self.watches -= 1
            self._state.changed.notify_all()


def _abort(context: grpc.ServicerContext, error: EbbError) -> NoReturn:
    code = _CODES[type(error)]
    details = []
    if error.reason:
        details.append(AnyMessage())
        details[0].Pack(error_details_pb2.ErrorInfo(reason=error.reason, domain="ebb", metadata=dict(error.metadata)))
    status = status_pb2.Status(code=code.value[0], message=str(error), details=details)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, str(error))
    raise AssertionError("abort always raises")
