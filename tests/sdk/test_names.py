"""The names of the package, which are imported when they are used: a training script does not wait for the clients."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import client_sdk as sdk
from client_sdk import errors, models

ROOT = Path(__file__).parents[2]


def test_every_name_that_is_listed_is_there() -> None:
    assert len(set(sdk.__all__)) == len(sdk.__all__)
    assert set(sdk.__all__) <= set(dir(sdk))
    assert set(models.__all__) < set(sdk.__all__)
    for name in sdk.__all__:
        homes = [home for home in (models, errors) if hasattr(home, name)]
        assert getattr(sdk, name) is getattr(homes[0], name) if homes else getattr(sdk, name).__name__ == name
    with pytest.raises(AttributeError, match="module 'client_sdk' has no attribute 'Nothing'"):
        _ = sdk.Nothing  # type: ignore[attr-defined]


def test_a_type_checker_sees_each_name() -> None:
    source = ast.parse(Path(sdk.__file__).read_text())
    (checked,) = (node.body for node in source.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    found = [(alias.name, node.module) for node in checked if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert found[-2:] == [("*", "client_sdk.errors"), ("*", "client_sdk.models")]
    assert dict(found[:-2]) == {name: f"client_sdk.{home}" for name, home in sdk._HOMES.items()}


@pytest.mark.parametrize(
    "code",
    [
        "from client_sdk import *; Client, JobState.RUNNING",
        "import client_sdk; client_sdk.Client; client_sdk.models.LIVE; client_sdk.errors.NotFound; client_sdk.aio.AsyncClient",
        "import client_sdk; client_sdk.client.Client",
        "from client_sdk import JobOptions",
        "import client_sdk; client_sdk.NotFound; client_sdk.Job; client_sdk.LIVE",
    ],
)
def test_it_is_imported_as_ever(code: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("more", ["", "; hasattr(client_sdk, '__wrapped__'), hasattr(client_sdk, 'sweep')"])
def test_the_package_alone_imports_nothing(more: str) -> None:
    code = (
        f"import sys, client_sdk{more}; print(sorted(name for name in sys.modules if name.startswith(('client_sdk', 'grpc'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "['client_sdk']\n"
