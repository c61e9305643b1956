"""The examples in docstrings give what they say."""

import doctest
import importlib
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ASKS_A_SCHEDULER = {"client_sdk.aio", "client_sdk.client"}
"""The documentation's tests run the same calls."""
MODULES = sorted(
    path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    for path in subprocess.run(
        ["git", "grep", "--untracked", "-l", "^ *>>> ", "--", "*.py", ":!tests"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.split()
)


def test_there_are_examples() -> None:
    assert len(MODULES) > 15
    assert set(MODULES) > ASKS_A_SCHEDULER


@pytest.mark.parametrize("module", sorted(set(MODULES) - ASKS_A_SCHEDULER))
def test_examples_hold(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted
    assert not result.failed
