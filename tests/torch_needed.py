"""torch and what trains with it, which the tests of training code need, and which are no dependencies of Ebb's."""

import importlib.util

import pytest


def require_torch(*more: str) -> None:
    """Fails, and says what to do: a test that was asked for is not skipped in silence. `more` are packages besides torch."""
    missing = [name for name in ("torch", *more) if importlib.util.find_spec(name) is None]
    if missing:
        pytest.fail(
            f"this test needs {', '.join(missing)}; of torch, a build for CPUs is enough: scripts/setup-training .venv; "
            "to leave it out: make tests ARGS=\"-k 'not torch'\""
        )
