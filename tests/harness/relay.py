"""A relay between programs that talk by TCP: it can cut their connections, or keep what they say from each other."""

import contextlib
import select
import socket
import threading


class Relay:
    """Listens on a port of its own and passes on what is said to and from `target` (HOST:PORT). Close it."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._wake, self._woken = socket.socketpair()
        self._pairs: dict[socket.socket, socket.socket] = {}
        """Each end of each connection, and the other one."""
        self._refuses = self._silent = self._closed = False
        self._cutting = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"relay-{self.address}", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Ends every connection, and refuses new ones until `mend`."""
        self._refuses = True
        self._tell()

    def silence(self) -> None:
        """Passes nothing on until `mend`. The connections stay, so neither side is told."""
        self._silent = True
        self._tell()

    def mend(self) -> None:
        self._refuses = self._silent = False
        self._tell()

    def close(self) -> None:
        self._closed = True
        self._tell()
        self._thread.join(20)
        assert not self._thread.is_alive()
        for each in (self._listener, self._wake, self._woken):
            each.close()

    def _tell(self) -> None:
        self._wake.send(b".")

    def _run(self) -> None:
        while not self._closed:
            heard = [self._woken, self._listener, *(() if self._silent else self._pairs)]
            for ready in select.select(heard, [], [])[0]:
                if ready is self._woken:
                    ready.recv(4096)
                elif ready is self._listener:
                    self._accept()
                elif ready in self._pairs:
                    self._pass_on(ready)
            if self._refuses:
                self._end(*self._pairs)
        self._end(*self._pairs)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._refuses:
            client.close()
            return
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:  # it was killed
            client.close()
            return
        server.settimeout(5)
        client.settimeout(5)
        self._pairs |= {client: server, server: client}

    def _pass_on(self, source: socket.socket) -> None:
        try:
            if data := source.recv(65536):
                self._pairs[source].sendall(data)
                return
        except OSError:  # one of the two is gone
            pass
        self._end(source)

    def _end(self, *ends: socket.socket) -> None:
        for end in ends:
            if (other := self._pairs.pop(end, None)) is not None:
                self._pairs.pop(other, None)
                for each in (end, other):
                    with contextlib.suppress(OSError):
                        each.close()
