"""Who is calling, and may they? Asked here, before a handler sees anything, for every call of every service.

A caller shows a token (`authorization: Bearer ...`); its subject is the user. Without `auth: token`, all that reach the
service are its own user and may do everything; `config` lets such a one listen on loopback alone.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from scheduler_service.core.errors import NotFound
from scheduler_service.core.model.tokens import Role, Token
from scheduler_service.rpc.backend import Backend
from scheduler_service.rpc.interceptors import PermissionDenied, Unauthenticated
from scheduler_service.rpc.method_table import Call, Context, Method
from scheduler_service.run.token_cache import Tokens, wall_clock


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may make a call."""

    roles: frozenset[Role]
    own_job: bool = False
    """A user may call this for their own jobs only; an operator, for any job."""


OPEN: Final = None
"""Any client that reaches the service may call this, with or without a token."""
_USERS = Rule(frozenset({Role.USER, Role.OPERATOR}))
_OWNERS = Rule(_USERS.roles, own_job=True)
_OPERATORS = Rule(frozenset({Role.OPERATOR}))
_AGENTS = Rule(frozenset({Role.AGENT}))


def _rules_of(service: str, rule: Rule, methods: str) -> dict[str, Rule | None]:
    return {f"/{service}/{method}": rule for method in methods.split()}


MAY: Mapping[str, Rule | None] = {
    **_rules_of("ebb.v1.Scheduler", _USERS, "Submit Get List Watch Explain Shares Story ListRuns Logs"),
    **_rules_of("ebb.v1.Scheduler", _OWNERS, "Cancel Suspend Resume Hold Release Requeue Resize Migrate Update"),
    **_rules_of("ebb.v1.Cluster", _USERS, "ListNodes GetNode Watch"),
    **_rules_of("ebb.v1.Cluster", _OPERATORS, "Drain Undrain Fence DeleteNode"),
    **_rules_of("ebb.v1.VirtualClusters", _USERS, "GetVirtualCluster ListVirtualClusters ListCells"),
    **_rules_of("ebb.v1.VirtualClusters", _OPERATORS, "CreateVirtualCluster UpdateVirtualCluster DeleteVirtualCluster"),
    **_rules_of("ebb.v1.Exchange", _USERS, "Post Withdraw Accept ReturnCells ListPostings ListExchanges GetLedger"),
    **_rules_of("ebb.agent.v1.AgentLink", _AGENTS, "Connect SendLog GetSnapshot PutResult FindEnded"),
    **_rules_of("ebb.v1.Snapshots", _USERS, "FindSnapshot PutSnapshot"),
    **_rules_of("ebb.v1.Snapshots", _OWNERS, "GetResult"),
    "/grpc.health.v1.Health/Check": OPEN,
    "/grpc.health.v1.Health/Watch": OPEN,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": OPEN,
}
"""The rule of every method of every service. A method that is missing here may not be called."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes the call at hand."""

    subject: str
    roles: frozenset[Role]
    token: Token | None = None
    """None if the site does not authenticate callers."""


SPEAKING_LIMIT = 1.0
"""Seconds that a stream has for its first message before it is refused."""
SPEAKING_AT_ONCE = 32
"""Streams whose first message is awaited at the same time. Others are refused unread: what they send takes memory."""

_NOTHING: Final = nullcontext()
_caller: ContextVar[Caller] = ContextVar("ebb_caller")


def caller() -> Caller:
    """Return the caller of the call being handled: each call is a task of its own."""
    return _caller.get()


def user() -> str:
    """Return the user in whose name the call being handled is made."""
    return caller().subject


class Access:
    """Admits callers that may make a call. Without `tokens`, every caller is the service's own user."""

    def __init__(self, backend: Backend, tokens: Tokens | None) -> None:
        self._backend = backend
        self._tokens = tokens
        self._speaking = 0
        self._anybody = Caller(backend.user, frozenset(Role))

    def admit_callers(self, method: Method, call: Call) -> Call:
        """Lets in who has the role. Nothing of the request is looked at before."""
        rule = _rule(method)
        if rule is OPEN:
            return call

        async def admitting(request: Any, context: Context) -> Any:
            try:
                who = await self._identify_caller(context)
                if not who.roles & rule.roles:
                    raise _wrong_role(method.name, rule, who)
            except (Unauthenticated, PermissionDenied):
                if method.streams_requests and self._speaking < SPEAKING_AT_ONCE:
                    self._speaking += 1
                    try:
                        await _await_first_message(request)
                    finally:
                        self._speaking -= 1
                raise
            _caller.set(who)
            async with self._while_it_holds(who, context):
                return await call(request, context)

        return admitting

    def restrict_to_owners(self, method: Method, call: Call) -> Call:
        """Lets a user do to their own jobs alone what an operator may do to any."""
        rule = _rule(method)
        if rule is OPEN or not rule.own_job:
            return call
        assert not method.streams_requests, "a stream of requests names no job that could be looked at here"

        async def owning(request: Any, context: Context) -> Any:
            who = caller()
            if Role.OPERATOR not in who.roles:
                await self._require_own(method.name, who, request.job_id)
            return await call(request, context)

        return owning

    def _while_it_holds(self, who: Caller, context: Context) -> AbstractAsyncContextManager[None]:
        """Ends the call at hand when its token is revoked or expires: a stream may last for months."""
        return _NOTHING if self._tokens is None else self._hold_token(self._tokens, who, context)

    @asynccontextmanager
    async def _hold_token(self, tokens: Tokens, who: Caller, context: Context) -> AsyncIterator[None]:
        lost = False
        this = asyncio.current_task()
        assert this is not None

        def end() -> None:
            nonlocal lost
            lost = True
            this.cancel()

        try:
            with tokens.hold(_secret(context), end):
                yield
        except asyncio.CancelledError:
            if not lost:
                raise
            raise _token_error(who.token) from None

    async def _identify_caller(self, context: Context) -> Caller:
        if self._tokens is None:
            return self._anybody
        token = await self._tokens.look_up(_secret(context))
        if token is None or token.has_expired(wall_clock()):
            raise _token_error(token)
        return Caller(token.subject, frozenset({token.role}), token)

    async def _require_own(self, method: str, who: Caller, job_id: int) -> None:
        """A job keeps its user forever, so that it cannot become another's between this look and the call."""
        try:
            owner = (await self._backend.find(job_id)).job.user
        except NotFound:  # which is the handler's to tell
            return
        if owner != who.subject:
            raise PermissionDenied(
                "NOT_YOUR_JOB",
                f"job {job_id} is {owner}'s, and you are {who.subject}: {_name(method)} is for {owner} and for operators",
                job_id=str(job_id),
                user=owner,
            )


async def _await_first_message(requests: AsyncIterator[bytes]) -> None:
    """Waits until a stream has sent its first message, whatever that is. A client in Python that is still writing when the
    stream ends is told by gRPC that this failed, and not the status (https://github.com/grpc/grpc/issues/36066)."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SPEAKING_LIMIT):
            await anext(aiter(requests), None)


def _rule(method: Method) -> Rule | None:
    return MAY.get(method.name, Rule(frozenset()))


def _secret(context: Context) -> str:
    """The token that came with the call. Raises Unauthenticated."""
    shown = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
    if not shown:
        raise Unauthenticated(
            "NO_TOKEN",
            "the scheduler asks for a token, and none was sent: get one from an operator, and set EBB_TOKEN_FILE",
        )
    scheme, _, secret = str(shown[0]).partition(" ")
    if len(shown) != 1 or scheme.lower() != "bearer" or not secret.strip():
        raise Unauthenticated("NO_TOKEN", "the metadata `authorization` must be `Bearer TOKEN`, once")
    return secret.strip()


def _token_error(token: Token | None) -> Unauthenticated:
    if token is not None and token.expires_us is not None and token.has_expired(wall_clock()):
        when = datetime.fromtimestamp(token.expires_us / 1e6, UTC)
        return Unauthenticated(
            "TOKEN_EXPIRED",
            f"token {token.id} of {token.subject} (...{token.last_chars}) expired on {when:%Y-%m-%d at %H:%M} UTC: "
            "ask an operator for a new one",
            token=str(token.id),
        )
    return Unauthenticated("TOKEN_UNKNOWN", "the token is not known here, or was revoked: ask an operator for a new one")


def _wrong_role(method: str, rule: Rule, who: Caller) -> PermissionDenied:
    needed = " and ".join(f"{role.name.lower()}s" for role in sorted(rule.roles)) or "nobody"
    has = " and ".join(role.name.lower() for role in sorted(who.roles))
    return PermissionDenied("ROLE", f"{_name(method)} is for {needed}, and the token is of {who.subject} as {has}", role=has)


def _name(method: str) -> str:
    return method.rpartition("/")[2]
