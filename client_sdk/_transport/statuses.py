"""Maps the status of a call to an SDK error and its message, and tells whether a retry may help."""

import contextlib
import re
from typing import Any

import grpc
from google.protobuf.message import Message

from client_sdk import errors

_NUMBER = re.compile(r" \(\d+\)$")

RETRIED = frozenset(
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

ADVICE: dict[grpc.StatusCode, str] = {
    grpc.StatusCode.UNAVAILABLE: "check that it runs there, or name another with --address or EBB_ADDRESS",
    grpc.StatusCode.DEADLINE_EXCEEDED: "it may have happened all the same; look, or allow more time",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "try again later",
    grpc.StatusCode.ABORTED: "try again",
    grpc.StatusCode.UNIMPLEMENTED: "the scheduler is older than this client; use matching versions",
}

NODE_AWAY = "NODE_NOT_CONNECTED"
"""Why a log is out of reach."""
SAYS_ALL = (NODE_AWAY, "DATABASE_UNAVAILABLE")
"""Reasons for which trying another scheduler does not help."""

FAILED = (grpc.Call, grpc.aio.AioRpcError)
"""Types, in addition to RpcError, of call errors that have a status."""


def retry_delay(error: Exception) -> float:
    """Return the seconds after which the scheduler asks to retry, as when too many requests of a user wait; 0: it does not."""
    if not isinstance(error, FAILED) or error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return 0.0
    from google.rpc import error_details_pb2

    info = error_details_pb2.RetryInfo()
    return info.retry_delay.ToNanoseconds() / 1e9 if _unpack_detail(error.trailing_metadata(), info) else 0.0


def error_info(trailing: Any) -> tuple[str, dict[str, str]]:
    """The reason and metadata of the google.rpc.ErrorInfo that came with an error; empty where none did."""
    from google.rpc import error_details_pb2

    info = error_details_pb2.ErrorInfo()
    return (info.reason, dict(info.metadata)) if _unpack_detail(trailing, info) else ("", {})


def _unpack_detail(trailing: Any, info: Message) -> bool:
    """Fills in the detail of this type that came with an error. False: none did."""
    from google.protobuf.message import DecodeError
    from google.rpc import status_pb2

    for key, value in trailing or ():
        if key == "grpc-status-details-bin":
            with contextlib.suppress(DecodeError, TypeError):
                return any(detail.Unpack(info) for detail in status_pb2.Status.FromString(value).details)
    return False


def behind_a_node(error: Exception) -> bool | None:
    """If a log cannot be read because its node is disconnected: whether its run has ended; None for any other error."""
    if not isinstance(error, FAILED):
        return None
    reason, metadata = error_info(error.trailing_metadata())
    return metadata.get("over") == "true" if reason == NODE_AWAY else None


def shorten(said: str) -> str:
    """gRPC wraps the operating system's word in several layers; the last is the one that says something. Some versions add the
    number of the error."""
    last = _NUMBER.sub("", said.rsplit(": ", 1)[-1].strip()).rstrip(".")
    return (last if "[" in last else last.rstrip("]")) or said
