"""The exceptions of the SDK.

`except EbbError` catches all of them, and the class tells the kind of error. The message says what happened, where, and
what to do about it; `reason` and `metadata` are for programs.
"""

from collections.abc import Mapping


class EbbError(Exception):
    """A call of the SDK failed.

    `reason` is the scheduler's code for the error, such as "NO_SUCH_JOB", and `metadata` has its details; both are empty
    if the scheduler gave none.
    """

    def __init__(self, message: str, *, reason: str = "", metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.metadata: Mapping[str, str] = dict(metadata or {})


class InvalidArgument(EbbError):
    """The request itself is invalid: repeating it will not help."""


class NotFound(EbbError):
    """The object does not exist, or no longer exists."""


class AlreadyExists(EbbError):
    """A different object with this key already exists: a request_id that was used for a different job, for example."""


class PermissionDenied(EbbError):
    """The caller may not do this."""


class Unauthenticated(EbbError):
    """The scheduler does not know who is calling."""


class FailedPrecondition(EbbError):
    """Not possible in the current state; it may be possible later."""


class Aborted(EbbError):
    """A concurrent change interfered; the whole operation may be retried."""


class ResourceExhausted(EbbError):
    """The scheduler has more work waiting than it accepts, or a quota is used up."""


class Unavailable(EbbError):
    """The scheduler could not be reached within the time that the call may take."""


class DeadlineExceeded(EbbError):
    """The timeout expired. The scheduler may still have carried out the request."""


class Cancelled(EbbError):
    """The call was cancelled on this side, for example because the client was closed."""


class Unimplemented(EbbError):
    """The scheduler does not know this call: it is older than this SDK."""


class Internal(EbbError):
    """An internal error of the scheduler."""


class FunctionFailed(EbbError):
    """A function that ran as a job has no result, or one that cannot be read here."""
