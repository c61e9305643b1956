import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk import Client
from client_sdk.training import Job
from client_sdk.training._run import sigterm
from tests.sdk.fake import Fake, serve
from tests.sdk.job_tools import New


@pytest.fixture(autouse=True)
def _asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test asks of its own process, or leaves there, is nothing to the next: they share one."""
    monkeypatch.setattr(sigterm, "_asked", False)
    monkeypatch.setattr(sigterm, "_listening", [])


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def address(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with serve(fake) as address:
        monkeypatch.setenv("EBB_ADDRESS", address)
        yield address


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(timeout=10) as client:
        yield client


@pytest.fixture
def new_job(tmp_path: Path) -> Iterator[New]:
    """Returns the job of the next run, in the same directory."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    jobs: list[Job] = []

    def end() -> None:
        """What the end of a process does: the signal means nothing to this job any more."""
        if jobs and (saving := jobs[-1]._saving) is not None:
            saving._checkpointer.__exit__(RuntimeError, RuntimeError(), None)

    def job() -> Job:
        end()
        own = {"EBB_CHECKPOINT_DIR": str(tmp_path), "EBB_CHECKPOINT_FILE": str(tmp_path.with_suffix(".names"))}
        jobs.append(Job({**own, "EBB_RUN": str(len(jobs) + 1), "EBB_GRACE_SECONDS": "30"}))
        return jobs[-1]

    yield job
    end()
    signal.signal(signal.SIGTERM, before)
