"""TLS of the service, with certificates made here, as its clients meet it."""

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from client_sdk import AsyncClient, Client, EbbError, Unavailable
from scheduler_service.certificates import DAY, TlsFiles
from scheduler_service.commands import main
from scheduler_service.config import Config, ConfigError, load
from scheduler_service.rpc import tls
from tests.certificates import Authority, Pair, lock
from tests.rpc.server import Server

HERE = ("DNS:localhost", "IP:127.0.0.1")


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "site")


@pytest.fixture(scope="module")
def other_ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "other")


@pytest.fixture(scope="module")
def pair(ca: Authority) -> Pair:
    return ca.issue("scheduler", *HERE)


def settings(pair: Pair, **more: Any) -> dict[str, Any]:
    return {"tls_certificate": pair.certificate, "tls_key": pair.key, **more}


@pytest.fixture
def server(database_url: str, pair: Pair) -> Iterator[Server]:
    with Server(database_url, **settings(pair)) as made:
        yield made


def failure(server: Server, **access: Any) -> EbbError:
    """What the client says that cannot connect."""
    with Client(server.address, timeout=3, **access) as client, pytest.raises(EbbError) as caught:
        client.nodes()
    return caught.value


async def test_both_clients_with_the_ca(server: Server, ca: Authority) -> None:
    with Client(server.address, tls_ca=ca.certificate) as client:
        assert client.nodes() == []
        job = client.submit(["true"])
        assert next(iter(client.watch(job.id))).jobs[0].id == job.id
    async with AsyncClient(server.address, tls_ca=ca.certificate) as same:
        assert await same.nodes() == []
        assert (await same.get(job.id)).id == job.id
    by_name = f"localhost:{server.address.rpartition(':')[2]}"
    with Client(by_name, tls_ca=ca.certificate) as client:
        assert client.nodes() == []


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(server: Server, other_ca: Authority) -> None:
    error = failure(server, tls_ca=other_ca.certificate)
    assert isinstance(error, Unavailable)
    assert error.reason == "TLS"
    assert str(error).startswith(f"the scheduler at {server.address} shows a certificate that the CA in EBB_TLS_CA does not")


def test_a_certificate_for_another_name(database_url: str, ca: Authority) -> None:
    with Server(database_url, **settings(ca.issue("elsewhere", "DNS:sched.example"))) as server:
        assert "a certificate for another name" in str(failure(server, tls_ca=ca.certificate))


def test_plaintext_to_tls_and_tls_to_plaintext(server: Server, database_url: str, ca: Authority) -> None:
    assert "if it speaks TLS, set EBB_TLS_CA" in str(failure(server))
    server.stop()
    with Server(database_url) as plain:
        assert "does not speak TLS" in str(failure(plain, tls_ca=ca.certificate))


def test_mutual_tls(database_url: str, ca: Authority, other_ca: Authority, pair: Pair) -> None:
    mine, foreign = ca.issue("client"), other_ca.issue("client")
    with Server(database_url, **settings(pair, tls_client_ca=ca.certificate)) as server:
        with Client(server.address, tls_ca=ca.certificate, tls_cert=mine.certificate, tls_key=mine.key) as client:
            assert client.nodes() == []
        assert "set EBB_TLS_CERT and EBB_TLS_KEY" in str(failure(server, tls_ca=ca.certificate))
        wrong = failure(server, tls_ca=ca.certificate, tls_cert=foreign.certificate, tls_key=foreign.key)
        assert "perhaps it does not accept the certificate in EBB_TLS_CERT" in str(wrong)


async def test_a_client_uses_files_that_were_renewed(
    database_url: str, ca: Authority, other_ca: Authority, pair: Pair, tmp_path: Path
) -> None:
    used, trusted = Pair(tmp_path / "me.pem", tmp_path / "me.key"), tmp_path / "ca.pem"
    files = {"tls_ca": trusted, "tls_cert": used.certificate, "tls_key": used.key}

    def renew(by: Authority, of: Authority) -> None:
        for new, path in zip((*by.issue("client"), of.certificate), (*used, trusted), strict=True):
            shutil.copy(new, path)

    with Server(database_url, **settings(pair, tls_client_ca=ca.certificate)) as server:
        renew(by=ca, of=other_ca)
        with Client(server.address, timeout=3, **files) as client:
            async with AsyncClient(server.address, timeout=3, **files) as same:
                with pytest.raises(Unavailable, match="does not vouch for"):
                    await same.nodes()
                renew(by=other_ca, of=ca)
                for _ in range(2):
                    with pytest.raises(Unavailable, match="perhaps it does not accept the certificate"):
                        client.nodes()
                renew(by=ca, of=ca)
                assert client.nodes() == await same.nodes() == []
                job = client.submit(["true"])
                watch = iter(client.watch(job.id))
                assert next(watch).jobs[0].id == job.id
                used.certificate.write_text("half writ")
                assert client.nodes() == await same.nodes() == [], "what is of no use changes nothing"
                renew(by=ca, of=ca)
                client.cancel(job.id)
                assert next(watch).jobs[0].ended, "what was under way goes on"


def test_a_renewed_certificate_is_used_from_the_next_connection_on(
    database_url: str, ca: Authority, other_ca: Authority, pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    used = Pair(tmp_path / "scheduler.pem", tmp_path / "scheduler.key")
    for old, path in zip(pair, used, strict=True):
        shutil.copy(old, path)
    with Server(database_url, **settings(used)) as server, Client(server.address, tls_ca=ca.certificate) as there:
        assert there.nodes() == []
        used.certificate.write_text("half writ")
        with Client(server.address, tls_ca=ca.certificate) as client:
            assert client.nodes() == []
        assert [r for r in caplog.records if "the certificate is not renewed, the old one goes on" in r.getMessage()]
        for new, path in zip(other_ca.issue("scheduler", *HERE), used, strict=True):
            shutil.copy(new, path)
        with Client(server.address, tls_ca=other_ca.certificate) as client:
            assert client.nodes() == []
        assert failure(server, tls_ca=ca.certificate).reason == "TLS"
        assert there.nodes() == [], "a connection that is there goes on"


def test_who_listens_on_every_address_says_where_it_is_reached(database_url: str, pair: Pair) -> None:
    with pytest.raises(ValueError, match=r"nobody can connect to 0\.0\.0\.0:7737: say in `advertise`"):
        Config(database=database_url, listen="0.0.0.0:7737", auth="token", **settings(pair))


async def test_tls_with_a_token_on_every_address_of_this_machine(
    database_url: str, ca: Authority, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(database_url, **settings(pair, auth="token"))
    server._config = Config(database=database_url, listen="0.0.0.0:0", advertise="localhost:1", auth="token", **settings(pair))
    with server:
        address = f"localhost:{server.address.rpartition(':')[2]}"
        monkeypatch.setenv("EBB_TLS_CA", str(ca.certificate))
        with Client(address) as client, pytest.raises(EbbError) as caught:
            await asyncio.to_thread(client.nodes)
        assert caught.value.reason == "NO_TOKEN"


# ---- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"tls_key": None}, "tls_certificate and tls_key go together"),
        ({"tls_certificate": "none.pem"}, r"tls_certificate: .*none\.pem cannot be read: No such file"),
        ({"tls_certificate": "nonsense"}, "are not a certificate and its key in PEM"),
        ({"tls_certificate": "expired.pem", "tls_key": "expired.key"}, r"expired\.pem: certificate has expired"),
        ({"tls_key": "other"}, "is not the key of the certificate"),
        ({"tls_key": "locked"}, "protected by a passphrase"),
        ({"tls_client_ca": "nonsense"}, "tls_client_ca: .* is no certificate in PEM"),
    ],
)
def test_files_that_do_not_fit(
    ca: Authority, other_ca: Authority, pair: Pair, tmp_path: Path, change: dict[str, str | None], said: str
) -> None:
    (tmp_path / "nonsense").write_text("nonsense")
    shutil.copy(other_ca.issue("unlike").key, tmp_path / "other")
    lock(pair.key, tmp_path / "locked")
    for new, name in zip(ca.issue("expired", *HERE, days=-1), ("expired.pem", "expired.key"), strict=True):
        shutil.copy(new, tmp_path / name)
    changed = {name: None if file is None else tmp_path / file for name, file in change.items()}
    flags = {"database": "postgresql://x/y", **settings(pair), **changed}
    given = {name: value for name, value in flags.items() if value is not None}
    if not said:
        load(None, given)
        return
    with pytest.raises(ConfigError, match=said):
        load(None, given)


@pytest.mark.parametrize(
    ("days", "later", "said"),
    [(365, 0, ""), (365, 334, ""), (365, 340, "expires in 25 days"), (1, 0.7, ""), (1, 0.8, "expires in 5 hours")],
)
def test_a_certificate_that_expires_soon(ca: Authority, days: int, later: float, said: str) -> None:
    files = TlsFiles(*ca.issue("soon", *HERE, days=days))
    reminder = files.reminder(time.time() + later * DAY)
    assert (said in reminder) if said else not reminder


def test_check_config_tells_of_it(ca: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, file = ca.issue("month", *HERE, days=365), tmp_path / "scheduler.yaml"
    file.write_text(f"database: postgresql://x/y\ntls_certificate: {pair.certificate}\ntls_key: {pair.key}\n")
    for days, said in ((0, ""), (350, "expires in 15 days")):
        monkeypatch.setattr(main, "time", SimpleNamespace(time=lambda days=days: time.time() + days * DAY))
        checked = CliRunner().invoke(main.main, ["serve", "--config", str(file), "--check-config"])
        assert checked.exit_code == 0
        assert (said in checked.stderr) if said else not checked.stderr


def test_one_that_has_expired_since(ca: Authority) -> None:
    files = TlsFiles(*ca.issue("over", *HERE, days=-1))
    assert "over.pem cannot be used: certificate has expired" in files.reminder(time.time())


def test_who_serves_is_reminded_of_it_at_the_start_and_every_day(
    database_url: str, ca: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    passed = 340 * DAY
    clock = SimpleNamespace(time=lambda: time.time() + passed, monotonic=lambda: time.monotonic() + passed)
    monkeypatch.setattr(tls, "time", clock)

    def reminders() -> list[str]:
        return [r.getMessage() for r in caplog.records if "expires in" in r.getMessage()]

    with Server(database_url, **settings(ca.issue("year", *HERE, days=365))) as server:
        assert len(reminders()) == 1
        for days, told in ((340.5, 1), (341.5, 2), (341.9, 2), (342.7, 3)):
            passed = days * DAY
            with Client(server.address, tls_ca=ca.certificate) as client:
                assert client.nodes() == []
            assert len(reminders()) == told
