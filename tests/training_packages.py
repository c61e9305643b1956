"""The packages with which training code is tested. They are no dependencies of Ebb's, and other tests do without them."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def training_packages() -> None:
    """Marks a test as one of `make test-training`. Fails if a package is missing: a test that was asked for is not skipped."""
    groups = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["dependency-groups"]
    installed = {re.sub(r"[-_.]+", "-", each.name).lower() for each in metadata.distributions()}
    missing = {found[0] for each in groups["training"] if (found := re.match(r"[\w-]+", each))} - installed
    if missing:
        pytest.fail(f"this test needs {', '.join(sorted(missing))}: make test-training, or scripts/setup-training .venv")
