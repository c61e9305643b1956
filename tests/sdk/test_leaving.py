"""How a program ends that has saved its work: at once if it moves, and as any Python program if not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from client_sdk.training import OBEYED

ROOT = Path(__file__).parents[2]
PROGRAM = """
import atexit, gzip, logging, os, signal, sys, threading

class Deleted:
    def __del__(self):
        os.write(1, b"deleted\\n")

atexit.register(os.write, 1, b"first handler\\n")
from client_sdk.training import Checkpointer
atexit.register(os.write, 1, b"second handler\\n")
left = Deleted()
text = open("text", "w")
text.write("not closed")
binary = open("binary", "wb")
binary.write(b"not closed")
logging.basicConfig(filename="log", level=logging.INFO)
def late():
    threading.Event().wait(0.2)
    print("late thread")
threading.Thread(target=late).start()
try:
    with Checkpointer() as checkpointer:
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            checkpointer.at_boundary(lambda: 1)
finally:
    logging.info("leaving")
    print("leaving")
    {more}
"""


def ended(folder: Path, reason: str, more: str = "pass") -> tuple[int, list[str], str]:
    """The exit status of the program, the lines of its output, and its errors."""
    (folder / "stop.json").write_text(json.dumps({"reason": reason, "grace_s": 30}))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "EBB_RUN": "1",
        "EBB_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "EBB_YIELD_FILE": str(folder / "yield"),
        "EBB_RUN_DIR": str(folder),
    }
    command = [sys.executable, "-c", PROGRAM.replace("{more}", more)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


def files_of(folder: Path) -> list[str]:
    return [(folder / name).read_text() for name in ("text", "binary", "log")]


WHOLE = ["not closed", "not closed", "INFO:root:leaving\n"]


def test_a_program_that_moves_ends_after_its_exit_handlers_with_its_files_written(tmp_path: Path) -> None:
    status, out, errors = ended(tmp_path, "migrated")
    assert (status, errors) == (OBEYED, "")
    assert sorted(out) == ["first handler", "late thread", "leaving", "second handler"], "and nothing is deleted"
    assert out.index("second handler") < out.index("first handler")
    assert files_of(tmp_path) == WHOLE
    assert (tmp_path / "yield").exists()


def test_any_other_stop_ends_as_python_does(tmp_path: Path) -> None:
    status, out, errors = ended(tmp_path, "preempted")
    assert (status, errors) == (OBEYED, "")
    assert sorted(out) == ["deleted", "first handler", "late thread", "leaving", "second handler"]
    assert files_of(tmp_path) == WHOLE


@pytest.mark.parametrize(
    ("more", "expected", "line"),
    [
        ("raise OSError('cleaning up')", 1, "OSError: cleaning up"),
        ("atexit.register(os.write, 1, b'third handler\\n')", OBEYED, ""),
    ],
)
def test_each_exit_handler_runs_once_and_errors_are_shown(tmp_path: Path, more: str, expected: int, line: str) -> None:
    status, out, errors = ended(tmp_path, "migrated", more)
    assert (status, line in errors) == (expected, True)
    assert [out.count(f"{which} handler") for which in ("first", "second", "third")] == [1, 1, int(expected == OBEYED)]
    assert "deleted" in out
    assert files_of(tmp_path) == WHOLE
