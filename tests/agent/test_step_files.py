"""Step files: what is written is read, and nothing else, whoever writes and whenever the writer is interrupted."""

import mmap
import os
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf, nan
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebb_inject.ebb_hook import step_file
from ebb_inject.ebb_hook.step_file import EVALUATING, MAGIC, RUNNING, SAVING, SIZE, Record, Writer, empty, read
from node_agent.processes import job_reports
from node_agent.processes.job_reports import MOST, is_plausible, read_record
from tests.agent.conftest import until
from tests.thorough import examples

ROOT = Path(__file__).parents[2]
LIMIT = 60
NOW = 10**15
SECOND = 10**9
PLAUSIBLE = Record(4711, 3, RUNNING, NOW - 100 * SECOND, NOW - 50 * SECOND, 1000, 5000, 2, NOW, 12, 80 * SECOND, 900.0)

whole = st.integers(-(2**63), 2**63 - 1)
records = st.builds(Record, *[whole] * 11, st.floats(allow_nan=False))
counts = st.tuples(whole, whole, whole, st.floats(allow_nan=False))


def file(*contents: Record) -> bytes:
    memory = bytearray(empty())
    writer = Writer(memory)
    for record in contents:
        writer.write(record)
    writer.close()
    return bytes(memory)


def counted(record: Record, counts: tuple[int, int, int, float]) -> Record:
    return Record(*record[:8], *counts)


# ---- the format --------------------------------------------------------------------------------------------------------


def test_a_file_without_a_record() -> None:
    assert read(empty()) is None
    assert len(empty()) == SIZE


@given(st.lists(records, min_size=1, max_size=3), st.lists(counts, max_size=5))
def test_what_is_written_is_read(written: list[Record], more: list[tuple[int, int, int, float]]) -> None:
    memory = bytearray(empty())
    writer = Writer(memory)
    for record in written:
        writer.write(record)
        assert read(memory) == record
    for each in more:
        writer.count(*each)
        assert read(memory) == counted(written[-1], each)


def test_where_everything_is() -> None:
    """Other programs may write this format. A change needs another MAGIC."""
    record = Record(*range(1, 12), 0.5)
    data = file(record)
    assert data[:8] == MAGIC == b"EBBSTEP1"
    for buffer, sequence in ((192, 2), (64, 4)):
        assert struct.unpack_from("=QQ", data, buffer) == (sequence, zlib.crc32(data[buffer + 16 : buffer + 112], sequence))
        assert struct.unpack_from("=11qd", data, buffer + 16) == record


@given(records, records)
def test_a_successor_goes_on_where_another_process_stopped(first: Record, second: Record) -> None:
    memory = bytearray(file(first))
    Writer(memory).write(second)
    assert read(memory) == second


@pytest.mark.parametrize("left", [2**64 - 1, 2**64 - 2, 2**62 + 2, 7, 1])
def test_a_successor_copes_with_any_sequence(left: int) -> None:
    memory = bytearray(empty())
    struct.pack_into("=Q", memory, 64, left)
    writer = Writer(memory)
    for number in range(5):
        record = PLAUSIBLE._replace(pid=number)
        writer.write(record)
        assert read(memory) == record


# ---- interrupted, torn, and false ----------------------------------------------------------------------------------------


def snapshots(memory: bytearray, act: Callable[[], None]) -> list[bytes]:
    """The memory before each line of the Writer that `act` executes, and at the end."""
    seen: list[bytes] = []

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename == step_file.__file__ and event == "line":
            seen.append(bytes(memory))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return [*seen, bytes(memory)]


def test_a_writer_may_be_killed_at_any_line() -> None:
    memory = bytearray(file(PLAUSIBLE))
    writer = Writer(memory)
    later = PLAUSIBLE._replace(pid=1, total=7, counted=99)
    found = [read(data) for data in snapshots(memory, lambda: writer.write(later))]
    assert found == sorted(found, key=lambda record: record == later), "never the old one after the new one"
    assert set(found) == {PLAUSIBLE, later}
    next_one = later._replace(last_ns=NOW + 5, counted=100, busy_ns=1, squares=2.0)
    data = snapshots(memory, lambda: writer.count(NOW + 5, 100, 1, 2.0))
    assert len(data) > 6
    assert {read(each) for each in data} == {later, next_one}
    for each in data:  # and the next process goes on from there
        memory[:] = each
        Writer(memory).write(PLAUSIBLE)
        assert read(memory) == PLAUSIBLE


@given(records, st.lists(counts, min_size=2, max_size=4), st.data())
def test_no_mixture_is_taken_for_a_record(first: Record, more: list[tuple[int, int, int, float]], data: st.DataObject) -> None:
    """A reader whose processor shows it stores in any order, and that copies while several records are written."""
    memory = bytearray(file(first))
    writer = Writer(memory)
    states = [bytes(memory)]
    for each in more:
        writer.count(*each)
        states.append(bytes(memory))
    written = [first, *(counted(first, each) for each in more)]
    for begin in range(len(states) - 1):
        torn = bytearray(states[begin])
        for word in range(0, SIZE, 8):
            chosen = data.draw(st.integers(begin, begin + 1))
            torn[word : word + 8] = states[chosen][word : word + 8]
        assert read(torn) in written[begin : begin + 2], "one buffer is always whole"
    torn = bytearray(
        b"".join(states[data.draw(st.integers(0, len(states) - 1))][word : word + 8] for word in range(0, SIZE, 8))
    )
    assert read(torn) in (None, *written)


@given(st.binary(max_size=2 * SIZE), st.booleans())
def test_any_bytes_can_be_read(data: bytes, with_magic: bool) -> None:
    assert read(MAGIC + data if with_magic else data) is None


@given(records, st.integers(64, 64 + 111), st.integers(1, 255))
def test_a_changed_byte_is_noticed(record: Record, at: int, change: int) -> None:
    data = bytearray(file(record))
    data[192:] = bytes(len(data) - 192)
    assert read(data) == record
    data[at] ^= change
    assert read(data) is None


# ---- what the agent takes ----------------------------------------------------------------------------------------------


@given(records, st.integers(0, 2**62))
def test_any_numbers_can_be_judged(record: Record, now_ns: int) -> None:
    assert is_plausible(record, now_ns) in (True, False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": 0},
        {"state": 4},
        {"rank": -1},
        {"rank": MOST + 1},
        {"total": -1},
        {"total": MOST + 1},
        {"untimed": -1},
        {"untimed": 13},
        {"counted": MOST + 1},
        {"first": -13},
        {"first": MOST},
        {"began_ns": 0},
        {"began_ns": -5},
        {"began_ns": NOW + 1},
        {"last_ns": NOW + 2 * SECOND},
        {"last_ns": NOW - 101 * SECOND},
        {"changed_ns": NOW - 101 * SECOND},
        {"changed_ns": NOW + 2 * SECOND},
        {"busy_ns": -1},
        {"busy_ns": 101 * SECOND},
        {"squares": nan},
        {"squares": inf},
        {"squares": -1.0},
        {"squares": 6401.0},
    ],
    ids=str,
)
def test_what_cannot_be_true_is_not_taken(wrong: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "steps"
    path.write_bytes(file(PLAUSIBLE))
    assert read_record(str(path), NOW) == PLAUSIBLE
    path.write_bytes(file(PLAUSIBLE._replace(**wrong)))
    assert read_record(str(path), NOW) is None


@pytest.mark.parametrize("state", [RUNNING, EVALUATING, SAVING])
def test_what_can_be_true_is_taken(state: int) -> None:
    assert is_plausible(PLAUSIBLE._replace(state=state), NOW)
    first_step = PLAUSIBLE._replace(began_ns=NOW, changed_ns=NOW, last_ns=NOW, counted=0, untimed=0, busy_ns=0, squares=0.0)
    assert is_plausible(first_step._replace(state=state), NOW)
    alike = PLAUSIBLE._replace(counted=1, untimed=0, busy_ns=SECOND, squares=1.0)
    assert is_plausible(alike._replace(state=state), NOW), "one step of a second"


def test_other_things_in_its_place(tmp_path: Path) -> None:
    whole = file(PLAUSIBLE)
    real = tmp_path / "real"
    real.write_bytes(whole)

    def at(name: str, make: Callable[[Path], object]) -> Record | None:
        make(tmp_path / name)
        return read_record(str(tmp_path / name), NOW)

    assert read_record(str(tmp_path / "missing"), NOW) is None
    assert at("folder", Path.mkdir) is None
    assert at("fifo", os.mkfifo) is None, "it does not wait for a writer"
    assert at("link", lambda path: path.symlink_to(real)) is None, "it may lead anywhere"
    assert at("link to a device", lambda path: path.symlink_to("/dev/zero")) is None
    assert at("short", lambda path: path.write_bytes(whole[: SIZE - 1])) is None
    assert at("empty", Path.touch) is None
    assert at("zeros", lambda path: path.write_bytes(bytes(SIZE))) is None
    assert at("long", lambda path: path.write_bytes(whole + bytes(10**6))) == PLAUSIBLE
    assert at("sparse", lambda path: (path.touch(), os.truncate(path, 1 << 40))) is None


def test_what_is_torn_is_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "steps"
    path.write_bytes(file(PLAUSIBLE))
    torn = bytearray(file(PLAUSIBLE))
    torn[100], torn[230] = 1, 1
    copies: list[bytes] = []
    copy = os.pread

    def pread(descriptor: int, size: int, at: int) -> bytes:
        copies.append(bytes(torn) if len(copies) < 3 else copy(descriptor, size, at))
        return copies[-1]

    monkeypatch.setattr(job_reports.os, "pread", pread)
    assert read_record(str(path), NOW) == PLAUSIBLE
    assert len(copies) == 4
    copies.clear()
    copy = lambda *_: bytes(torn)  # noqa: E731  (a file that is never whole)
    assert read_record(str(path), NOW) is None
    assert len(copies) == 8


# ---- real processes ------------------------------------------------------------------------------------------------------

WRITES = """
import mmap, os, sys
from ebb_inject.ebb_hook.step_file import SIZE, Record, Writer

with open(sys.argv[1], "r+b") as file:
    writer = Writer(mmap.mmap(file.fileno(), SIZE))
number = 0
print("ready", flush=True)
while True:
    number += 1
    if number % 50 == 0:
        writer.write(Record(*[number] * 11, float(number)))
    else:
        writer.count(number, number, number, float(number))
"""
STEPS = """
import sys
from client_sdk import training
steps = training.steps(total=10**9)
steps.advance()
print("ready", flush=True)
while True:
    steps.advance()
"""


@contextmanager
def process(script: str, path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Killed in the end, whatever it is doing."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "EBB_STEPS_FILE": str(path)}
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, env=environment) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"ready\n"
        try:
            yield started
        finally:
            started.kill()


def is_one(record: Sequence[float]) -> bool:
    """Whether a record is one that WRITES has written: all of one number, or the last such one with counts of a later one."""
    fixed, later = record[:8], record[8:]
    return len(set(fixed)) == len(set(later)) == 1 and fixed[0] <= later[0] < fixed[0] + 50


def test_no_read_of_a_file_that_is_being_written_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "steps"
    path.write_bytes(empty())
    reads, seen, last, again = examples(30_000), set(), 0.0, 0
    with process(WRITES, path), path.open("rb", buffering=0) as opened:
        until(lambda: read(os.pread(opened.fileno(), SIZE, 0)), LIMIT)
        while len(seen) < reads:
            if (record := read(os.pread(opened.fileno(), SIZE, 0))) is None:
                again += 1  # both buffers changed meanwhile
                continue
            assert is_one(record), record
            assert record.squares >= last, "older than what was read before"
            last = record.squares
            seen.add(last)
    assert again < reads / 10, "hardly ever"


def test_a_writer_that_is_killed_leaves_its_last_record_and_another_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "steps"
    pids = set()
    for _ in range(4):
        with process(STEPS, path) as writer:
            mine = writer.pid
            until(lambda: (seen := read(path.read_bytes())) and seen.pid == mine and seen.counted > 1000, LIMIT)  # noqa: B023
        record = read_record(str(path), time.monotonic_ns())
        assert record is not None
        assert (record.pid, record.total) == (writer.pid, 10**9)
        assert record.counted > 1000
        pids.add(record.pid)
    assert len(pids) == 4


def test_the_words_are_stored_whole(tmp_path: Path) -> None:
    """A sequence of which a reader saw one half only would be neither the old one nor the new one."""
    low, high = 2**32 - 1, 2**63 - 2**32
    script = f"""
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    words = memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")
print("ready", flush=True)
while True:
    words[8] = {low}
    words[8] = {high}
"""
    path = tmp_path / "words"
    path.write_bytes(bytes(4096))
    with path.open("r+b") as opened:
        words = memoryview(mmap.mmap(opened.fileno(), 4096)).cast("Q")
    with process(script, path):
        until(lambda: words[8], LIMIT)
        found = {words[8] for _ in range(examples(100_000))}
    assert found <= {low, high}
