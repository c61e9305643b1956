"""A relay in front of the server's socket that can lose the connection around a COMMIT."""

import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs, quote, urlsplit

_NAME = ".s.PGSQL.5432"


class Proxy:
    """Relays sessions to the server of `url`, which must listen on a Unix socket."""

    def __init__(self, url: str) -> None:
        self._server = str(Path(parse_qs(urlsplit(url).query)["host"][0]) / _NAME)
        self._folder = tempfile.TemporaryDirectory(prefix="ebb-proxy-", dir="/tmp")
        self.url = f"{url.split('?')[0]}?host={quote(self._folder.name, safe='')}"
        self._cut: bool | None = None
        self._answer_is_lost = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self._folder.name}/{_NAME}")
        self._listener.listen()
        self._sockets = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]

    def cut_at_commit(self, after: bool) -> None:
        """From now on a client that sends COMMIT loses its connection: before the server has it, or `after` it answered."""
        self._cut = after

    def mend(self) -> None:
        self._cut = None
        self._answer_is_lost = False

    def __enter__(self) -> "Proxy":
        self._threads[0].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        _end(*self._sockets)
        for thread in self._threads:
            thread.join(20)
        for each in self._sockets:
            each.close()
        self._folder.cleanup()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            self._sockets += [client, server]
            server.connect(self._server)
            for run in (self._to_server, self._to_client):
                thread = threading.Thread(target=run, args=(client, server))
                self._threads.append(thread)
                thread.start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := _receive(client):
                if b"COMMIT" in data and self._cut is not None:
                    if not self._cut:
                        break
                    self._answer_is_lost = True
                server.sendall(data)
        _end(client, server)

    def _to_client(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while (data := _receive(server)) and not self._answer_is_lost:
                client.sendall(data)
        _end(client, server)


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b""


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
