"""The connection to the scheduler, as the agent makes it, and from other nodes to this one."""

import ipaddress
import socket
import ssl
import time
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path

import grpc

from node_agent.doctor.findings import Finding, Level, ok, problem, warning
from node_agent.errors import Disconnected
from node_agent.transport import convert
from node_agent.transport.security import Security, is_loopback

_SOON = 21 * 86400
_HEALTH = "/grpc.health.v1.Health/Check"
_NEW_TOKEN = (
    "on the scheduler's machine: `ebb-scheduler token create --user agents --role agent`; name the file with it by token_file:"
)
_LEADS, _STANDS_BY = b"\x08\x01", b"\x08\x02"
"""HealthCheckResponse with SERVING and NOT_SERVING: too little to need generated code for."""


def schedulers(targets: list[str], security: Security, limit: float) -> Iterator[Finding]:
    """Check each scheduler. If one of several is away, that is not yet a problem."""
    found = {target: list(scheduler(target, security, limit)) for target in targets}
    serves = any(all(finding.level != "problem" for finding in of_one) for of_one in found.values())
    for of_one in found.values():
        for finding in of_one:
            level: Level = "warning" if serves and finding.level == "problem" else finding.level
            yield Finding(level, finding.text, finding.do)


def scheduler(target: str, security: Security, limit: float) -> Iterator[Finding]:
    host, _, port = target.rpartition(":")
    host = host.strip("[]")
    try:
        with socket.create_connection((host, int(port)), limit):
            pass
    except socket.gaierror as error:
        yield problem(
            f"{host} cannot be looked up: {error.strerror}", "see /etc/resolv.conf and /etc/hosts, or name an address"
        )
        return
    except ConnectionRefusedError:
        yield problem(
            f"nothing listens at {target}", "start the scheduler; does it listen on that address, or on loopback only?"
        )
        return
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror
        yield problem(
            f"{target} cannot be reached: {why}", "a firewall or a route: both machines must let port " + port + " through"
        )
        return
    if security.tls_ca is not None:
        findings = list(certificate(host, int(port), security, limit))
        yield from findings
        if any(finding.level == "problem" for finding in findings):
            return
    yield from admission(target, security, limit)


def certificate(host: str, port: int, security: Security, limit: float) -> Iterator[Finding]:
    """Check the scheduler's certificate, and whether the scheduler accepts ours."""
    context = ssl.create_default_context(cafile=security.tls_ca)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # on from Python 3.13, and stricter than the agent's own TLS
    context.set_alpn_protocols(["h2"])
    if security.tls_cert is not None and security.tls_key is not None:
        context.load_cert_chain(security.tls_cert, security.tls_key)
    renew = "renew it: docs/operating.md, Access"
    try:
        with (
            socket.create_connection((host, port), limit) as plain,
            context.wrap_socket(plain, server_hostname=host) as encrypted,
        ):
            shown = encrypted.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        yield problem(
            f"{host}:{port} shows a certificate that does not do: {error.verify_message}",
            f"compare it with {security.tls_ca}, the clock, and the names that it is for: docs/operating.md, Access",
        )
        return
    except ssl.SSLError as error:
        yield problem(f"{host}:{port} does not speak TLS with us: {error.reason}", "is TLS set there, as tls_ca is here?")
        return
    yield _expiry(f"the certificate of {host}:{port}", _seconds(shown), renew)
    if security.tls_cert is not None and security.tls_key is not None:
        try:
            yield _expiry("our own certificate", own_expiry(security.tls_cert, security.tls_key), renew)
        except ssl.SSLError as error:
            yield problem(f"our own certificate does not do: {getattr(error, 'verify_message', error.reason)}", renew)


def own_expiry(cert: Path, key: Path) -> float:
    """Return when a certificate expires. It is shown to ourselves: the standard library has no other way to read one.

    Raises ssl.SSLError, for example if it has expired.
    """
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(cert, key)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.check_hostname = False
    theirs.load_verify_locations(cert)
    theirs.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate vouches for itself
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server, client = ours.wrap_bio(up, down, server_side=True), theirs.wrap_bio(down, up)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return _seconds(client.getpeercert() or {})


def admission(target: str, security: Security, limit: float) -> Iterator[Finding]:
    """Check whether the scheduler admits an agent, and leads. Sends a log that was not asked for, which changes nothing."""
    options = [("grpc.enable_http_proxy", 0)]
    try:
        metadata = security.metadata(target)
        files = (path.read_bytes() if path else None for path in (security.tls_ca, security.tls_key, security.tls_cert))
        credentials = grpc.ssl_channel_credentials(*files) if security.tls_ca else None
    except (Disconnected, OSError) as error:
        yield problem(str(error), "mend the file")
        return
    with (
        grpc.secure_channel(target, credentials, options) if credentials else grpc.insecure_channel(target, options)
    ) as channel:
        try:
            health: bytes = channel.unary_unary(_HEALTH, bytes, bytes)(b"", timeout=limit)
            channel.stream_unary(convert.SEND_LOG, bytes, bytes)(iter(()), metadata=metadata, timeout=limit)
        except grpc.RpcError as error:
            code, said = error.code(), error.details()
        else:
            code, said = grpc.StatusCode.UNKNOWN, "it took a log that it had not asked for"
    if code is grpc.StatusCode.UNAUTHENTICATED:
        yield problem(f"{target} does not let us in: {said}", _NEW_TOKEN)
    elif code is grpc.StatusCode.PERMISSION_DENIED:
        yield problem(f"{target} does not take us for an agent: {said}", _NEW_TOKEN)
    elif code is not grpc.StatusCode.NOT_FOUND:
        yield problem(
            f"{target} does not answer as a scheduler does: {code.name}, {said}",
            "is it Ebb's scheduler? Where that asks for certificates (tls_client_ca), set tls_cert and tls_key"
            if credentials
            else "is it Ebb's scheduler? Where that has TLS (tls_certificate), set tls_ca here",
        )
    else:
        state = {_LEADS: "leads", _STANDS_BY: "stands by"}.get(health, "serves")
        yield ok(f"the scheduler at {target} {state}, and {'takes our token' if metadata else 'asks for no token'}")


def address(host: str, alone: bool, own: Collection[str]) -> Iterator[Finding]:
    """Check where other nodes reach this one. `alone`: the scheduler is on this machine. `own`: this machine's addresses."""
    do = "address: in the file (or --address), a name or an address that other nodes reach"
    try:
        places = {str(place[4][0]) for place in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError as error:
        yield problem(f"{host}, by which other nodes would reach this one, cannot be looked up: {error.strerror}", do)
        return
    said = host if places == {host} else f"{host} ({', '.join(sorted(places))})"
    if any(ipaddress.ip_address(place.partition("%")[0]).is_loopback for place in places):
        if alone:
            yield ok(
                f"other nodes would reach this one at {said}, so there may be none elsewhere: the scheduler is on loopback"
            )
        else:
            yield problem(f"other nodes would reach this one at {said}, which is themselves", f"see /etc/hosts; {do}")
    elif not places & set(own):
        yield warning(
            f"other nodes would reach this one at {said}, which is no address of this machine", f"right behind NAT; else {do}"
        )
    else:
        yield ok(f"other nodes reach this one at {said}")


def are_loopback(targets: list[str]) -> bool:
    return all(map(is_loopback, targets))


def _expiry(what: str, at: float, do: str) -> Finding:
    said = f"{what} is valid until {datetime.fromtimestamp(at, UTC):%Y-%m-%d}"
    return warning(said, f"{do}; it is taken up without a restart") if at < time.time() + _SOON else ok(said)


def _seconds(certificate: object) -> float:
    assert isinstance(certificate, dict)
    return float(ssl.cert_time_to_seconds(certificate["notAfter"]))
