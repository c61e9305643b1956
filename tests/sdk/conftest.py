from collections.abc import Iterator

import pytest

from client_sdk import Client
from client_sdk.training import _sigterm
from tests.sdk.fake import Fake, serve


@pytest.fixture(autouse=True)
def _asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test asks of its own process, or leaves there, is nothing to the next: they share one."""
    monkeypatch.setattr(_sigterm, "_asked", False)
    monkeypatch.setattr(_sigterm, "_listening", [])


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
