"""What nothing but its parts costs: a call between two processes by gRPC, and a durable commit by PostgreSQL.

What stands on these can be no faster than they are. The server is a process of its own, as the scheduler is; run as a
program, this module is that process. It leaves when its standard input ends.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import psycopg

from scheduler_service.store.embedded import Embedded

SERVICE, METHOD = "bare", "Now"

Milliseconds = float


@contextmanager
def calls() -> Iterator[Callable[[], Milliseconds]]:
    """Gives what makes an empty call and says how long it was on its way to the server's handler."""
    arguments = [sys.executable, "-m", "benchmarks.bare"]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with grpc.insecure_channel(f"127.0.0.1:{int(process.stdout.readline())}") as channel:
            now: Callable[..., bytes] = channel.unary_unary(f"/{SERVICE}/{METHOD}")

            def call() -> Milliseconds:
                began = time.time_ns()
                return (int(now(b"", timeout=10)) - began) / 1e6

            yield call
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


@contextmanager
def commits(folder: Path) -> Iterator[Callable[[], Milliseconds]]:
    """Gives what changes one small row, durably, and says how long that took."""
    with Embedded(folder) as url, psycopg.connect(url, autocommit=True, prepare_threshold=0) as session:
        session.execute("CREATE TABLE bare (number bigint)")
        session.execute("INSERT INTO bare VALUES (0)")

        def commit() -> Milliseconds:
            began = time.perf_counter_ns()
            session.execute("UPDATE bare SET number = number + 1")
            return (time.perf_counter_ns() - began) / 1e6

        yield commit


async def serve() -> None:
    async def now(_request: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        return b"%d" % time.time_ns()

    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(now)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(serve())
