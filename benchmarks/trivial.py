"""A trivial scheduler: what a start costs before anything is decided, checked or remembered of it.

Three processes, with the packages that Ebb's are made with: the client's blocking call, a server that inserts one row,
durably, and passes the request on by a stream, and an agent that executes it. There is one node and no queue, nobody is told
when a job ends, and what is lost is lost. Run as a program, this module is the server or the agent; each leaves when its
standard input ends.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc.aio
import psycopg
import uvloop

from scheduler_service.store.embedded.server import Embedded

SERVICE = "trivial"
SUBMIT, CONNECT = f"/{SERVICE}/Submit", f"/{SERVICE}/Connect"

Context = grpc.aio.ServicerContext[bytes, bytes]
Start = Callable[[Path, list[str]], None]


@contextmanager
def serving(folder: Path) -> Iterator[Start]:
    """Gives what starts a command, whose output goes to a file; it returns when that is durable."""
    with Embedded(folder) as url:
        with psycopg.connect(url) as session:
            session.execute("CREATE TABLE job (id bigserial PRIMARY KEY, request bytea)")
        with _process("server", url) as port, _process("agent", port), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            submit: Callable[..., bytes] = channel.unary_unary(SUBMIT)
            yield lambda log, command: _ended(submit("\0".join([str(log), *command]).encode(), timeout=10))


def _ended(answer: bytes) -> None:
    assert answer == b"accepted"


@contextmanager
def _process(*arguments: str) -> Iterator[str]:
    """Runs this module until the block ends, and gives what it says once it is ready."""
    command = [sys.executable, "-m", "benchmarks.trivial", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said = process.stdout.readline().strip()
        assert said, f"{command} has failed"
        yield said
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


async def serve(url: str) -> None:
    session = psycopg.connect(url, autocommit=True, prepare_threshold=0)
    orders: asyncio.Queue[bytes] = asyncio.Queue()

    async def submit(request: bytes, _context: Context) -> bytes:
        session.execute("INSERT INTO job (request) VALUES (%s)", [request])
        orders.put_nowait(request)
        return b"accepted"

    async def connect(_requests: AsyncIterator[bytes], _context: Context) -> AsyncIterator[bytes]:
        yield b"welcome"
        while True:
            yield await orders.get()

    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Submit": grpc.unary_unary_rpc_method_handler(submit),
        "Connect": grpc.stream_stream_rpc_method_handler(connect),
    }
    server = grpc.aio.server(handlers=(grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


async def obey(port: str) -> None:
    async def follow() -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            orders: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(CONNECT)()
            assert await orders.read() == b"welcome"
            print("ready", flush=True)
            while isinstance(order := await orders.read(), bytes):
                execute(order)

    following = asyncio.create_task(follow())
    await asyncio.to_thread(sys.stdin.read)
    following.cancel()


def execute(order: bytes) -> None:
    log, *command = order.decode().split("\0")
    output = os.open(log, os.O_WRONLY | os.O_CREAT, 0o644)
    os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, output, 1)], setsid=True)
    os.close(output)


if __name__ == "__main__":
    role, where = sys.argv[1:]
    uvloop.run(serve(where) if role == "server" else obey(where))
