"""How a client shows who it is and knows whom it talks to: a token, and TLS by certificate files. No gRPC here.

Files are read when they are needed, so that a token or a certificate that was renewed is used without a new client.
"""

import ipaddress
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from client_sdk.errors import FailedPrecondition

File = str | os.PathLike[str]


class TlsContent:
    """The contents of the TLS files, in PEM."""

    __slots__ = ("ca", "cert", "key")

    def __init__(self, ca: bytes, cert: bytes | None, key: bytes | None) -> None:
        self.ca, self.cert, self.key = ca, cert, key


@dataclass(frozen=True, slots=True)
class Access:
    """As it was given; None where the environment says nothing either."""

    token: str | None = field(default=None, repr=False)
    token_file: File | None = None
    tls_ca: File | None = None
    """Set: TLS is used, and this CA vouches for the scheduler."""
    tls_cert: File | None = None
    tls_key: File | None = None

    def metadata(self, address: str) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a call to this address. Raises FailedPrecondition rather than send a token unencrypted."""
        token = self.token
        if token is None and self.token_file is not None:
            token = _read(self.token_file, "the token file (EBB_TOKEN_FILE)", "TOKEN_UNREADABLE").decode("utf-8", "replace")
        if token is None:
            return ()
        words = token.split()
        if len(words) != 1 or not words[0].isascii():
            where = "" if self.token is not None else f" in {os.fspath(self.token_file or '')}"
            raise FailedPrecondition(f"the token{where} is not one word, as tokens are", reason="TOKEN_MALFORMED")
        if self.tls_ca is None and not is_loopback(address):
            raise FailedPrecondition(
                f"the token is not sent to {address} without TLS, where others could read it: "
                "set EBB_TLS_CA to the certificate of the site's CA",
                reason="TOKEN_WITHOUT_TLS",
            )
        return (("authorization", f"Bearer {words[0]}"),)

    def tls(self) -> TlsContent | None:
        """None: without TLS. Raises FailedPrecondition where a file is not what it should be."""
        if self.tls_ca is None:
            if self.tls_cert is not None or self.tls_key is not None:
                _unusable("EBB_TLS_CERT and EBB_TLS_KEY need EBB_TLS_CA, the CA that vouches for the scheduler")
            return None
        if (self.tls_cert is None) != (self.tls_key is None):
            _unusable("EBB_TLS_CERT and EBB_TLS_KEY go together: set both, or neither")
        ca = _read(self.tls_ca, "the CA's certificate (EBB_TLS_CA)", "TLS_FILES")
        cert = None if self.tls_cert is None else _read(self.tls_cert, "the certificate (EBB_TLS_CERT)", "TLS_FILES")
        key = None if self.tls_key is None else _read(self.tls_key, "the certificate's key (EBB_TLS_KEY)", "TLS_FILES")
        self._check()
        return TlsContent(ca, cert, key)

    def stamp(self) -> tuple[tuple[int, int] | None, ...]:
        """Return a stamp of the TLS files, which changes when they are renewed. Empty without TLS."""
        return tuple(_stamp(file) for file in (self.tls_ca, self.tls_cert, self.tls_key) if file is not None)

    def guess(self, said: str) -> str:
        """Guess why a connection is closed as soon as it is accepted: the server requires TLS, or a client certificate."""
        if "Socket closed" not in said and "Connection reset" not in said:
            return ""
        if self.tls_ca is None:
            return "; if it speaks TLS, set EBB_TLS_CA"
        if self.tls_cert is None:
            return "; if it asks for a client's certificate, set EBB_TLS_CERT and EBB_TLS_KEY"
        return "; perhaps it does not accept the certificate in EBB_TLS_CERT"

    def _check(self) -> None:
        """gRPC would say no more than that it cannot connect."""
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        assert self.tls_ca is not None
        try:
            context.load_verify_locations(self.tls_ca)
        except ssl.SSLError:
            _unusable(f"{os.fspath(self.tls_ca)} (EBB_TLS_CA) is no certificate in PEM")
        try:
            if self.tls_cert is not None:
                context.load_cert_chain(self.tls_cert, self.tls_key, password="")
        except ssl.SSLError as error:
            files = f"{os.fspath(self.tls_cert or '')} and {os.fspath(self.tls_key or '')}"
            _unusable(
                f"{files} (EBB_TLS_CERT, EBB_TLS_KEY) are not a certificate and its key in PEM, without a passphrase"
                f" ({error.reason})"
            )


def access(
    token: str | None, token_file: File | None, tls_ca: File | None, tls_cert: File | None, tls_key: File | None
) -> Access:
    """As given, else as the environment says; what is given as "" is none at all. Nothing is read yet."""
    if token is None and token_file is None:
        token = os.environ.get("EBB_TOKEN") or None
        token_file = None if token else os.environ.get("EBB_TOKEN_FILE")
    return Access(
        token or None,
        token_file or None,
        _file_or_variable(tls_ca, "EBB_TLS_CA"),
        _file_or_variable(tls_cert, "EBB_TLS_CERT"),
        _file_or_variable(tls_key, "EBB_TLS_KEY"),
    )


def _file_or_variable(file: File | None, variable: str) -> File | None:
    return (os.environ.get(variable) if file is None else file) or None


def tls_problem(said: str) -> str:
    """Return, as text for people, why TLS prevented a connection, from gRPC's message; empty for any other failure.

    A retry would fail in the same way.
    """
    if found := re.search(r"CERTIFICATE_VERIFY_FAILED: ([^:]+)", said):
        return f"shows a certificate that the CA in EBB_TLS_CA does not vouch for ({found[1].strip()})"
    if "Hostname Verification Check failed" in said:
        return "shows a certificate for another name than that; call it by a name that its certificate has"
    if "WRONG_VERSION_NUMBER" in said:
        return "does not speak TLS: unset EBB_TLS_CA, or check the address"
    return ""


def is_loopback(address: str) -> bool:
    """Whether HOST:PORT is this machine."""
    host = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(file: File, what: str, reason: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        message = f"{what} cannot be read: {os.fspath(file)}: {error.strerror}"
        raise FailedPrecondition(message, reason=reason) from error


def _stamp(file: File) -> tuple[int, int] | None:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def _unusable(message: str) -> NoReturn:
    raise FailedPrecondition(message, reason="TLS_FILES")
