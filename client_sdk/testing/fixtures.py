"""A pytest fixture. A project asks for it in its conftest.py: `from client_sdk.testing.fixtures import ebb_cluster`."""

from collections.abc import Iterator

import pytest

from client_sdk.testing import FakeCluster, cluster

__all__ = ["ebb_cluster"]


@pytest.fixture
def ebb_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A fake cluster where every job succeeds at once; EBB_ADDRESS names it, so `Client()` finds it."""
    with cluster() as fake:
        monkeypatch.setenv("EBB_ADDRESS", fake.address)
        yield fake
