"""What the launcher says and hears, over real sockets."""

import json
import selectors
import socket
from collections.abc import Iterator

import pytest

from node_agent.processes.launcher.connection import Connection


class Ends:
    """A connection, and the agent's end of it."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.heard: list[dict[str, object]] = []
        self.connection = Connection(self.selector, self.heard.append)
        self.agent = self.connect()

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.connection.exchange(ours)
        theirs.settimeout(20)
        return theirs

    def turn(self) -> None:
        """The launcher's loop, once around."""
        for ready, _ in self.selector.select(0):
            ready.data()


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.agent.close()
    ends.turn()
    assert not ends.connection.is_connected
    ends.selector.close()


def test_what_is_larger_than_its_socket_arrives_whole(ends: Ends) -> None:
    """As a hello with thousands of runs; what comes meanwhile is heard, and what is said then comes after."""
    hello = {"runs": {f"1a2b/{number}.1": [number, 1] for number in range(50_000)}}
    ends.connection.send(hello)
    ends.connection.send({"event": "exited"})
    ends.agent.sendall(b'{"op": "quit"}\n')
    data = b""
    while data.count(b"\n") < 2:
        ends.turn()
        data += ends.agent.recv(1 << 16)
    assert [json.loads(line) for line in data.splitlines()] == [hello, {"event": "exited"}]
    assert ends.heard == [{"op": "quit"}]


def test_an_agent_that_reads_nothing_is_left(ends: Ends) -> None:
    for _ in range(20):
        ends.connection.send({"text": "x" * (1 << 20)})
    assert not ends.connection.is_connected
    ends.connection.send({"nobody": "hears it"})
    ends.agent.close()
    ends.agent = ends.connect()
    ends.connection.send({"event": "hello"})
    assert ends.agent.recv(100) == b'{"event": "hello"}\n', "and nothing of what was for the other"


def test_lines_are_heard_whatever_pieces_they_come_in(ends: Ends) -> None:
    for piece in (b'{"op": ', b'"a"}\n{"op"', b': "b"}\n'):
        ends.agent.sendall(piece)
        ends.turn()
    assert ends.heard == [{"op": "a"}, {"op": "b"}]
