"""A connection of our own to the store of a process group, for a thread that has to end before the interpreter does.

A call of PyTorch's store waits for an answer without a limit, and releases the GIL meanwhile. If a thread returns from such a
call while the interpreter ends, Python ends the thread inside C++ code, which aborts the whole process
("terminate called without an active exception"). So `interrupt` closes the connection under the call, which then raises.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any

_DESCRIPTORS = "/proc/self/fd"


class StoreConnection:
    """Another connection to the server of a store. A call that waits for a key would block every other call on the same one.

    `open` and the calls of the store that it returns are for one thread; `interrupt` is for others.
    """

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs
        self._before = _sockets()
        self._own: frozenset[str] | None = None
        """The sockets of this connection, once it is open."""
        self._port = _port(theirs)

    def open(self) -> Any:
        """Return the store. Raises what PyTorch raises if the server cannot be reached."""
        theirs, self._theirs = self._theirs, None  # it must not be kept alive: the server may belong to it
        store = theirs.clone()
        self._own = frozenset(_sockets()) - frozenset(self._before)
        return store

    def interrupt(self) -> None:
        """Make a call that waits for the server, and every later one, raise an error."""
        for name, descriptor in _sockets().items():
            if name not in self._before and (self._own is None or name in self._own):
                with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as found:
                    if found.getpeername()[1] == self._port:  # another thread may have opened a socket at the same moment
                        found.shutdown(socket.SHUT_RDWR)


def _port(store: Any) -> int | None:
    """Return the port of the server; None for a store without one, such as a file."""
    while (inner := getattr(store, "underlying_store", None)) is not None:
        store = inner
    return getattr(store, "port", None)


def _sockets() -> dict[str, int]:
    """Return a descriptor of each socket of this process, by the kernel's name of the socket."""
    found = {}
    for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 (pathlib is not imported into training processes)
        with suppress(OSError):
            target = os.readlink(f"{_DESCRIPTORS}/{name}")  # noqa: PTH115
            if target.startswith("socket:"):
                found[target] = int(name)
    return found
