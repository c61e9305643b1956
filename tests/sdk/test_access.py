"""Tokens and certificates on the client's side. `tests/rpc/test_access.py` and `test_tls.py` have the other one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from client_sdk import AsyncClient, Client, FailedPrecondition
from client_sdk._transport.access import Access, access, tls_problem
from client_sdk.cli import ebb
from client_sdk.testing import FakeCluster
from client_sdk.testing import cluster as fake_cluster
from tests.certificates import Authority

HERE, THERE = "127.0.0.1:1", "sched.example:7737"


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "site")


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as made:
        yield made


def given(**named: str) -> Access:
    return access(**{name: named.get(name) for name in ("token", "token_file", "tls_ca", "tls_cert", "tls_key")})  # type: ignore[arg-type]


def shown(asked: Access, address: str = HERE) -> str | None:
    return dict(asked.metadata(address)).get("authorization")


def test_arguments_win_over_the_environment_and_a_token_over_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("from-file\n")
    second.write_text("from-other-file")
    assert shown(given()) is None
    monkeypatch.setenv("EBB_TOKEN_FILE", str(first))
    assert shown(given()) == "Bearer from-file"
    monkeypatch.setenv("EBB_TOKEN", "from-environment")
    assert shown(given()) == "Bearer from-environment"
    assert shown(given(token_file=str(second))) == "Bearer from-other-file"
    assert shown(given(token="mine", token_file=str(second))) == "Bearer mine"
    monkeypatch.setenv("EBB_TOKEN", "")
    assert shown(given()) == "Bearer from-file"
    for name, value in (("EBB_TLS_CA", "ca"), ("EBB_TLS_CERT", "cert"), ("EBB_TLS_KEY", "key")):
        monkeypatch.setenv(name, value)
    assert given(tls_ca="other") == Access(None, str(first), "other", "cert", "key")
    assert access("", None, "", "", "") == Access(), "what is given as nothing is nothing"


def test_a_token_that_is_renewed_is_used_at_the_next_call(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    asked = given(token_file=str(path))
    assert shown(asked) == "Bearer old"
    path.write_text("new")
    assert shown(asked) == "Bearer new"


@pytest.mark.parametrize(
    "address", [THERE, "10.0.0.1:7737", "[2001:db8::1]:7737", "localhost.example:7737", "127.0.0.1.example:1"]
)
def test_a_token_does_not_leave_this_machine_without_tls(address: str, ca: Authority) -> None:
    with pytest.raises(FailedPrecondition, match="without TLS, where others could read it: set EBB_TLS_CA") as refused:
        given(token="secret").metadata(address)
    assert refused.value.reason == "TOKEN_WITHOUT_TLS"
    assert "secret" not in str(refused.value)
    assert shown(given(token="secret", tls_ca=str(ca.certificate)), address) == "Bearer secret"
    assert given().metadata(address) == ()


@pytest.mark.parametrize("address", ["localhost:1", "127.8.8.8:1", "[::1]:1"])
def test_on_this_machine_it_may_go_without(address: str) -> None:
    assert shown(given(token="secret"), address) == "Bearer secret"


def test_it_is_not_shown_to_who_prints_a_client() -> None:
    assert "secret" not in repr(given(token="secret"))


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"token_file": "none"}, r"the token file \(EBB_TOKEN_FILE\) cannot be read: .*none: No such file or directory"),
        ({"token_file": "words"}, r"the token in .*words is not one word"),
        ({"token": "two words"}, "the token is not one word"),
        ({"tls_ca": "none"}, r"the CA's certificate \(EBB_TLS_CA\) cannot be read"),
        ({"tls_ca": "words"}, r"words \(EBB_TLS_CA\) is no certificate in PEM"),
        ({"tls_cert": "words", "tls_key": "words"}, "need EBB_TLS_CA"),
        ({"tls_ca": "ca", "tls_cert": "words"}, "go together"),
        ({"tls_ca": "ca", "tls_cert": "words", "tls_key": "words"}, "not a certificate and its key in PEM"),
    ],
)
async def test_files_that_do_not_do(
    ca: Authority, tmp_path: Path, cluster: FakeCluster, named: dict[str, str], said: str
) -> None:
    (tmp_path / "words").write_text("not this")
    (tmp_path / "ca").write_bytes(ca.certificate.read_bytes())
    files = {name: value if name == "token" else str(tmp_path / value) for name, value in named.items()}
    with Client(cluster.address, timeout=30, **files) as client, pytest.raises(FailedPrecondition, match=said):  # type: ignore[arg-type]
        client.nodes()
    async with AsyncClient(cluster.address, timeout=30, **files) as client:  # type: ignore[arg-type]
        with pytest.raises(FailedPrecondition, match=said):
            await client.nodes()
        with pytest.raises(FailedPrecondition, match=said):
            await anext(client.watch())


def test_what_does_not_mend_itself_is_not_tried_again() -> None:
    said = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: "
    untrusted = "SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: certificate has expired: OK"
    assert tls_problem(said + untrusted).endswith("does not vouch for (certificate has expired)")
    assert tls_problem(said + "Failed to connect to remote host: Connection refused") == ""


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"EBB_TOKEN": "x", "EBB_ADDRESS": THERE}, f"ebb: the token is not sent to {THERE} without TLS"),
        ({"EBB_TOKEN_FILE": "/no/such/file"}, "ebb: the token file (EBB_TOKEN_FILE) cannot be read: /no/such/file: "),
    ],
)
def test_the_command_line_says_it_in_one_line(variables: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(ebb, ["list"])
    assert result.exit_code == 1
    assert result.stderr.startswith(said)
    assert len(result.stderr.splitlines()) == 1
    assert CliRunner().invoke(ebb, ["version"]).exit_code == 0, "what asks nobody needs no token"


def test_tls_errors_are_one_line_of_the_command_too(ca: Authority, cluster: FakeCluster) -> None:
    variables = {"EBB_ADDRESS": cluster.address, "EBB_TLS_CA": str(ca.certificate), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", "from client_sdk.cli import main; main()", "list"]
    ended = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr == (
        f"ebb: the scheduler at {cluster.address} does not speak TLS: unset EBB_TLS_CA, or check the address\n"
    )


def test_a_fake_cluster_needs_nothing_of_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EBB_TOKEN_FILE", "EBB_TLS_CA", "EBB_TLS_CERT", "EBB_TLS_KEY"):
        monkeypatch.setenv(name, "/no/such/file")
    with fake_cluster() as made:
        assert made.client().nodes()
