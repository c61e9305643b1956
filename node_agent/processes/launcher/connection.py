"""The launcher's end of its agent's connection: one JSON object per line, both ways, and nothing that waits.

The launcher imports this, and so it imports next to nothing.
"""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Callable

_CHUNK = 1 << 18
_UNREAD = 1 << 24
"""Bytes that an agent may leave unread."""


class Connection:
    """A connection to one agent at a time. `obey` is called with each request."""

    def __init__(self, selector: selectors.BaseSelector, obey: Callable[[dict[str, object]], None]) -> None:
        self._selector = selector
        self._obey = obey
        self._socket: socket.socket | None = None
        self._heard = bytearray()
        self._unsent = bytearray()
        """Data that the agent's socket does not accept yet: that of a hello with thousands of runs, for example."""

    @property
    def is_connected(self) -> bool:
        return self._socket is not None

    def exchange(self, connection: socket.socket) -> None:
        """Replace the present connection."""
        self._close()
        connection.setblocking(False)
        self._socket = connection
        self._selector.register(connection, selectors.EVENT_READ, self._talk)

    def send(self, message: dict[str, object]) -> None:
        if self._socket is not None:
            self._unsent += json.dumps(message).encode() + b"\n"
            self._flush()

    def read(self) -> None:
        """Handle all requests that have arrived."""
        connection = self._socket
        while connection is not None and self._socket is connection:
            try:
                data = connection.recv(_CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._close()
                return
            self._heard += data
            *lines, rest = self._heard.split(b"\n")
            self._heard = bytearray(rest)
            for line in lines:
                self._obey(json.loads(line))
            if len(data) < _CHUNK:  # no more has arrived
                return

    def _talk(self) -> None:
        if self._unsent:
            self._flush()
        self.read()

    def _flush(self) -> None:
        """Send as much as the socket accepts now, and the rest later."""
        if self._socket is None:
            return
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._close()
            return
        if len(self._unsent) > _UNREAD:
            self._close()  # it hangs; when it comes back it asks for everything again
            return
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        if mask != self._selector.get_key(self._socket).events:
            self._selector.modify(self._socket, mask, self._talk)

    def _close(self) -> None:
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None
            self._heard.clear()
            self._unsent.clear()
