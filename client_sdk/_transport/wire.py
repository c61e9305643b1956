"""The wire without its I/O: which scheduler to ask, and what becomes of a call that fails (see `statuses`).

Both transports stand on this.
"""

import contextlib
import logging
import time
from collections.abc import Iterator

import grpc

from client_sdk import errors
from client_sdk._protobuf.calls import WATCH
from client_sdk._requests.jobs import addresses
from client_sdk._transport.access import Access, tls_problem
from client_sdk._transport.attempts import Attempts
from client_sdk._transport.channels import Line, Terms
from client_sdk._transport.following import Following
from client_sdk._transport.statuses import (
    ADVICE,
    ERRORS,
    FAILED,
    RETRIED,
    SAYS_ALL,
    behind_a_node,
    error_info,
    retry_delay,
    shorten,
)
from client_sdk._watch_cursor import full_jitter

log = logging.getLogger("client_sdk")
log.addHandler(logging.NullHandler())  # who has set up no logging sees nothing of it

_ATTEMPT = 10.0
"""Maximum seconds of one attempt, so that a hanging connection leaves time for another."""
_WORTH_A_WORD = 2.0
"""Seconds after which a waiting caller is told why it waits."""

_FROM_LEADER = ("ebb-read", "leader")
"""Metadata that requests the answer of the leader instead of a standby's."""


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
        """Whether a message that no scheduler answers was logged."""

    @property
    def address(self) -> str:
        """The address for the next try: the leader's, once that is known."""
        return self._following.address

    @contextlib.contextmanager
    def visit(self) -> Iterator[str]:
        """The address for one try. If that fails, the next try uses the leader that it named, or the next address.

        A leader may be unreachable by the name that other schedulers use for it: then all given addresses are tried in turn.
        """
        address = self.address
        try:
            yield address
            self._following.note_success()
            if self._told:
                self._told = False
                log.warning("the scheduler at %s answers again", address)
        except grpc.RpcError as error:
            if address == self.address and self._retriable(error):  # else another thread knows more
                reason, metadata = error_info(error.trailing_metadata()) if isinstance(error, FAILED) else ("", {})
                leader = metadata.get("leader", "") if reason == "NOT_LEADING" else ""
                self._following.note_failure(leader, reason != "", time.monotonic())
            raise

    def metadata(self, address: str) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a call: the token, and whether the leader has to answer. Raises FailedPrecondition."""
        return (*self._access.metadata(address), *(() if self._standby_reads else (_FROM_LEADER,)))

    def terms(self, line: Line | None) -> Terms | None:
        """Return the terms of a new line, or None to keep the current one. A new line is needed if the TLS files were renewed,
        unless they are not usable, for example while one is not yet written. Raises FailedPrecondition."""
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
        """Return the time for one attempt, so that if one of several schedulers hangs, time is left for the others."""
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
            pause = 0.0 if self.closed else retry_delay(error)
            if not (pause or isinstance(error, StreamEnded) or self._retriable(error)):
                return False
            delay = pause + full_jitter(failures)
            failures += 1
            limit = deadline
            if (over := behind_a_node(error)) is not None and (waits or deadline is None):
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
    def translate_errors(self, method: str) -> Iterator[None]:
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
            renewable = isinstance(error, FAILED) and error.code() is grpc.StatusCode.UNAUTHENTICATED
            if not (self._retriable(error) or renewable):
                raise self._translate(error, method) from None

    def require_open(self) -> None:
        if self.closed:
            raise errors.FailedPrecondition("this Client is closed; make another")

    def cancelled_error(self, method: str, said: str = "") -> errors.Cancelled:
        return errors.Cancelled(f"{method} at {self.names} was given up: {'the Client was closed' if self.closed else said}")

    def _retriable(self, error: Exception) -> bool:
        if self.closed or not isinstance(error, FAILED) or error.code() not in RETRIED:
            return False
        return len(self.addresses) > 1 or not tls_problem(error.details() or "")

    def _translate(self, error: grpc.RpcError, method: str) -> errors.EbbError:
        if not isinstance(error, FAILED):
            return errors.Internal(f"{method} at {self.names} failed: {error}")
        code = error.code()
        reason, metadata = error_info(error.trailing_metadata())
        said = (error.details() or code.name).strip().rstrip(".")
        if code is grpc.StatusCode.CANCELLED or (self.closed and code in RETRIED):
            return self.cancelled_error(method, said)
        if "header with status" in said and not reason:
            return errors.Unavailable(f"what answers at {self.names} is no scheduler of Ebb's ({said})")
        if code is grpc.StatusCode.UNAVAILABLE and not reason:
            if problem := tls_problem(said):
                return errors.Unavailable(f"the scheduler at {self.names} {problem}", reason="TLS")
            message = f"the scheduler at {self.names} cannot be reached ({shorten(said)}{self._access.guess(said)})"
        elif code is grpc.StatusCode.DEADLINE_EXCEEDED and not reason:
            message = f"the scheduler at {self.names} did not answer {method} in time"
        elif code in ERRORS:
            message = said
        else:
            message = f"{method} at {self.names} failed with {code.name}: {said}"
        advice = None if reason in SAYS_ALL else ADVICE.get(code)
        kind = ERRORS.get(code, errors.Internal)
        return kind(f"{message}; {advice}" if advice else message, reason=reason, metadata=metadata)
