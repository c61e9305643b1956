"""The control file: what the agent and a training process tell each other."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ebb_inject.ebb_hook import control
from ebb_inject.ebb_hook.control import PARK, SIZE, WAKE, Control, Request


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "run" / "park")


def test_requests_and_answers(folder: str) -> None:
    made = Control(folder)
    assert control.live(folder) == [made.path]
    assert (made.request(), control.answer(made.path), made.word[0]) == (None, None, 0)
    assert control.send(made.path, PARK, at_step=7, most_bytes=1 << 40) == 1
    assert made.word[0] == 1
    assert made.request() == Request(1, PARK, 7, 1 << 40)
    made.wait(60)  # returns at once, as the request has woken it
    made.answer({"request": 1, "state": "parked"})
    assert control.answer(made.path) == {"request": 1, "state": "parked"}
    assert control.send(made.path, PARK) == 2
    made.close()
    assert control.live(folder) == []
    assert os.listdir(folder) == []  # noqa: PTH208


def test_a_file_without_its_process_is_removed_and_no_other(folder: str) -> None:
    code = f"from ebb_inject.ebb_hook.control import Control; import os; Control({folder!r}); os._exit(1)"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False)
    assert len(os.listdir(folder)) == 2  # noqa: PTH208
    made = Control(folder)
    assert control.live(folder) == [made.path]
    assert sorted(Path(folder).iterdir()) == [Path(made.path), Path(made.path + WAKE)]
    made.close()


def test_no_folder_no_process(tmp_path: Path) -> None:
    assert control.live(str(tmp_path / "missing")) == []


def test_a_request_that_is_half_written_is_not_yet_there(folder: str) -> None:
    made = Control(folder)
    control.send(made.path, PARK)
    with Path(made.path).open("r+b") as file:
        file.seek(80)
        file.write(struct.pack("@q", 99))
    assert made.word[0] == 1
    assert made.request() is None
    control.send(made.path, PARK)
    assert made.request() == Request(2, PARK)
    made.close()


def test_an_answer_that_is_half_written_is_not_yet_there(folder: str) -> None:
    made = Control(folder)
    made.answer({"state": "running"})
    whole = Path(made.path).read_bytes()
    for change in (b"\x01", b"\xff"):
        for at in (512, 520, 528, 540):
            Path(made.path).write_bytes(whole[:at] + change + whole[at + 1 :])
            assert control.answer(made.path) is None
    Path(made.path).write_bytes(whole)
    assert control.answer(made.path) == {"state": "running"}
    made.close()


def test_an_answer_that_is_too_long_loses_its_details(folder: str) -> None:
    made = Control(folder)
    made.answer({"request": 1, "state": "parked", "reason": "x" * 9000, "left": {"y" * 9000: 1}})
    assert control.answer(made.path) == {"request": 1, "state": "parked", "reason": "x" * 500, "left": {}}
    made.close()


@pytest.mark.parametrize("content", [b"", b"EBBPARK1", b"\0" * SIZE, os.urandom(SIZE)])
def test_files_of_others(content: bytes, folder: str) -> None:
    Path(folder).mkdir(parents=True)
    path = Path(folder) / "1-1"
    path.write_bytes(content)
    assert control.answer(str(path)) is None
    with pytest.raises(OSError, match="not a control file"):
        control.send(str(path), PARK)
    assert path.read_bytes() == content
    link = Path(folder) / "2-2"
    link.symlink_to(path)
    with pytest.raises(OSError, match="symbolic"):
        control.answer(str(link))


def test_a_disk_without_room(folder: str) -> None:
    code = f"""
import os, resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
from ebb_inject.ebb_hook.control import Control
try:
    Control({folder!r})
except OSError as error:
    print(type(error).__name__, os.listdir({folder!r}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert done.stdout == "OSError []\n"
