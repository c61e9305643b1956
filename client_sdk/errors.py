"""Everything that the SDK raises.

One tree: `except EbbError` catches all of it, and the class says what kind of thing went wrong. The message says what
happened, where, and what to do about it; `reason` and `metadata` are for programs.
"""

from collections.abc import Mapping


class EbbError(Exception):
    """Something that the SDK was asked for did not happen.

    `reason` is the scheduler's own word for it, such as "NO_SUCH_JOB", and `metadata` its details; both are empty
    where it gave none.
    """

    def __init__(self, message: str, *, reason: str = "", metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.metadata: Mapping[str, str] = dict(metadata or {})


class InvalidArgument(EbbError):
    """The request itself is wrong: sending it again will not help."""


class NotFound(EbbError):
    """No such thing, or not any more."""


class AlreadyExists(EbbError):
    """It is there already, and is something else: a request_id that was used for a different job, for example."""


class PermissionDenied(EbbError):
    """The caller may not do this."""


class Unauthenticated(EbbError):
    """The scheduler does not know who is calling."""


class FailedPrecondition(EbbError):
    """Not possible in the state in which things are; it may be later."""


class Aborted(EbbError):
    """Something else got in between; the whole operation may be tried again."""


class ResourceExhausted(EbbError):
    """The scheduler has more work waiting than it accepts, or a quota is used up."""


class Unavailable(EbbError):
    """The scheduler could not be reached, for as long as the call was allowed to try."""


class DeadlineExceeded(EbbError):
    """The time that was given ran out. What was asked for may have happened all the same."""


class Cancelled(EbbError):
    """The call was given up on this side, as when the client was closed under it."""


class Unimplemented(EbbError):
    """The scheduler does not know this call: it is older than this SDK."""


class Internal(EbbError):
    """A fault of the scheduler's own."""


class FunctionFailed(EbbError):
    """A function that ran as a job has no result, or one that cannot be read here."""
