"""Explains the end of a connection and what to do about it, in the scheduler's own words if it gave a reason."""

import re

import grpc.aio

from node_agent.errors import AgentError, Disconnected, Refused, StandsBy
from node_agent.transport import convert
from node_agent.transport.security import Security

_MAKE = "`ebb-scheduler token create --user agents --role agent` on the scheduler's machine makes one"
_UNSAID = "Internal error from Core"
"""The library's message if a stream had ended before a write: the stream may have had a reason, which it does not pass on."""
_CUT = ("Socket closed", "Connection reset", "SETTINGS frame", "Handshake read failed", "Endpoint closing")
"""The library's messages if only one of the two sides uses TLS."""


def explain_end(target: str, error: Exception, security: Security, *, welcomed: bool) -> AgentError:
    """Return the error that ended a connection, for people. `welcomed`: after the scheduler had accepted this agent."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return Disconnected(target=target, why="closed the connection")
    said = error.details() or ""
    reason, leader = convert.refusal(error.trailing_metadata())
    if leader:
        return StandsBy(target=target, leader=leader)
    if reason and error.code() is not grpc.StatusCode.UNAVAILABLE:
        return Refused(target=target, reason=reason, why=_explain_refusal(reason, said or reason, security))
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return Disconnected(target=target, why="is not a scheduler of Ebb: correct --scheduler")
    hint = "" if welcomed else _closing_hint(security)
    if said == _UNSAID:
        return Disconnected(target=target, why=f"closed the connection{hint}")
    if problem := _name_problem(said) or tls_problem(said):
        return Disconnected(target=target, why=problem)
    if "Connection refused" in said:
        return Disconnected(
            target=target,
            why="cannot be reached, as nothing listens there: start it, or correct --scheduler. If it listens on "
            "loopback, only its own machine can reach it",
        )
    if not any(word in said for word in _CUT):
        hint = ""
    return Disconnected(target=target, why=f"cannot be reached ({error.code().name.lower()}: {said}{hint})")


def tls_problem(said: str) -> str:
    """Explain a gRPC message if TLS kept the connection from being made; empty if something else did."""
    if found := re.search(r"CERTIFICATE_VERIFY_FAILED: ([^:]+)", said):
        why = found[1].strip()
        return f"shows a certificate that the CA in tls_ca does not vouch for ({why}): set tls_ca to the CA that signed it"
    if "Hostname Verification Check failed" in said:
        return "shows a certificate for another name than that: name it in --scheduler as its certificate does"
    if "WRONG_VERSION_NUMBER" in said:
        return "does not speak TLS, and tls_ca is set: leave tls_ca out, or give the scheduler tls_certificate and tls_key"
    return ""


def _name_problem(said: str) -> str:
    if not re.search(r"resolving |DNS resolution failed|lookup failed", said):
        return ""
    why = said.removesuffix("]").rpartition(": ")[2] or said
    return f"cannot be found, as its name does not resolve ({why}): correct --scheduler, or this machine's /etc/hosts or DNS"


def _explain_refusal(reason: str, said: str, security: Security) -> str:
    """Explain a refusal for agents: the scheduler's message is for users, who set their token elsewhere."""
    if reason == "NO_TOKEN":
        return f"it asks for a token: name a file with one in token_file ({_MAKE})"
    if reason in ("TOKEN_UNKNOWN", "TOKEN_EXPIRED"):
        return f"{said.partition(': ask an operator')[0]}. Put another token into {security.token_file} ({_MAKE})"
    if reason == "ROLE":
        return f"{said}. Put an agent's token into {security.token_file} ({_MAKE})"
    return said


def _closing_hint(security: Security) -> str:
    """Return why a scheduler that does not say may have closed a connection before its welcome."""
    if security.tls_ca is None:
        return "; if it speaks TLS, set tls_ca"
    if security.tls_cert is None:
        return "; if it asks for a client's certificate, set tls_cert and tls_key"
    return "; perhaps it does not accept the certificate in tls_cert"
