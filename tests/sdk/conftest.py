from collections.abc import Iterator

import pytest

from client_sdk import Client
from tests.sdk.fake import Fake, serve


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
