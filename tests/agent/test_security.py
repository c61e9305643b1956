"""How the agent shows who it is, and that it knows its scheduler."""

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from click.testing import CliRunner

from node_agent import app
from node_agent.commands.main import main
from node_agent.config import BadSettings, load
from node_agent.errors import AsRoot, Disconnected
from node_agent.transport import convert, link
from node_agent.transport.connection_ends import explain_end, tls_problem
from node_agent.transport.security import Security
from tests.agent.fake_scheduler import FakeScheduler
from tests.agent.test_link import QuietNode
from tests.certificates import Authority

FLAGS = {"scheduler": "127.0.0.1:7737", "devices": "pcie-8", "state": "s", "node": "n"}


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "site")


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "agent.token"
    path.write_text("ebb_secret\n")
    return path


# ---- settings ----------------------------------------------------------------------------------------------------------


def test_where_the_scheduler_may_be(ca: Authority, token: Path) -> None:
    assert load(FLAGS | {"token_file": token}).security == Security(token)
    for scheduler in ("10.0.0.1:7737", "sched.example.org:7737"):
        with pytest.raises(BadSettings, match=f"scheduler: {scheduler} is not this machine.* set tls_ca"):
            load(FLAGS | {"scheduler": scheduler, "token_file": token})
        assert load(FLAGS | {"scheduler": scheduler, "tls_ca": ca.certificate}).scheduler == scheduler


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"token_file": "none"}, r"token_file: .*/none cannot be read: No such file"),
        ({"token_file": "two-words"}, "does not hold a token"),
        ({"token_file": "empty"}, "does not hold a token"),
        ({"tls_ca": "two-words"}, "tls_ca: .* is no certificate in PEM"),
        ({"tls_ca": "none"}, "tls_ca: .* cannot be read"),
        ({"tls_cert": "two-words", "tls_key": "two-words"}, "tls_cert needs tls_ca"),
        ({"tls_key": "two-words"}, "go together"),
        ({"tls_ca": "ca", "tls_cert": "ca", "tls_key": "two-words"}, "are not a certificate and its key"),
    ],
)
def test_files_that_do_not_do(ca: Authority, tmp_path: Path, change: dict[str, str], said: str) -> None:
    (tmp_path / "two-words").write_text("not this\n")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "ca").write_bytes(ca.certificate.read_bytes())
    with pytest.raises(BadSettings, match=said):
        load(FLAGS | {name: tmp_path / file for name, file in change.items()})


def test_the_environment_names_files_too(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBB_AGENT_TOKEN_FILE", str(token))
    monkeypatch.setenv("EBB_AGENT_ALLOW_ROOT", "true")
    settings = load(FLAGS)
    assert (settings.token_file, settings.allow_root) == (token, True)


# ---- root --------------------------------------------------------------------------------------------------------------


async def test_root_is_refused_before_anything_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(AsRoot, match=r"whoever may submit one would own this\nmachine.*(?s:.)*--allow-root"):
        await app.run(load(FLAGS | {"state": tmp_path / "state"}))
    assert not (tmp_path / "state").exists()


def test_the_command_says_so_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    flags = [f"--{name}={value}" for name, value in (FLAGS | {"state": tmp_path / "state"}).items()]
    result = CliRunner().invoke(main, ["run", *flags])
    assert result.exit_code == 1
    assert result.output.startswith("Error: The agent was started as root (uid 0)")


# ---- the link ----------------------------------------------------------------------------------------------------------


class Knowing(FakeScheduler):
    """Remembers what every call brought along."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[Any] = []

    def Connect(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802
        self.shown.append(dict(context.invocation_metadata()).get("authorization"))
        return super().Connect(request_iterator, context)


async def _connected(fake: Knowing, security: Security, times: int) -> None:
    running = asyncio.create_task(link.run(fake.address, QuietNode(), link.Pace(first=0.01), security))  # type: ignore[arg-type]
    try:
        await asyncio.to_thread(fake.connected, times)
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_the_token_is_read_anew_for_each_connection(token: Path) -> None:
    fake = Knowing()
    try:
        await _connected(fake, Security(token), 1)
        token.write_text("ebb_renewed")
        await _connected(fake, Security(token), 2)
        await _connected(fake, Security(), 3)
        assert fake.shown == ["Bearer ebb_secret", "Bearer ebb_renewed", None]
    finally:
        fake.close()


def test_a_token_does_not_leave_the_machine_without_tls(ca: Authority, token: Path) -> None:
    with pytest.raises(Disconnected, match="is not sent a token without TLS"):
        Security(token).metadata("10.0.0.1:7737")
    bearer = (("authorization", "Bearer ebb_secret"),)
    assert Security(token).metadata("[::1]:7737") == bearer
    assert Security(token, ca.certificate).metadata("10.0.0.1:7737") == bearer


async def test_a_file_that_is_gone_is_told_and_tried_again(
    token: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Knowing()
    try:
        kept = token.read_text()
        token.unlink()
        waits: list[float] = []

        def jitter(_low: float, high: float) -> float:
            waits.append(high)
            if len(waits) == 3:
                token.write_text(kept)
            return 0.0

        monkeypatch.setattr(link.random, "uniform", jitter)
        await _connected(fake, Security(token), 1)
        (told,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING][:1]
        assert f"{token} cannot be read (No such file or directory)" in told
        assert fake.shown == ["Bearer ebb_secret"]
    finally:
        fake.close()


async def test_what_tls_kept_from_being_is_told_in_words(ca: Authority, caplog: pytest.LogCaptureFixture) -> None:
    fake = Knowing()
    node: Any = QuietNode()
    try:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(link.run(fake.address, node, security=Security(tls_ca=ca.certificate)), 1)
        (told,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
        assert told.startswith(
            f"The scheduler at {fake.address} does not speak TLS, and tls_ca is set: leave tls_ca out, or give"
        )
        assert told.endswith(". Trying again; jobs go on.")
    finally:
        fake.close()
    untrusted = "SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: certificate has expired: OK"
    assert "does not vouch for (certificate has expired): set tls_ca" in tls_problem(untrusted)
    assert tls_problem("Connection refused") == ""


@pytest.mark.parametrize(
    ("files", "hint"),
    [
        ({}, "; if it speaks TLS, set tls_ca"),
        ({"tls_ca": Path("ca")}, "; if it asks for a client's certificate, set tls_cert and tls_key"),
        (
            dict.fromkeys(("tls_ca", "tls_cert", "tls_key"), Path("pem")),
            "; perhaps it does not accept the certificate in tls_cert",
        ),
    ],
)
def test_a_connection_that_is_closed_at_once_may_want_tls(files: dict[str, Path], hint: str) -> None:
    nothing = grpc.aio.Metadata()
    closed = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, details="Socket closed")
    said = str(explain_end("127.0.0.1:1", closed, Security(**files), welcomed=False))
    assert said == f"The scheduler at 127.0.0.1:1 cannot be reached (unavailable: Socket closed{hint})."


async def test_a_stream_that_ended_as_it_was_written_to_was_closed() -> None:
    """What the library itself says then is for its developers."""
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        call = channel.stream_stream(convert.METHOD)()
        call._cython_call.set_internal_error("Failed")  # as where a write fails
        with pytest.raises(grpc.aio.AioRpcError) as broken:
            await call.read()
        call.cancel()
    said = str(explain_end("127.0.0.1:1", broken.value, Security(), welcomed=True))
    assert said == "The scheduler at 127.0.0.1:1 closed the connection."


def test_jobs_do_not_find_what_the_agent_was_given() -> None:
    """A token in the agent's environment is not passed on to jobs."""
    from node_agent.devices.base import Inventory
    from node_agent.processes.run_paths import Paths
    from node_agent.run_state.model import LaunchSpec, RunKey
    from node_agent.runs.environment import environment

    launch = LaunchSpec(RunKey(1, 1), command=("true",), environment=(), working_directory="/", name="", user="u", devices=())
    secret = {"EBB_TOKEN": "ebb_x", "EBB_TOKEN_FILE": "/t", "EBB_AGENT_TOKEN_FILE": "/t", "PATH": "/bin"}
    paths = Paths(Path("/s"), Path("/c"), "x")
    found = environment(secret, launch, "n", paths, Path("/c/1"), Inventory(1000, 1024), {})
    assert found["PATH"] == "/bin"
    assert not {name for name in found if "TOKEN" in name}
