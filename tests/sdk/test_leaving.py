"""How a program ends that has saved its work: as soon as its exit handlers have run, whoever asked it to stop."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from client_sdk.training import OBEYED, RESIZED

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


def ended(folder: Path, reason: str, more: str = "pass", program: str = PROGRAM) -> tuple[int, list[str], str]:
    """The exit status of the program, the lines of its output, and its errors."""
    if reason:
        (folder / "stop.json").write_text(json.dumps({"reason": reason, "grace_s": 30}))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "EBB_RUN": "1",
        "EBB_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "EBB_YIELD_FILE": str(folder / "yield"),
        "EBB_RUN_DIR": str(folder),
    }
    command = [sys.executable, "-c", program.replace("{more}", more)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


def files_of(folder: Path) -> list[str]:
    return [(folder / name).read_text() for name in ("text", "binary", "log")]


WHOLE = ["not closed", "not closed", "INFO:root:leaving\n"]


@pytest.mark.parametrize(
    "reason", ["migrated", "preempted", "suspended", "requeued", "drained", "cancelled", "time_limit", "resized"]
)
def test_a_program_that_is_stopped_ends_after_its_exit_handlers_with_its_files_written(tmp_path: Path, reason: str) -> None:
    status, out, errors = ended(tmp_path, reason)
    assert (status, errors) == (RESIZED if reason == "resized" else OBEYED, "")
    assert sorted(out) == ["first handler", "late thread", "leaving", "second handler"], "and nothing is deleted"
    assert out.index("second handler") < out.index("first handler")
    assert files_of(tmp_path) == WHOLE
    assert (tmp_path / "yield").exists()


@pytest.mark.parametrize(
    ("code", "status", "deleted"),
    [
        ("raise", OBEYED, False),
        ("sys.exit(stopped.code)", OBEYED, True),
        ("sys.exit(5)", 5, True),
        ("print(stopped.code)", 0, True),
        ("os._exit(5)", 5, False),
    ],
)
def test_a_program_that_catches_the_exit_has_the_status_that_it_chooses(
    tmp_path: Path, code: str, status: int, deleted: bool
) -> None:
    program = PROGRAM[: PROGRAM.index("finally:")] + f"except SystemExit as stopped:\n    {code}\n"
    found, out, _ = ended(tmp_path, "preempted", program=program)
    assert (found, "deleted" in out) == (status, deleted)


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


UNFINISHED = """
import os, signal, sys
from client_sdk.training import job

job.checkpointable(state=[0])
for _ in job.steps(range(3)):
    pass
{more}
"""


@pytest.mark.parametrize(
    ("more", "status", "done"),
    [
        ("pass", 0, True),
        ("sys.exit()", 0, True),
        ("job.finish()", 0, True),
        ("os.kill(os.getpid(), signal.SIGTERM)", 0, False),  # it may have ended early because it knows of the stop
        ("signal.signal(signal.SIGTERM, lambda *_: None); open('stop.json', 'w').write(STOP)", 0, False),
        ("raise OSError('at the end')", 1, False),
        ("pid = os.fork(); os.waitpid(pid, 0) if pid else None; pid or sys.exit(0); os._exit(0)", 0, False),
    ],
)
def test_a_program_that_ends_unasked_has_done_its_work_without_finish(
    tmp_path: Path, more: str, status: int, done: bool
) -> None:
    told = {"EBB_RUN": "1", "EBB_CHECKPOINT_DIR": str(tmp_path / "checkpoints"), "EBB_RUN_DIR": str(tmp_path)}
    environment = {**os.environ, **told, "PYTHONPATH": str(ROOT), "EBB_DONE_FILE": str(tmp_path / "done")}
    program = UNFINISHED.replace("{more}", more).replace("STOP", repr('{"reason": "preempted", "grace_s": 30}'))
    ran = subprocess.run([sys.executable, "-c", program], env=environment, cwd=tmp_path, timeout=60, check=False)
    assert (ran.returncode, (tmp_path / "done").exists()) == (status, done)
