"""torch, which the tests of training code need, and which is no dependency of Ebb's."""

import importlib.util

import pytest


def require_torch() -> None:
    """Fails, and says what to do: a test that was asked for is not skipped in silence."""
    if importlib.util.find_spec("torch") is None:
        pytest.fail(
            "this test needs torch, of which a build for CPUs is enough: scripts/setup-training .venv; "
            "to leave it out: make tests ARGS=\"-k 'not torch'\""
        )
