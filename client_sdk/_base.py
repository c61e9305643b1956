"""The constructor of `Client` and `AsyncClient`, and the base classes of their calls."""

import os
from typing import Generic, TypeVar

from client_sdk._requests import jobs
from client_sdk._transport.access import access
from ebb_common import extras

TransportT = TypeVar("TransportT")
T = TypeVar("T")


class Asking:
    """Base of the groups of calls that make up `Client`, which sends their requests to the scheduler."""

    def _ask(self, request: jobs.Request[T]) -> T:
        raise NotImplementedError


class AskingAsync:
    """The same for `AsyncClient`."""

    async def _ask(self, request: jobs.Request[T]) -> T:
        raise NotImplementedError


class BaseClient(Generic[TransportT]):
    def __init__(
        self,
        address: str | None = None,
        *,
        timeout: float = 30.0,
        standby_reads: bool = False,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
    ) -> None:
        """Raises ModuleNotFoundError, with what to install, if the extra `client` of the package is not installed."""
        extras.require("grpc", "a client", "client")
        self.address = jobs.address(address)
        self._access = access(token, token_file, tls_ca, tls_cert, tls_key)
        self._timeout = jobs.patience(timeout)
        self._standby_reads = standby_reads
        self._closed = False
        self._made: TransportT | None = None
        self._set_up()

    def _set_up(self) -> None:
        """Create the attributes that only this kind of client has."""
