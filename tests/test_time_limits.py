"""What is shown of a test that takes too long."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SLOW = """
import time
def test_that_waits_for_ever():
    print("as far as this")
    while True:
        time.sleep(0.1)
"""


def test_a_worker_says_which_test_took_too_long_and_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "test_slow.py").write_text(SLOW)
    options = ("-n", "1", "--timeout", "3", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-p", "tests.conftest")
    command = [sys.executable, "-m", "pytest", *options, tmp_path / "test_slow.py"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert "Timeout (>3.0s)" in shown
    assert "time.sleep(0.1)" in shown
    assert "as far as this" in shown
    assert "crashed" not in shown
