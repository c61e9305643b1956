"""The wire without its I/O: which scheduler to ask, which errors are worth another try, and what they say to people.

Both transports stand on this.
"""

import contextlib
import logging
import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import Message

from client_sdk import errors
from client_sdk._protobuf.call import Call
from client_sdk._protobuf.calls import WATCH
from client_sdk._requests.jobs import addresses
from client_sdk._transport.access import Access, tls_problem
from client_sdk._transport.attempts import Attempts
from client_sdk._transport.following import Following
from client_sdk._waiting import full_jitter

log = logging.getLogger("client_sdk")
log.addHandler(logging.NullHandler())  # who has set up no logging sees nothing of it

_NUMBER = re.compile(r" \(\d+\)$")
_ATTEMPT = 10.0
"""Seconds that one attempt gets, so that a connection that hangs leaves time for another."""
_WORTH_A_WORD = 2.0
"""Seconds after which whoever waits is told why."""

OPTIONS = (
    # The scheduler is inside the site: a proxy for the world outside would only be in the way.
    ("grpc.enable_http_proxy", 0),
    # After a restart of the scheduler, the channel must not sleep for longer than the calls on it.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # What waits here for a reader who has stopped, as `less` does: a megabyte, not the tens of them that gRPC lets in ahead
    # where it finds the network fast.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 2**20),
    # Finds within four seconds, in which a standby takes over, that a scheduler is gone without a word, or stands still. Only
    # calls and watches under way send pings. The scheduler permits pings as often as this.
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),  # a minute if it is not said, whatever the line above says
    ("grpc.http2.max_pings_without_data", 0),
)
_FROM_LEADER = ("ebb-read", "leader")
"""Metadata that asks for the leader's own answer, rather than for that of a standby."""

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


NODE_AWAY = "NODE_NOT_CONNECTED"
"""Why a log is out of reach."""
_SAYS_ALL = (NODE_AWAY, "DATABASE_UNAVAILABLE")
"""Reasons for which no other scheduler is any better."""


class Terms(NamedTuple):
    """On which a channel is made."""

    credentials: grpc.ChannelCredentials | None
    """None: without TLS."""
    stamp: object
    """Of the files that they are from."""


class Line:
    """A channel to one scheduler, and the methods that were called over it: gRPC takes long to make one callable."""

    def __init__(self, channel: Any, terms: "Terms") -> None:
        self.channel = channel
        self.stamp = terms.stamp
        self._methods: dict[str, Any] = {}

    def method(self, call: Call[Any]) -> Any:
        """What sends such a call, once for all of its kind."""
        if (found := self._methods.get(call.method)) is None:
            found = self._methods[call.method] = self.channel.unary_unary(
                f"/ebb.v1.{call.method}",
                request_serializer=type(call.message).SerializeToString,
                response_deserializer=call.response.FromString,
            )
        return found


class StreamEnded(Exception):
    """A watch ended on the server's side without an error."""


class Peer:
    """The schedulers at the other end, of which one leads: where to ask, how long it may take, what to make of errors."""

    def __init__(self, address: str, timeout: float, access: Access, standby_reads: bool) -> None:
        self.addresses = addresses(address)
        self.names = ", ".join(self.addresses)
        self._following = Following(self.addresses)
        self._access = access
        self._standby_reads = standby_reads
        self.timeout = timeout
        self.closed = False
        """Set when this side is closed: what breaks then is not tried again."""
        self._told = False
        """Whether it was said that nothing answers."""

    @property
    def address(self) -> str:
        """Where the next try goes: to the leader, once that is known."""
        return self._following.address

    @contextlib.contextmanager
    def visit(self) -> Iterator[str]:
        """The address for one try. Where it fails, the next goes to the leader that it named, or to the next address.

        A leader may be out of reach by the name that it has among schedulers: then all that were given get their turn.
        """
        address = self.address
        try:
            yield address
            self._following.worked()
            if self._told:
                self._told = False
                log.warning("the scheduler at %s answers again", address)
        except grpc.RpcError as error:
            if address == self.address and self._retriable(error):  # else another thread knows more
                reason, metadata = _error_info(error.trailing_metadata()) if isinstance(error, _FAILED) else ("", {})
                leader = metadata.get("leader", "") if reason == "NOT_LEADING" else ""
                self._following.failed(leader, reason != "", time.monotonic())
            raise

    def metadata(self, address: str) -> tuple[tuple[str, str], ...]:
        """What a call brings along: who calls, and whose answer is wanted. Raises FailedPrecondition."""
        return (*self._access.metadata(address), *(() if self._standby_reads else (_FROM_LEADER,)))

    def terms(self, line: Line | None) -> Terms | None:
        """For a new line; None: the one that there is does. It does not where the files for TLS were renewed since, unless
        these are of no use, as where one of them is not written yet. Raises FailedPrecondition."""
        stamp = self._access.stamp()
        if line is not None and line.stamp == stamp:
            return None
        try:
            files = self._access.tls()
        except errors.FailedPrecondition:
            if line is None:
                raise
            return None
        return Terms(None if files is None else grpc.ssl_channel_credentials(files.ca, files.key, files.cert), stamp)

    def deadline(self, timeout: float | None) -> float:
        return time.monotonic() + (self.timeout if timeout is None else timeout)

    def attempt_time(self, deadline: float) -> float:
        """Where there are several schedulers, one that hangs leaves time for the others."""
        left = deadline - time.monotonic()
        return max(0.001, min(_ATTEMPT, left, max(1.0, left / len(self.addresses))))

    @staticmethod
    def stream_time(deadline: float | None) -> float | None:
        return None if deadline is None else max(0.001, deadline - time.monotonic())

    def attempts(self, method: str, deadline: float | None, waits: bool = False) -> Attempts:
        """Tries until one answers, fails for good, or the next would begin after the deadline.

        Where it `waits` for a log of which more is to come, a node that is away may be so for any time. Where nothing more is,
        the node may never be back: it is asked for as long as any call may take.
        """
        failures = 0
        began = time.monotonic()

        def backoff(error: Exception) -> bool | float:
            nonlocal failures
            pause = 0.0 if self.closed else _retry_delay(error)
            if not (pause or isinstance(error, StreamEnded) or self._retriable(error)):
                return False
            delay = pause + full_jitter(failures)
            failures += 1
            limit = deadline
            if (over := _behind_a_node(error)) is not None and (waits or deadline is None):
                limit = began + self.timeout if over else None
            now = time.monotonic()
            if limit is not None and now + delay >= limit:
                return False
            if not self._told and now - began > _WORTH_A_WORD and isinstance(error, grpc.RpcError):
                self._told = True
                log.warning("%s; trying again", self._translate(error, method))
            return delay

        return Attempts(backoff)

    @contextlib.contextmanager
    def translated(self, method: str) -> Iterator[None]:
        """Turns what gRPC raises into the SDK's errors. These say all that it said: its own, which a notebook would show above
        each, is kept as their `__context__`."""
        try:
            yield
        except grpc.RpcError as error:
            raise self._translate(error, method) from None
        except StreamEnded:
            raise errors.Unavailable(f"the scheduler at {self.names} ends every watch at once; try again later") from None

    @contextlib.contextmanager
    def may_break(self, method: str = WATCH) -> Iterator[None]:
        """For a stream that is made again where it breaks: lets only those errors out that another try would meet too.

        Where its token is no longer good, there may be a new one in the file, with which it is made again.
        """
        try:
            yield
        except grpc.RpcError as error:
            renewable = isinstance(error, _FAILED) and error.code() is grpc.StatusCode.UNAUTHENTICATED
            if not (self._retriable(error) or renewable):
                raise self._translate(error, method) from None

    def require_open(self) -> None:
        if self.closed:
            raise errors.FailedPrecondition("this Client is closed; make another")

    def given_up(self, method: str, said: str = "") -> errors.Cancelled:
        return errors.Cancelled(f"{method} at {self.names} was given up: {'the Client was closed' if self.closed else said}")

    def _retriable(self, error: Exception) -> bool:
        if self.closed or not isinstance(error, _FAILED) or error.code() not in _RETRIED:
            return False
        return len(self.addresses) > 1 or not tls_problem(error.details() or "")

    def _translate(self, error: grpc.RpcError, method: str) -> errors.EbbError:
        if not isinstance(error, _FAILED):
            return errors.Internal(f"{method} at {self.names} failed: {error}")
        code = error.code()
        reason, metadata = _error_info(error.trailing_metadata())
        said = (error.details() or code.name).strip().rstrip(".")
        if code is grpc.StatusCode.CANCELLED or (self.closed and code in _RETRIED):
            return self.given_up(method, said)
        if "header with status" in said and not reason:
            return errors.Unavailable(f"what answers at {self.names} is no scheduler of Ebb's ({said})")
        if code is grpc.StatusCode.UNAVAILABLE and not reason:
            if problem := tls_problem(said):
                return errors.Unavailable(f"the scheduler at {self.names} {problem}", reason="TLS")
            message = f"the scheduler at {self.names} cannot be reached ({_short(said)}{self._access.guess(said)})"
        elif code is grpc.StatusCode.DEADLINE_EXCEEDED and not reason:
            message = f"the scheduler at {self.names} did not answer {method} in time"
        elif code in ERRORS:
            message = said
        else:
            message = f"{method} at {self.names} failed with {code.name}: {said}"
        advice = None if reason in _SAYS_ALL else _ADVICE.get(code)
        kind = ERRORS.get(code, errors.Internal)
        return kind(f"{message}; {advice}" if advice else message, reason=reason, metadata=metadata)


_FAILED = (grpc.Call, grpc.aio.AioRpcError)
"""What an error of a call is, besides an RpcError, where it has a status."""


def _retry_delay(error: Exception) -> float:
    """The seconds after which the scheduler asks to try again, as it does where too many requests of a user wait; 0: it does
    not."""
    if not isinstance(error, _FAILED) or error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return 0.0
    from google.rpc import error_details_pb2

    info = error_details_pb2.RetryInfo()
    return info.retry_delay.ToNanoseconds() / 1e9 if _unpacked(error.trailing_metadata(), info) else 0.0


def _error_info(trailing: Any) -> tuple[str, dict[str, str]]:
    """The reason and metadata of the google.rpc.ErrorInfo that came with an error; empty where none did."""
    from google.rpc import error_details_pb2

    info = error_details_pb2.ErrorInfo()
    return (info.reason, dict(info.metadata)) if _unpacked(trailing, info) else ("", {})


def _unpacked(trailing: Any, info: Message) -> bool:
    """Fills in the detail of this type that came with an error. False: none did."""
    from google.protobuf.message import DecodeError
    from google.rpc import status_pb2

    for key, value in trailing or ():
        if key == "grpc-status-details-bin":
            with contextlib.suppress(DecodeError, TypeError):
                return any(detail.Unpack(info) for detail in status_pb2.Status.FromString(value).details)
    return False


def _behind_a_node(error: Exception) -> bool | None:
    """Of a log that is out of reach as its node is away, whether nothing more is to come of its run; None: it is not that."""
    if not isinstance(error, _FAILED):
        return None
    reason, metadata = _error_info(error.trailing_metadata())
    return metadata.get("over") == "true" if reason == NODE_AWAY else None


def _short(said: str) -> str:
    """gRPC wraps the operating system's word in several layers; the last is the one that says something. Some versions add the
    number of the error."""
    last = _NUMBER.sub("", said.rsplit(": ", 1)[-1].strip()).rstrip(".")
    return (last if "[" in last else last.rstrip("]")) or said
