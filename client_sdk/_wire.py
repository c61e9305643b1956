"""The wire without its I/O: messages for requests, which errors are worth another try, and what they say to people.

Both transports stand on this. Every call of the API is safe to send again (Submit by its request_id), so all of them are
retried alike.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
import stamina
from ebb.v1 import cluster_pb2, scheduler_pb2
from google.protobuf.message import Message

from client_sdk import _convert, errors, models
from client_sdk._requests import Cancel, Get, ListNodes, ListPage, Page, Request, Story, Submit
from client_sdk._waiting import Course, full_jitter

M = TypeVar("M", bound=Message)
T = TypeVar("T")

WATCH = "Scheduler/Watch"

_ATTEMPT = 10.0
"""Seconds that one attempt gets, so that a connection that hangs leaves time for another."""

OPTIONS = (
    # The scheduler is inside the site: a proxy for the world outside would only be in the way.
    ("grpc.enable_http_proxy", 0),
    # After a restart of the scheduler, the channel must not sleep for longer than the calls on it.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # Finds a connection that is gone without a word; the shortest interval that every gRPC server allows unasked.
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)

_RETRIED = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,  # by a server that shuts down; where this side cancels, it does not ask again
    }
)

ERRORS: dict[grpc.StatusCode, type[errors.EbbError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidArgument,
    grpc.StatusCode.OUT_OF_RANGE: errors.InvalidArgument,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.ALREADY_EXISTS: errors.AlreadyExists,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
    grpc.StatusCode.FAILED_PRECONDITION: errors.FailedPrecondition,
    grpc.StatusCode.ABORTED: errors.Aborted,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.ResourceExhausted,
    grpc.StatusCode.UNAVAILABLE: errors.Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    grpc.StatusCode.CANCELLED: errors.Cancelled,
    grpc.StatusCode.UNIMPLEMENTED: errors.Unimplemented,
}

_ADVICE: dict[grpc.StatusCode, str] = {
    grpc.StatusCode.UNAVAILABLE: "check that it runs there, or name another with --address or EBB_ADDRESS",
    grpc.StatusCode.DEADLINE_EXCEEDED: "it may have happened all the same; look, or allow more time",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "try again later",
    grpc.StatusCode.ABORTED: "try again",
    grpc.StatusCode.UNIMPLEMENTED: "the scheduler is older than this client; use matching versions",
}


class StreamEnded(Exception):
    """A watch ended on the server's side without an error."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request as it is sent, and how its answer is read."""

    method: str
    message: Message
    response: type[Message]
    read: Callable[[Any], T]


def encode(request: Request[T]) -> Call[T]:
    """Raises InvalidArgument for what no message can hold."""
    call: Call[Any]
    match request:
        case Submit(spec, request_id):
            submit = scheduler_pb2.SubmitRequest(spec=_convert.spec_message(spec), request_id=request_id)
            call = Call("Scheduler/Submit", submit, scheduler_pb2.SubmitResponse, _job)
        case Get(job_id):
            call = Call("Scheduler/Get", _about(job_id, scheduler_pb2.GetRequest), scheduler_pb2.GetResponse, _job)
        case ListPage(states, size, token):
            listed = scheduler_pb2.ListRequest(page_size=size, page_token=token, states=[int(s) for s in states])
            call = Call("Scheduler/List", listed, scheduler_pb2.ListResponse, _page)
        case Cancel(job_id):
            call = Call("Scheduler/Cancel", _about(job_id, scheduler_pb2.CancelRequest), scheduler_pb2.CancelResponse, _job)
        case Story(job_id):
            call = Call("Scheduler/Story", _about(job_id, scheduler_pb2.StoryRequest), scheduler_pb2.StoryResponse, _events)
        case ListNodes():
            call = Call("Cluster/ListNodes", cluster_pb2.ListNodesRequest(), cluster_pb2.ListNodesResponse, _nodes)
        case _:
            raise AssertionError(f"nobody knows how to send {request!r}")
    return call


def _job(answer: scheduler_pb2.GetResponse) -> models.Job:
    return _convert.job(answer.job)


def _page(answer: scheduler_pb2.ListResponse) -> Page:
    return Page(tuple(map(_convert.job, answer.jobs)), answer.next_page_token)


def _events(answer: scheduler_pb2.StoryResponse) -> list[models.JobEvent]:
    return [_convert.event(event) for event in answer.events]


def _nodes(answer: cluster_pb2.ListNodesResponse) -> list[models.Node]:
    return [_convert.node(node) for node in answer.nodes]


def watch_message(course: Course) -> scheduler_pb2.SchedulerWatchRequest:
    return _about(course.job_id, scheduler_pb2.SchedulerWatchRequest, after_commit=course.token)


def _about(job_id: int, request: Callable[..., M], **fields: int) -> M:
    """A request about one job."""
    try:
        return request(job_id=job_id, **fields)
    except (TypeError, ValueError) as error:
        raise errors.InvalidArgument(f"{job_id!r} cannot be the id of a job; ids are whole numbers from 1") from error


class Peer:
    """The scheduler at the other end: how long it may take, and what to make of its errors."""

    def __init__(self, address: str, timeout: float) -> None:
        self.address = address
        self.timeout = timeout
        self.closed = False
        """Set when this side is closed: what breaks then is not tried again."""

    def deadline(self, timeout: float | None) -> float:
        return time.monotonic() + (self.timeout if timeout is None else timeout)

    @staticmethod
    def attempt_time(deadline: float) -> float:
        return max(0.001, min(_ATTEMPT, deadline - time.monotonic()))

    @staticmethod
    def stream_time(deadline: float | None) -> float | None:
        return None if deadline is None else max(0.001, deadline - time.monotonic())

    def attempts(self, deadline: float | None) -> Any:
        """Tries until one answers, fails for good, or the next would begin after the deadline. To be looped over, by `for`
        or `async for`."""
        failures = 0

        def backoff(error: Exception) -> bool | float:
            nonlocal failures
            if not isinstance(error, StreamEnded) and not self._retriable(error):
                return False
            delay = full_jitter(failures)
            failures += 1
            return False if deadline is not None and time.monotonic() + delay >= deadline else delay

        return stamina.retry_context(on=backoff, attempts=None, timeout=None)

    @contextlib.contextmanager
    def translated(self, method: str) -> Iterator[None]:
        """Turns what gRPC raises into the SDK's errors."""
        try:
            yield
        except grpc.RpcError as error:
            raise self._translate(error, method) from error
        except StreamEnded as error:
            raise errors.Unavailable(f"the scheduler at {self.address} ends every watch at once; try again later") from error

    @contextlib.contextmanager
    def may_break(self) -> Iterator[None]:
        """For a stream that is made again where it breaks: lets only those errors out that another try would meet too."""
        try:
            yield
        except grpc.RpcError as error:
            if not self._retriable(error):
                raise self._translate(error, WATCH) from error

    def require_open(self) -> None:
        if self.closed:
            raise errors.FailedPrecondition("this Client is closed; make another")

    def given_up(self, method: str, said: str = "") -> errors.Cancelled:
        return errors.Cancelled(f"{method} at {self.address} was given up: {'the Client was closed' if self.closed else said}")

    def _retriable(self, error: Exception) -> bool:
        return not self.closed and isinstance(error, _FAILED) and error.code() in _RETRIED

    def _translate(self, error: grpc.RpcError, method: str) -> errors.EbbError:
        if not isinstance(error, _FAILED):
            return errors.Internal(f"{method} at {self.address} failed: {error}")
        code = error.code()
        reason, metadata = _error_info(error.trailing_metadata())
        said = (error.details() or code.name).strip().rstrip(".")
        if code is grpc.StatusCode.CANCELLED or (self.closed and code in _RETRIED):
            return self.given_up(method, said)
        if code is grpc.StatusCode.UNAVAILABLE and not reason:
            message = f"the scheduler at {self.address} cannot be reached ({_short(said)})"
        elif code is grpc.StatusCode.DEADLINE_EXCEEDED and not reason:
            message = f"the scheduler at {self.address} did not answer {method} in time"
        elif code in ERRORS:
            message = said
        else:
            message = f"{method} at {self.address} failed with {code.name}: {said}"
        advice = _ADVICE.get(code)
        kind = ERRORS.get(code, errors.Internal)
        return kind(f"{message}; {advice}" if advice else message, reason=reason, metadata=metadata)


_FAILED = (grpc.Call, grpc.aio.AioRpcError)
"""What an error of a call is, besides an RpcError, where it has a status."""


def _error_info(trailing: Any) -> tuple[str, dict[str, str]]:
    """The reason and metadata of the google.rpc.ErrorInfo that came with an error; empty where none did."""
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2, status_pb2

    for key, value in trailing or ():
        if key == "grpc-status-details-bin":
            info = error_details_pb2.ErrorInfo()
            with contextlib.suppress(DecodeError, TypeError):
                for detail in status_pb2.Status.FromString(value).details:
                    if detail.Unpack(info):
                        return info.reason, dict(info.metadata)
    return "", {}


def _short(said: str) -> str:
    """gRPC wraps the operating system's word in several layers; the last is the one that says something."""
    return said.rsplit(": ", 1)[-1].strip().rstrip(".") or said
