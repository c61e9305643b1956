"""The package without extras has the training library, and all of the commands: they say what is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bare(code: str) -> subprocess.CompletedProcess[str]:
    """Runs code where Python's library and Ebb are installed, and nothing else."""
    run = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"]
    return subprocess.run(run, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("entry", "command", "extra"),
    [
        ("ebb_common.command:main", "ebb", "client"),
        ("ebb_common.command:simulate", "ebb-sim", "sim"),
        ("scheduler_service.__main__:main", "ebb-scheduler", "scheduler"),
        ("node_agent.__main__:main", "ebb-agent", "agent"),
    ],
)
def test_a_missing_extra_is_named(entry: str, command: str, extra: str) -> None:
    module, _, name = entry.partition(":")
    ended = bare(f"from {module} import {name}; {name}()")
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"{command} needs ")
    assert f"pip install 'ebb-cluster[{extra}]'" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("name", ["Client", "AsyncClient"])
def test_a_client_names_the_extra_that_it_needs(name: str) -> None:
    ended = bare(f"import client_sdk; client_sdk.{name}('localhost:1')")
    assert ended.returncode == 1
    assert "ModuleNotFoundError: a client needs grpc" in ended.stderr
    assert "pip install 'ebb-cluster[client]'" in ended.stderr


def test_training_needs_python_alone() -> None:
    ended = bare("import client_sdk.training as t; [getattr(t, name) for name in t.__all__]; print(t.steps().step)")
    assert (ended.returncode, ended.stdout) == (0, "0\n"), ended.stderr
