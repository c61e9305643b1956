"""A test that hangs fails, and its process goes on with the next."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HANGS = """
import time

from hypothesis import given, settings, strategies as st


def test_that_hangs():
    time.sleep(600)


@given(st.integers(0, 100))
@settings(deadline=None)
def test_whose_examples_hang(number):
    if number > 50:
        time.sleep(600)


def test_that_is_well():
    pass
"""


def test_what_hangs_fails_however_often_it_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_timeout_set_timer\n")
    (tmp_path / "test_hangs.py").write_text(HANGS)
    options = ["-q", "-p", "no:cacheprovider", "--timeout", "1", "-c", str(ROOT / "pyproject.toml")]
    command = [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ended.stdout.startswith("FF."), ended.stdout + ended.stderr
    assert ended.stdout.count("Failed: Timeout (>1.0s)") >= 2, ended.stdout
