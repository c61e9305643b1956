"""An installation of the SDK alone has the commands of the scheduler and the agent too: they say what is missing."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("package", "extra"), [("scheduler_service", "scheduler"), ("node_agent", "agent")])
def test_a_missing_extra_is_named(package: str, extra: str) -> None:
    hide = "import sys; sys.modules['pydantic_settings'] = None; sys.argv = ['x', '--help']"
    run = [sys.executable, "-c", f"{hide}; from {package}.__main__ import main; main()"]
    ended = subprocess.run(run, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert f"pip install 'ebb-cluster[{extra}]'" in ended.stderr
    assert "Traceback" not in ended.stderr
