"""No thread of ours lives when the interpreter ends: a process that ends while one is at work has its own status."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.in_job.programs import ROOT

pytestmark = pytest.mark.timeout(300)
STARTS_THREAD = re.compile(r"\b(?:Thread|Timer|ThreadPoolExecutor)\(|start_new_thread\(")
ENDINGS = {"ends": 0, "exit": 3, "error": 1, "os._exit": 4}
"""How the programs end, and with which status."""
STARTED = {
    "client_sdk/training/_gang/agreement.py": "agreement",
    "client_sdk/training/_storing/background.py": "background",
    "client_sdk/training/_storing/checksummed.py": "background",  # which waits for it
    "ebb_inject/ebb_hook/gang_park_agreement.py": "park",
}
"""The modules that start threads in training processes, and the kind below that has such a thread at work."""


def test_each_thread_that_is_started_in_a_training_process_has_a_test() -> None:
    sources = [path for folder in ("client_sdk/training", "ebb_inject") for path in (ROOT / folder).rglob("*.py")]
    assert {str(path.relative_to(ROOT)) for path in sources if STARTS_THREAD.search(path.read_text())} == set(STARTED)


@pytest.mark.usefixtures("training_packages")
@pytest.mark.parametrize(
    ("kind", "delay", "launches"),
    [("agreement", "0.05", 3), ("park", "0.05", 1), ("background", "0", 1), ("agreement", "never", 1), ("park", "never", 1)],
)
def test_a_process_ends_as_it_would_without_our_threads(tmp_path: Path, kind: str, delay: str, launches: int) -> None:
    """Whatever the thread waits for: an answer of the store comes while the interpreter ends, or never."""
    command = [sys.executable, str(ROOT / "tests/in_job/exits.py"), str(tmp_path), delay, str(launches), kind]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    found = [line.split("\t") for line in done.stdout.splitlines()]
    expected = [(ending, status) for ending, status in ENDINGS.items() for _ in range(launches)]
    assert [(ending, int(status)) for _, ending, _, status, *_ in found] == expected, done.stdout + done.stderr
    assert [threads for *_, threads in found] == ["-"] * len(expected), done.stdout
    assert "without an active exception" not in done.stderr
    assert "could not be written" not in done.stderr
    if kind == "background":
        saved = {path.parts[-3] for path in tmp_path.glob("*/checkpoints/*.ckpt")}
        assert saved >= {f"background-{ending}-0" for ending in set(ENDINGS) - {"os._exit"}}
