"""What the doctor finds on the way to the scheduler: closed ports, wrong names, old certificates, tokens of others."""

import json
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import grpc
import psutil
import pytest
from click.testing import CliRunner

from examples.cluster import free_port
from node_agent.commands.main import main
from node_agent.doctor import network
from node_agent.transport.security import Security
from scheduler_service.commands.main import main as ebb_scheduler
from tests.agent.test_doctor import the
from tests.certificates import Authority, Pair
from tests.harness import quick_cluster
from tests.store.fixtures import short_dir

LIMIT = 10.0


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "site")


@contextmanager
def listening(pair: Pair | None = None) -> Iterator[int]:
    """Something at a port of this machine, with TLS where it has a certificate, that is no scheduler. Gives the port."""
    context = None
    if pair is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                if context is None:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                else:
                    context.wrap_socket(connection, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


# ---- reaching it -------------------------------------------------------------------------------------------------------


def test_nothing_listens() -> None:
    the(
        network.scheduler(f"127.0.0.1:{free_port()}", Security(), LIMIT), "problem", "nothing listens at", "start the scheduler"
    )


def test_a_name_that_nobody_knows() -> None:
    the(
        network.scheduler("sched.invalid:7737", Security(), LIMIT), "problem", "sched.invalid cannot be looked up", "/etc/hosts"
    )


def test_no_answer_at_all() -> None:
    """As behind a firewall: a queue that is full lets nobody in, and says nothing."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        place = listener.getsockname()
        waiting = stack.enter_context(socket.socket())
        waiting.connect(place)
        found = list(network.scheduler(f"127.0.0.1:{place[1]}", Security(), 0.3))
    the(found, "problem", "cannot be reached: no answer", f"let port {place[1]} through")


def test_something_else_is_there() -> None:
    with listening() as port:
        found = list(network.scheduler(f"127.0.0.1:{port}", Security(), 2))
    the(found, "problem", "does not answer as a scheduler does", "Where that has TLS (tls_certificate), set tls_ca here")


def test_one_of_two_schedulers_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    away, there = f"127.0.0.1:{free_port()}", "sched-2:7737"
    real = network.scheduler
    monkeypatch.setattr(
        network, "scheduler", lambda target, *rest: real(target, *rest) if target == away else iter([network.ok("it leads")])
    )
    the(network.schedulers([away, there], Security(), LIMIT), "warning", f"nothing listens at {away}", "start the scheduler")
    the(network.schedulers([away], Security(), LIMIT), "problem", f"nothing listens at {away}")


# ---- certificates ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("days", "level", "said", "do"),
    [
        (365, "ok", "is valid until 20", ""),
        (5, "warning", "is valid until 20", "without a restart"),
        (-1, "problem", "certificate has expired", "clock"),
    ],
)
def test_how_long_a_certificate_lasts(ca: Authority, days: int, level: str, said: str, do: str) -> None:
    pair = ca.issue(f"lasts-{days}", "IP:127.0.0.1", days=days)
    with listening(pair) as port:
        found = list(network.certificate("127.0.0.1", port, Security(tls_ca=ca.certificate), LIMIT))
    the(found, level, said, do)
    assert len(found) == 1


def test_a_certificate_for_another_name(ca: Authority) -> None:
    with listening(ca.issue("other", "DNS:elsewhere.example.org")) as port:
        found = list(network.scheduler(f"127.0.0.1:{port}", Security(tls_ca=ca.certificate), LIMIT))
    the(found, "problem", "IP address mismatch", "the names that it is for")
    assert len(found) == 1, "what comes after it would say the same once more"


def test_a_certificate_of_another_ca(ca: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    with listening(other.issue("scheduler", "IP:127.0.0.1")) as port:
        found = list(network.certificate("127.0.0.1", port, Security(tls_ca=ca.certificate), LIMIT))
    the(found, "problem", "unable to get local issuer certificate", str(ca.certificate))


def test_no_tls_where_it_is_wanted(ca: Authority) -> None:
    with listening() as port:
        found = list(network.certificate("127.0.0.1", port, Security(tls_ca=ca.certificate), LIMIT))
    the(found, "problem", "does not speak TLS with us", "is TLS set there")


@pytest.mark.parametrize(
    ("days", "level", "said"),
    [(100, "ok", "our own certificate is valid until"), (2, "warning", "our own certificate"), (-1, "problem", "has expired")],
)
def test_our_own_certificate(ca: Authority, days: int, level: str, said: str) -> None:
    ours = ca.issue(f"agent-{days}", days=days)
    security = Security(tls_ca=ca.certificate, tls_cert=ours.certificate, tls_key=ours.key)
    with listening(ca.issue("scheduler", "IP:127.0.0.1", days=100)) as port:
        found = list(network.certificate("127.0.0.1", port, security, LIMIT))
    the(found[1:], level, said)


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    the(network.admission("127.0.0.1:1", Security(tmp_path / "token"), LIMIT), "problem", "cannot be read", "mend the file")


# ---- the way back ------------------------------------------------------------------------------------------------------


def test_where_other_nodes_reach_this_one() -> None:
    the(network.address("127.0.0.1", True, {"127.0.0.1"}), "ok", "the scheduler is on loopback")
    the(network.address("localhost", False, {"127.0.0.1"}), "problem", "which is themselves", "see /etc/hosts")
    the(network.address("n1.invalid", False, set()), "problem", "n1.invalid, by which other nodes", "address:")
    the(network.address("198.51.100.7", False, {"10.0.0.1"}), "warning", "no address of this machine", "NAT")
    own = {
        address.address for of_one in psutil.net_if_addrs().values() for address in of_one if address.family == socket.AF_INET
    }
    for address in own - {"127.0.0.1"}:
        the(network.address(address, False, own), "ok", f"reach this one at {address}")


# ---- a real scheduler --------------------------------------------------------------------------------------------------


class Guarded:
    """A scheduler with TLS and tokens."""

    def __init__(self, folder: Path, ca: Authority) -> None:
        self.folder, self.ca = folder, ca
        pair = ca.issue("scheduler", "IP:127.0.0.1", days=365)
        flags = ["--auth", "token", "--tls-certificate", str(pair.certificate), "--tls-key", str(pair.key)]
        self.cluster = quick_cluster(folder / "cluster", [*flags, "--tls-client-ca", str(ca.certificate)])
        self.ours = ca.issue("agent", days=365)

    def token(self, role: str) -> Path:
        arguments = ["token", "create", "--user", role, "--role", role, "--embedded", str(self.cluster.folder / "db")]
        done = CliRunner().invoke(ebb_scheduler, arguments)
        assert done.exit_code == 0, done.output
        file = self.folder / f"{role}.token"
        file.write_text(done.stdout)
        return file

    def found(self, token: Path | None, cert: bool = True) -> Iterator[network.Finding]:
        own = (self.ours.certificate, self.ours.key) if cert else (None, None)
        return network.scheduler(self.cluster.address, Security(token, self.ca.certificate, *own), LIMIT)


def test_a_scheduler_that_asks_who_we_are(ca: Authority) -> None:
    with short_dir() as folder:
        site = Guarded(folder, ca)
        unknown = folder / "unknown.token"
        unknown.write_text("ebb_nobody_knows_me")
        with site.cluster as cluster:
            cluster.start_scheduler()
            agent, user = site.token("agent"), site.token("user")
            the(site.found(agent), "ok", f"the scheduler at {cluster.address} leads, and takes our token")
            the(site.found(user), "problem", "does not take us for an agent: SendLog is for agents", "--role agent")
            the(site.found(unknown), "problem", "does not let us in: the token is not known", "--role agent")
            the(site.found(None), "problem", "does not let us in: the scheduler asks for a token", "--role agent")
            the(site.found(agent, cert=False), "problem", "UNAVAILABLE", "set tls_cert and tls_key")
            said = CliRunner().invoke(
                main,
                ["doctor", "--scheduler", cluster.address, "--devices", "cpu-20c", "--state", str(folder / "n1"), "-o", "json"],
                env={
                    "EBB_AGENT_ALLOW_ROOT": "true",
                    "EBB_AGENT_TOKEN_FILE": str(agent),
                    "EBB_AGENT_TLS_CA": str(ca.certificate),
                    "EBB_AGENT_TLS_CERT": str(site.ours.certificate),
                    "EBB_AGENT_TLS_KEY": str(site.ours.key),
                },
            )
            levels = {
                each["level"] for each in json.loads(said.stdout)["findings"] if each["check"] in ("scheduler", "settings")
            }
            assert levels == {"ok"}, said.stdout


def test_a_scheduler_that_asks_for_nothing_and_then_stands_still() -> None:
    with short_dir() as folder, quick_cluster(folder / "cluster") as cluster:
        cluster.start_scheduler()
        the(network.scheduler(cluster.address, Security(), LIMIT), "ok", "leads, and asks for no token")
        cluster.kill("scheduler", signal.SIGSTOP)  # it is reached, and does not answer
        the(network.scheduler(cluster.address, Security(), 1), "problem", "DEADLINE_EXCEEDED", "is it Ebb's scheduler?")


def test_what_a_standby_says() -> None:
    """A scheduler as far as the doctor asks: it stands by, and knows nobody who waits for a log."""

    class Standby(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            if details.method == network._HEALTH:
                return grpc.unary_unary_rpc_method_handler(lambda _request, _context: network._STANDS_BY)

            def refuse(_requests: object, context: grpc.ServicerContext) -> bytes:
                context.abort(grpc.StatusCode.NOT_FOUND, "nobody waits")
                return b""

            return grpc.stream_unary_rpc_method_handler(refuse)

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Standby()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        the(network.scheduler(f"127.0.0.1:{port}", Security(), LIMIT), "ok", "stands by, and asks for no token")
    finally:
        server.stop(None).wait(LIMIT)
