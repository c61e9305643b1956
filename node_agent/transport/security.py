"""How the agent and the scheduler authenticate each other: TLS by certificate files, and the agent's token.

Files are read at each connection, so that a renewed certificate or token is used from the next one on.
"""

import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from node_agent.errors import Disconnected


@dataclass(frozen=True, slots=True)
class Security:
    """The agent's files; without `tls_ca`, TLS is off, and a token is then sent only to loopback."""

    token_file: Path | None = None
    tls_ca: Path | None = None
    """The CA that vouches for the scheduler's certificate."""
    tls_cert: Path | None = None
    """For mutual TLS, with its key."""
    tls_key: Path | None = None

    def channel(self, target: str, options: Sequence[tuple[str, Any]]) -> grpc.aio.Channel:
        """Open a channel. Raises Disconnected if a file cannot be read."""
        if self.tls_ca is None:
            return grpc.aio.insecure_channel(target, options=options)
        ca, key, cert = (_read(target, path) for path in (self.tls_ca, self.tls_key, self.tls_cert))
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(ca, key, cert), options=options)

    def serving(self) -> grpc.ServerCredentials | None:
        """Return credentials for serving other agents, by the agent's own certificate; None without TLS. Raises OSError."""
        if self.tls_ca is None or self.tls_cert is None or self.tls_key is None:
            return None
        ca, key, cert = self.tls_ca.read_bytes(), self.tls_key.read_bytes(), self.tls_cert.read_bytes()
        return grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=True)

    @property
    def can_serve(self) -> bool:
        """Whether its service is as safe as its link: encrypted, or on loopback only."""
        return self.tls_ca is None or self.tls_cert is not None

    def metadata(self, target: str) -> tuple[tuple[str, str], ...]:
        """Return the metadata of every call. Raises Disconnected."""
        token = _read(target, self.token_file)
        if token is None:
            return ()
        if self.tls_ca is None and not is_loopback(target):
            raise Disconnected(target=target, why="is not sent a token without TLS: set tls_ca")
        try:
            return (("authorization", f"Bearer {one_line(token)}"),)
        except ValueError as error:
            raise Disconnected(target=target, why=f"cannot be called: {self.token_file} {error}") from None

    def check(self) -> None:
        """Raise ValueError, naming the setting, if a file cannot be used now."""
        settings = {"token_file": self.token_file, "tls_ca": self.tls_ca, "tls_cert": self.tls_cert, "tls_key": self.tls_key}
        found = {}
        for name, path in settings.items():
            if path is not None:
                try:
                    found[name] = path.read_bytes()
                except OSError as error:
                    raise ValueError(f"{name}: {path} cannot be read: {error.strerror}") from None
        if "token_file" in found:
            try:
                one_line(found["token_file"])
            except ValueError as error:
                raise ValueError(f"token_file: {self.token_file} {error}") from None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if self.tls_ca is not None:
                context.load_verify_locations(self.tls_ca)
        except ssl.SSLError:
            raise ValueError(f"tls_ca: {self.tls_ca} is no certificate in PEM") from None
        try:
            if self.tls_cert is not None:
                context.load_cert_chain(self.tls_cert, self.tls_key, password="")
        except ssl.SSLError as error:
            what = f"{self.tls_cert} and {self.tls_key} are not a certificate and its key in PEM, without a passphrase"
            raise ValueError(f"tls_cert, tls_key: {what} ({error.reason})") from None


def is_loopback(target: str) -> bool:
    """Whether HOST:PORT is on this machine."""
    host = target.rpartition(":")[0].removeprefix("[").removesuffix("]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def one_line(token: bytes) -> str:
    """Return the token in a file. Raises ValueError if it has anything else."""
    words = token.split()
    if len(words) != 1 or not words[0].isascii():
        raise ValueError("does not hold a token, which is one word")
    return words[0].decode("ascii")


def _read(target: str, path: Path | None) -> bytes | None:
    try:
        return None if path is None else path.read_bytes()
    except OSError as error:
        raise Disconnected(target=target, why=f"cannot be called: {path} cannot be read ({error.strerror})") from None
