"""A site with TLS and tokens, as docs/operating.md has operators set it up: real processes, commands, and three people."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from client_sdk import Client, JobState, NodeState, PermissionDenied, Unauthenticated
from scheduler_service.commands.main import main as ebb_scheduler
from tests.certificates import Authority
from tests.harness import LIMIT, leftovers, quick_cluster, run
from tests.store.waiting import wait_for

EBB = [sys.executable, "-c", "from client_sdk.cli import main; main()"]


class Site:
    """A scheduler that asks for tokens, and people who have them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = Authority(folder / "tls")
        self.ca = str(authority.certificate)
        pair = authority.issue("scheduler", "DNS:localhost", "IP:127.0.0.1")
        flags = ["--auth", "token", "--tls-certificate", str(pair.certificate), "--tls-key", str(pair.key)]
        self.cluster = quick_cluster(folder / "cluster", flags)

    def tokens(self, *arguments: str) -> str:
        """`ebb-scheduler token`, beside the scheduler that uses the database."""
        done = CliRunner().invoke(ebb_scheduler, ["token", *arguments, "--embedded", str(self.cluster.folder / "db")])
        assert done.exit_code == 0, done.output
        return done.stdout

    def make_token(self, user: str, role: str = "user") -> None:
        self.file(user).write_text(self.tokens("create", "--user", user, "--role", role))

    def file(self, user: str) -> Path:
        return self.folder / f"{user}.token"

    def client(self, user: str) -> Client:
        return Client(self.cluster.address, token_file=self.file(user), tls_ca=self.ca, timeout=LIMIT)

    def ebb(self, user: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """The command, as a user has it set up."""
        set_up = {"EBB_ADDRESS": self.cluster.address, "EBB_TLS_CA": self.ca, "EBB_TOKEN_FILE": str(self.file(user))}
        return run([*EBB, *arguments], **set_up)


def test_a_site_with_tls_and_tokens(folder: Path) -> None:
    site = Site(folder)
    with site.cluster as cluster:
        cluster.start_scheduler()
        for user, role in (("ada", "user"), ("bob", "user"), ("olga", "operator"), ("agents", "agent")):
            site.make_token(user, role)
        cluster.start_agent("n1", "dgx-a100", "--tls-ca", site.ca, "--token-file", str(site.file("agents")))
        cluster.start_agent("n2", "dgx-a100", "--tls-ca", site.ca)
        wait_for(lambda: "it asks for a token: name a file with one in token_file" in cluster.tail("n2"), LIMIT)

        submitted = site.ebb("ada", "submit", "-q", "--devices", "1", "--", "sleep", "1000")
        assert submitted.returncode == 0, submitted.stderr
        job_id = int(submitted.stdout)
        with site.client("ada") as ada, site.client("bob") as bob, site.client("olga") as olga:
            assert [(node.name, node.state) for node in wait_for(ada.nodes, LIMIT)] == [("n1", NodeState.UP)]
            seen = (job for update in ada.watch(job_id, timeout=LIMIT) for job in update.jobs)
            running = next(job for job in seen if job.state is JobState.RUNNING)
            assert (running.user, running.node) == ("ada", "n1")
            assert bob.get(job_id).state is JobState.RUNNING
            with pytest.raises(PermissionDenied, match=f"job {job_id} is ada's, and you are bob"):
                bob.cancel(job_id)
            said = site.ebb("bob", "cancel", str(job_id))
            assert said.returncode == 1
            assert f"job {job_id} is ada's, and you are bob: Cancel is for ada and for operators" in said.stderr
            assert olga.get(job_id).state is JobState.RUNNING, "it goes on"
            olga.cancel(job_id)
            assert ada.wait(job_id, LIMIT).state is JobState.CANCELLED

            (line,) = [line for line in site.tokens("list").splitlines() if " ada " in line]
            site.tokens("revoke", line.split()[0])
            wait_for(lambda: _is_unknown(ada), LIMIT)
            assert bob.get(job_id).ended
        refused = site.ebb("ada", "list")
        assert refused.returncode == 1
        assert refused.stderr == "ebb: the token is not known here, or was revoked: ask an operator for a new one\n"
    assert not leftovers(folder)


def _is_unknown(client: Client) -> bool:
    try:
        client.nodes()
    except Unauthenticated as error:
        return error.reason == "TOKEN_UNKNOWN"
    return False
