"""torch, which some of the long tests need, and which is no dependency of Ebb's."""

import importlib.util

import pytest


def require_torch() -> None:
    """Fails, and says what to do: a test that was asked for is not skipped in silence."""
    if importlib.util.find_spec("torch") is None:
        pytest.fail(
            "this test needs torch, of which a build for CPUs is enough: `.venv/bin/uv pip install -p .venv --group torch`; "
            "to leave it out: make test-long ARGS=\"-k 'not torch'\""
        )
