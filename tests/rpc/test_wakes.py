"""gRPC wakes the event loop once for all that has happened."""

import socket
import subprocess
import sys

import pytest

from scheduler_service.rpc import wakes

WATCHED = """
import asyncio
import grpc.aio
from scheduler_service.rpc import wakes

async def main():
    loop = asyncio.get_running_loop()
    watched, add = [], loop.add_reader
    loop.add_reader = lambda read, *then: (watched.append(read), add(read, *then))
    with wakes.once():
        grpc.aio.server()
    print(*(type(read).__name__ for read in watched))

asyncio.run(main())
"""


def test_one_read_empties_what_the_loop_watches() -> None:
    """Else the loop takes one event in each turn, as soon as gRPC has more of them than the sockets hold bytes."""
    with wakes.once():
        read, write = socket.socketpair()
    with read, write:
        write.send(b"1" * 200)
        assert read.recv(1)
        read.setblocking(False)
        with pytest.raises(BlockingIOError):
            read.recv(1)


def test_it_is_what_grpc_has_the_loop_watch() -> None:
    """In a process of its own: gRPC makes one pair for each process."""
    said = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.split() == ["_Emptied"]
