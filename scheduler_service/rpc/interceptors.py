"""Layers of every call: its request is checked before a handler sees it, and every error becomes a status.

A status carries google.rpc.ErrorInfo (reason, domain, metadata), so that clients need not read sentences.
"""

import asyncio
import logging
from typing import Any, NoReturn
from urllib.parse import unquote

import grpc
import protovalidate
from google.protobuf import any_pb2, duration_pb2, message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from scheduler_service.core.errors import AlreadyExists, FailedPrecondition, NotFound, Refused, ResourceExhausted
from scheduler_service.rpc.backend import Backend
from scheduler_service.rpc.method_table import Call, Context, Method
from scheduler_service.run.engine_thread import NotLeading, Overloaded
from scheduler_service.run.ports import CommitRefused, NotCommitted

DOMAIN = "ebb"
SHOWN = 5
"""Broken rules that an error names."""
ALL_CHECKED = 4096
"""Bytes. In a larger request only the first broken rule is looked for: it may break millions, and finding all of them
would keep other callers waiting for minutes."""
FROM_LEADER = ("ebb-read", "leader")
"""Metadata of a call that asks for the leader's answer, and accepts a standby's only if no scheduler leads."""

log = logging.getLogger(__name__)


class InvalidArgument(Refused):
    """A field of the request breaks a rule."""


def invalid(field: str, rule: str, why: str) -> InvalidArgument:
    """Return the error for a field whose value is wrong for a reason that no rule in its message expresses."""
    return InvalidArgument("INVALID_FIELD", f"{field}: {why}", field=field, rule=rule)


class Unauthenticated(Refused):
    """The caller is unknown."""


class PermissionDenied(Refused):
    """The caller is known, and may not do this."""


class OutOfRange(Refused):
    """The requested offset is past the end."""


class Unavailable(Refused):
    """Not now; the same request may well be answered later."""


_CODES: dict[type[Refused], int] = {
    NotFound: code_pb2.NOT_FOUND,
    AlreadyExists: code_pb2.ALREADY_EXISTS,
    FailedPrecondition: code_pb2.FAILED_PRECONDITION,
    InvalidArgument: code_pb2.INVALID_ARGUMENT,
    Unauthenticated: code_pb2.UNAUTHENTICATED,
    PermissionDenied: code_pb2.PERMISSION_DENIED,
    OutOfRange: code_pb2.OUT_OF_RANGE,
    ResourceExhausted: code_pb2.RESOURCE_EXHAUSTED,
    Unavailable: code_pb2.UNAVAILABLE,
}


PATTERNS = {
    r"^[^\x00]*$": "must not have the character NUL in it",
    r"^(/[^\x00]*)?$": "must be an absolute path, which begins with /",
    r"^([A-Za-z0-9][A-Za-z0-9 ._:/=+-]*)?$": "must begin with a letter (A-Z, a-z) or digit; then also spaces and ._:/=+-",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "the names of variables have letters (A-Z, a-z), digits and _, and begin with no digit",
    r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$": "must have letters (A-Z, a-z) and digits, with ._- only between these",
    r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$": "must have letters (A-Z, a-z) and digits, with ._/- only between these",
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$": "must begin with a letter (A-Z, a-z) or digit; then also ._-",
    r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$": "must begin with a letter (A-Z, a-z) or digit; then also ._-",
    r"^([0-9]{1,10}[.][0-9]{1,10})?$": "must be the next_page_token of the page before, or empty",
    r"^[A-Za-z0-9._:-]*$": "must have nothing but letters (A-Z, a-z), digits and ._:-",
    r"^[a-z0-9_-]*$": "must have nothing but small letters (a-z), digits, _ and -",
    r"^[a-z0-9_-]*([.][^\x00]*)?$": "must be of small letters (a-z), digits, _ and -; a dot and a name may follow",
    r"^[0-9]*$": "must have nothing but digits",
    r"^[0-9a-f]{64}$": "must be a SHA-256 in hexadecimal: 64 of the characters 0-9 and a-f",
    r"^((HUP|INT|QUIT|USR1|USR2|ALRM|CONT|WINCH|URG|IO|PWR)(@[1-9][0-9]{0,4})?)?$": "must be HUP, INT, QUIT, USR1, USR2, ALRM, "
    "CONT, WINCH, URG, IO or PWR; @ and a number of seconds may follow",
}
"""The patterns in the .proto files, in words."""


def check(request: message.Message) -> None:
    """Raises InvalidArgument, naming each field and the rule that it breaks (the rules are in the .proto files)."""
    found = protovalidate.collect_violations(request, fail_fast=request.ByteSize() > ALL_CHECKED)
    violations = [violation.proto for violation in found]
    if violations:
        names = list(map(field_of, found))
        said = [f"{name}: {_words(v.message)}"[:200] for name, v in zip(names[:SHOWN], violations, strict=False)]
        if len(violations) > SHOWN:  # a status must fit into the trailers of HTTP/2
            said.append(f"and {len(violations) - SHOWN} more")
        raise InvalidArgument("INVALID_FIELD", "; ".join(said), field=names[0], rule=violations[0].rule_id)


def field_of(violation: protovalidate.Violation) -> str:
    """The field that breaks a rule, and in which item of a list it is: spec.alternatives[1].estimate."""
    path = violation.proto.field
    if path is None:
        return "request"
    *outer, last = path.elements
    return ".".join([*(f"{one.field_name}{_item(one.subscript)}" for one in outer), last.field_name])


def _item(subscript: Any) -> str:
    return f"[{subscript.value}]" if subscript is not None and subscript.field == "index" else ""


def _words(said: str) -> str:
    return PATTERNS.get(said.partition("`")[2].removesuffix("`"), said)


def status_of(error: BaseException) -> status_pb2.Status:
    """The google.rpc.Status for an error of a handler."""
    code: int
    metadata: dict[str, str] = {}
    more: list[message.Message] = []
    match error:
        case Refused():
            code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), code_pb2.FAILED_PRECONDITION)
            reason, text, metadata = error.reason, str(error), error.metadata
        case Overloaded():
            code, reason = code_pb2.RESOURCE_EXHAUSTED, "TOO_MANY_REQUESTS"
            text = "too many requests wait for the scheduler already; try again in a second"
            if error.user:
                text = f"{error.most} requests of {error.user} wait already, and no more may; try again in a second"
                metadata = {"user": error.user, "most": str(error.most)}
            more.append(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=1)))
        case NotLeading():
            code, reason = code_pb2.UNAVAILABLE, "NOT_LEADING"
            text = "this scheduler does not lead (yet, or any more); try again in a moment"
            if error.leader:
                metadata = {"leader": error.leader}
                text = f"this scheduler stands by: the one at {error.leader} leads"
        case NotCommitted():
            code, reason, text = code_pb2.UNAVAILABLE, "DATABASE_UNAVAILABLE", f"{error}; try again"
        case CommitRefused():
            code, reason = code_pb2.INTERNAL, "COMMIT_REFUSED"
            metadata = {"reference": error.reference}
            text = f"the database refused it: {error}; nothing was changed. It is {error.reference} in the scheduler's log"
        case _:
            log.error("a call failed", exc_info=error)
            code, reason = code_pb2.INTERNAL, "INTERNAL"
            text = f"a fault in the scheduler ({type(error).__name__}); its log has more; nothing was changed"
    details = []
    for detail in (error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata), *more):
        packed = any_pb2.Any()
        packed.Pack(detail)
        details.append(packed)
    return status_pb2.Status(code=code, message=text[:2048], details=details)


_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}


async def abort(context: Context, error: BaseException) -> NoReturn:
    """Ends the call with the status of the error."""
    status = status_of(error)
    trailing = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(_BY_NUMBER[status.code], status.message, trailing_metadata=trailing)
    raise AssertionError("abort always raises")


def answer_errors(backend: Backend, method: Method, call: Call) -> Call:
    """Answer with the status of any error that the call raises. A caller that needs the leader is told its address."""

    async def answering(request: Any, context: Context) -> Any:
        try:
            try:
                return await call(request, context)
            except grpc.aio.BaseError:  # of gRPC itself, as when the call was aborted further in
                raise
            except Exception as error:
                if isinstance(error, Unauthenticated | PermissionDenied):
                    log.info("%s from %s is refused: %s", method.name, unquote(str(context.peer())), error)
                if isinstance(error, NotLeading) and not error.leader:
                    error = await backend.refer()
                await abort(context, error)
        except grpc.aio.InternalError:  # nothing can be written: the client has gone, which gRPC is about to say
            raise asyncio.CancelledError from None

    return answering


def check_requests(backend: Backend, method: Method, call: Call) -> Call:
    """Validates the requests of Ebb's own services. A stream's are validated by its handler, which knows which are due."""
    if method.streams_requests or not method.name.startswith("/ebb."):
        return call

    async def checking(request: Any, context: Context) -> Any:
        check(request)
        wants_leader = FROM_LEADER in (context.invocation_metadata() or ())
        if wants_leader and backend.leads is None and (leader := await backend.leader()):
            raise NotLeading(leader)
        return await call(request, context)

    return checking
