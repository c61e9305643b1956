"""A relay in front of the server's socket that can lose the connection around a COMMIT, or hold back what a session says."""

import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs, quote, urlsplit

_NAME = ".s.PGSQL.5432"


class Proxy:
    """Relays sessions to the server of `url`, which must listen on a Unix socket. It may go and come back."""

    def __init__(self, url: str) -> None:
        self._server = str(Path(parse_qs(urlsplit(url).query)["host"][0]) / _NAME)
        self._folder = tempfile.TemporaryDirectory(prefix="ebb-proxy-", dir="/tmp")
        self.url = f"{url.split('?')[0]}?host={quote(self._folder.name, safe='')}"
        self.cuts = 0
        """How many connections were lost at a COMMIT."""
        self._cut: bool | None = None
        self._cuts_left = 0
        self._session = b""
        self._refusing = False
        self._gone = False
        self._sessions: list[_Session] = []
        self._may_pass = threading.Event()
        self._may_pass.set()
        self._held = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self._folder.name}/{_NAME}")
        self._listener.listen()
        self._sockets = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]

    def cut_at_commit(self, after: bool, times: int | None = None, session: str = "", gone: bool = False) -> None:
        """From now on a client that sends COMMIT loses its connection: before the server has it, or `after` it answered.

        So many times (None: every time), and only in sessions that named themselves so (see application_name). With `gone`
        there is no database from then on, as after `refuse`.
        """
        self._gone = gone
        self._session = session.encode()
        self._cuts_left = times if times is not None else 1 << 30
        self._cut = after

    def refuse(self) -> None:
        """From now on there is no database: every connection ends, and so does every new one."""
        self._refusing = True
        _end(*self._sockets[1:])

    def hold(self, session: str) -> None:
        """From now on nothing that the present sessions of this name say reaches the server, until `release`."""
        self._held.clear()
        self._may_pass.clear()
        for each in self._sessions:
            each.is_held = session.encode() in each.name

    def wait_until_held(self, limit: float) -> None:
        """Until there is something that is held back."""
        assert self._held.wait(limit), "nothing was said"

    def release(self) -> None:
        for each in self._sessions:
            each.is_held = False
        self._may_pass.set()

    def mend(self) -> None:
        self._cut = None
        self._gone = self._refusing = False

    def __enter__(self) -> "Proxy":
        self._threads[0].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.release()
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
            try:
                if self._refusing:
                    raise ConnectionRefusedError
                server.connect(self._server)
            except OSError:
                _end(client)
                continue
            session = _Session(client, server)
            self._sessions.append(session)
            for run in (self._to_server, self._to_client):
                thread = threading.Thread(target=run, args=(session,))
                self._threads.append(thread)
                thread.start()

    def _to_server(self, session: "_Session") -> None:
        with suppress(OSError):
            while data := _receive(session.client):
                session.name = session.name or data  # the first message has the session's settings in it
                if session.is_held:
                    self._held.set()
                    self._may_pass.wait()
                if b"COMMIT" in data and self._cut is not None and self._cuts_left and self._session in session.name:
                    self._cuts_left -= 1
                    self.cuts += 1
                    self._refusing = self._gone
                    if not self._cut:
                        if self._gone:
                            self.refuse()
                        break
                    session.answer_is_lost = True
                session.server.sendall(data)
        session.end()

    def _to_client(self, session: "_Session") -> None:
        with suppress(OSError):
            while (data := _receive(session.server)) and not session.answer_is_lost:
                session.client.sendall(data)
        session.end()
        if session.answer_is_lost and self._refusing:
            self.refuse()


class _Session:
    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.name = b""
        self.answer_is_lost = False
        self.is_held = False

    def end(self) -> None:
        _end(self.client, self.server)


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b""


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
