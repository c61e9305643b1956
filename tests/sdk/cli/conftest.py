"""The command line over a fake cluster of two nodes."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from client_sdk import (
    Client,
    Job,
    JobSpec,
    Resources,
    testing,
)
from client_sdk.cli import ebb
from client_sdk.testing import FakeCluster, Outcome

Run = Callable[..., Result]


def script(job: Job) -> Outcome | None:
    return None if job.spec.command[0] == "sleep" else Outcome(exit_code=3 if job.spec.command[0] == "fail" else 0)


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    nodes = {"n1": Resources(cpus=8, memory_mib=16 * 1024, devices=2), "n2": Resources(cpus=4, memory_mib=16 * 1024)}
    with testing.cluster(nodes, script=script, user="ada") as fake:
        yield fake


@pytest.fixture
def client(fake: FakeCluster) -> Client:
    return fake.client()


@pytest.fixture
def run(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("EBB_ADDRESS", fake.address)
    return lambda *arguments, **options: CliRunner().invoke(ebb, arguments, prog_name="ebb", **options)


def submitted(run: Run, *arguments: str, **options: Any) -> JobSpec:
    """The spec of a job that is submitted so."""
    done = run("submit", "-q", *arguments, **options)
    assert (done.exit_code, done.stderr) == (0, "")
    with Client() as client:
        return client.get(int(done.output)).spec


def refused(run: Run, *arguments: str, **options: Any) -> str:
    """What is said of a call that fails with 1."""
    done = run(*arguments, **options)
    assert (done.exit_code, done.stdout) == (1, "")
    return done.stderr
