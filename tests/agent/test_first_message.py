"""What an agent says first where it cannot reach a scheduler, or is refused: at once, as a warning, with what to do."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from node_agent.transport import link
from node_agent.transport.security import Security
from tests.agent.fake_scheduler import FakeScheduler
from tests.agent.test_link import QuietNode
from tests.certificates import Authority


async def first_message(target: str, security: Security, caplog: pytest.LogCaptureFixture) -> str:
    """Of an agent that tries until it has said something."""
    said = asyncio.Event()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING:
                loop.call_soon_threadsafe(said.set)

    loop, heard = asyncio.get_running_loop(), Heard()
    link.log.addHandler(heard)
    running = asyncio.create_task(link.run(target, QuietNode(), link.Pace(first=60), security))  # type: ignore[arg-type]
    try:
        await asyncio.wait_for(said.wait(), 20)
    finally:
        running.cancel()
        await asyncio.wait([running])
        link.log.removeHandler(heard)
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.levelno == logging.WARNING
    assert record.getMessage().endswith(". Trying again; jobs go on.")
    return record.getMessage()


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "site")


@contextmanager
def listening(add_port: Callable[[grpc.Server], int]) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1))
    port = add_port(server)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


async def test_plain_against_tls(ca: Authority, caplog: pytest.LogCaptureFixture) -> None:
    pair = ca.issue("service", "IP:127.0.0.1")
    credentials = grpc.ssl_server_credentials([(pair.key.read_bytes(), pair.certificate.read_bytes())])
    with listening(lambda server: server.add_secure_port("127.0.0.1:0", credentials)) as target:
        assert "; if it speaks TLS, set tls_ca" in await first_message(target, Security(), caplog)


async def test_tls_against_plain(ca: Authority, caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeScheduler()
    try:
        said = await first_message(fake.address, Security(tls_ca=ca.certificate), caplog)
    finally:
        fake.close()
    assert "does not speak TLS, and tls_ca is set: leave tls_ca out, or give the scheduler tls_certificate and tls_key" in said


async def test_a_name_that_does_not_resolve(ca: Authority, caplog: pytest.LogCaptureFixture) -> None:
    said = await first_message("no-such-host.invalid:7737", Security(tls_ca=ca.certificate), caplog)
    assert "The scheduler at no-such-host.invalid:7737 cannot be found, as its name does not resolve (" in said
    assert "): correct --scheduler, or this machine's /etc/hosts or DNS" in said


async def test_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    said = await first_message("127.0.0.1:1", Security(), caplog)
    assert "127.0.0.1:1 cannot be reached, as nothing listens there: start it, or correct --scheduler" in said


async def test_something_else_listens(caplog: pytest.LogCaptureFixture) -> None:
    """gRPC loses the status of a stream that ends while the agent writes to it, now and then; the next try has it."""
    with listening(lambda server: server.add_insecure_port("127.0.0.1:0")) as target:
        said = "closed the connection"
        for _ in range(20):
            if "closed the connection" in said:
                caplog.clear()
                said = await first_message(target, Security(), caplog)
    assert "is not a scheduler of Ebb: correct --scheduler" in said
