"""The names of the package, which are imported when they are used: a training script does not wait for the clients."""

import subprocess
import sys
from pathlib import Path

import pytest

import client_sdk as sdk

ROOT = Path(__file__).parents[2]


def test_every_name_that_is_listed_is_there() -> None:
    assert len(set(sdk.__all__)) == len(sdk.__all__)
    assert set(sdk.__all__) <= set(dir(sdk))
    for name in sdk.__all__:
        assert getattr(sdk, name).__name__ == name
    with pytest.raises(AttributeError, match="module 'client_sdk' has no attribute 'Nothing'"):
        _ = sdk.Nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "code",
    [
        "from client_sdk import *; Client, JobState.RUNNING",
        "import client_sdk; client_sdk.Client; client_sdk.models.LIVE; client_sdk.errors.NotFound; client_sdk.aio.AsyncClient",
        "import client_sdk; client_sdk.client.Client",
        "from client_sdk import JobOptions",
    ],
)
def test_it_is_imported_as_ever(code: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_package_alone_imports_nothing() -> None:
    code = "import sys, client_sdk; print(sorted(name for name in sys.modules if name.startswith(('client_sdk', 'grpc'))))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "['client_sdk']\n"
