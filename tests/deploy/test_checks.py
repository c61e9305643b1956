"""`ebb-scheduler check` and `ebb-agent check`, by which supervisors of processes and containers know that all is well."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.cluster import Cluster, free_port
from tests.certificates import Authority
from tests.harness import LIMIT
from tests.store.fixtures import database_url, lent_database, migrated_template, postgres_url, short_dir
from tests.store.waiting import wait_for

__all__ = ["database_url", "lent_database", "migrated_template", "postgres_url"]


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_dir() as made:
        yield made


def check(program: str, *arguments: str, **environment: str) -> tuple[int, str]:
    """How it ends, and what it says."""
    command = [sys.executable, "-m", program, "check", *arguments]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=LIMIT
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
def test_of_schedulers_that_want_to_see_certificates_and_of_an_agent(folder: Path, database_url: str) -> None:
    authority = Authority(folder / "tls")
    pair = authority.issue("scheduler", "DNS:localhost", "IP:127.0.0.1")
    ca, certificate, key = map(str, (authority.certificate, pair.certificate, pair.key))
    flags = ["--tls-certificate", certificate, "--tls-key", key, "--tls-client-ca", ca]
    settings = {
        "EBB_SCHEDULER_DATABASE": database_url,
        "EBB_SCHEDULER_TLS_CERTIFICATE": certificate,
        "EBB_SCHEDULER_TLS_KEY": key,
        "EBB_SCHEDULER_TLS_CLIENT_CA": ca,
        "EBB_TLS_CA": ca,
    }
    with Cluster(folder / "cluster", flags, database=database_url) as cluster:
        cluster.start_scheduler()
        cluster.start_standby()
        leader, standby = cluster.address.split(",")
        first, second = (settings | {"EBB_SCHEDULER_LISTEN": each} for each in (leader, standby))
        assert check("scheduler_service", **first) == (0, f"{leader} leads\n")
        assert check("scheduler_service", **second) == (0, f"{standby} stands by\n")
        assert check("scheduler_service", "--leads", **first)[0] == 0
        assert check("scheduler_service", "--leads", **second) == (1, f"{standby} stands by\n")
        status, said = check("scheduler_service", "--address", leader, "--tls-ca", ca)
        assert (status, said.startswith(f"ebb-scheduler: {leader} does not answer: ")) == (1, True), "no certificate was shown"
        status, said = check("scheduler_service", "--address", leader)
        assert (status, said.endswith(" (where it has TLS, give --tls-ca)\n")) == (1, True), said
        assert check("scheduler_service", "--address", leader, "--tls-ca", f"{folder}/none") == (
            1,
            f"ebb-scheduler: {folder}/none cannot be read: No such file or directory\n",
        )

        cluster.start_agent("n1", "cpu-20c", "--tls-ca", ca, "--tls-cert", certificate, "--tls-key", key)
        node = {"EBB_AGENT_STATE": str(folder / "cluster/n1")}
        agent = cluster.processes["n1"].pid
        wait_for(lambda: check("node_agent", **node) == (0, f"the agent (pid {agent}) is connected\n"), LIMIT)
        cluster.kill("scheduler")
        cluster.kill("standby")
        alone = (1, f"ebb-agent: the agent (pid {agent}) is not connected to a scheduler\n")
        wait_for(lambda: check("node_agent", **node) == alone, LIMIT)
        cluster.kill("n1")
        assert check("node_agent", **node) == (1, f"ebb-agent: no agent of this user runs on {folder}/cluster/n1\n")


def test_where_nobody_is() -> None:
    address = f"127.0.0.1:{free_port()}"
    status, said = check("scheduler_service", "--address", address)
    assert status == 1
    assert said.startswith(f"ebb-scheduler: {address} does not answer: ")
    assert said.count("\n") == 1


def test_an_old_lock_that_names_another_process_is_no_agent(folder: Path) -> None:
    """As after a start of the machine, or of a container, where numbers of processes come again."""
    lock = folder / "lock"
    lock.touch()
    opens = ["sh", "-c", 'read go; exec 3< "$0"; echo opened; read go', str(lock)]
    with subprocess.Popen(opens, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        lock.write_text(str(other.pid))
        assert check("node_agent", "--state", str(folder)) == (1, f"ebb-agent: no agent of this user runs on {folder}\n")
        other.stdin.write("go\n")
        other.stdin.flush()
        assert other.stdout.readline() == "opened\n"  # from now on it is taken for the agent
        alone = (1, f"ebb-agent: the agent (pid {other.pid}) is not connected to a scheduler\n")
        assert check("node_agent", "--state", str(folder)) == alone
        other.stdin.close()


def test_settings_that_are_wrong(folder: Path) -> None:
    assert check("scheduler_service", EBB_SCHEDULER_DATABASE="nowhere")[0] == 2
    status, said = check("node_agent")
    assert (status, "--state is missing" in said) == (2, True), said
    (folder / "agent.yaml").write_text(f"state: {folder}\ndevices: none\n")
    status, said = check("node_agent", "--config", str(folder / "agent.yaml"))
    assert (status, said) == (1, f"ebb-agent: no agent of this user runs on {folder}\n"), "other settings do not matter"
