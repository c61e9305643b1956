"""The step counter of a training script: what it publishes, what it costs, and that nothing happens to the training."""

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from client_sdk import training
from client_sdk.training import Checkpointer, Steps, step_counter
from ebb_inject.ebb_hook import steps as counting
from ebb_inject.ebb_hook.step_file import EVALUATING, RUNNING, SAVING, SIZE, Record, read
from node_agent.processes.job_reports import is_plausible

ROOT = Path(__file__).parents[2]
LIMIT = 60
SECOND = 10**9
START = 1000 * SECOND


class Clock:
    """Of the counter, in place of the machine's."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(counting, "monotonic_ns", made)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "steps"


@pytest.fixture
def own(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """This process is a job's, and has counted nothing yet."""
    monkeypatch.setenv("EBB_STEPS_FILE", str(file))
    for name in ("RANK", "EBB_TASK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(step_counter, "_own", None)
    return file


def published(file: Path) -> Record:
    record = read(file.read_bytes())
    assert record is not None
    return record


# ---- what is published ---------------------------------------------------------------------------------------------------


def test_each_step_is_there_at_once(file: Path, clock: Clock) -> None:
    steps = Steps(str(file), rank=3)
    assert not file.exists()
    steps.advance()
    first = Record(os.getpid(), 3, RUNNING, START, START, 1, 0, 0, START, 0, 0, 0.0)
    assert published(file) == first
    clock.pass_(0.5)
    steps.advance()
    assert published(file) == first._replace(last_ns=clock.now, counted=1, busy_ns=SECOND // 2, squares=0.25)
    clock.pass_(1.5)
    steps.advance()
    assert published(file) == first._replace(last_ns=clock.now, counted=2, busy_ns=2 * SECOND, squares=2.5)
    assert steps.step == 3


def test_several_steps_at_once(file: Path, clock: Clock) -> None:
    steps = Steps(str(file))
    steps.advance(10)
    clock.pass_(2.0)
    steps.advance(4)
    steps.advance(0)
    record = published(file)
    assert (record.first, record.counted, record.untimed, record.busy_ns) == (10, 4, 0, 2 * SECOND)
    assert record.squares == pytest.approx(4 * 0.5**2)
    assert steps.step == 14


def test_the_plan(file: Path, clock: Clock) -> None:
    steps = Steps(str(file))
    steps._plan(total=100, done=40)
    assert (steps.step, steps.total) == (40, 100)
    steps.advance()
    clock.pass_(1)
    steps.advance()
    assert (published(file).first, published(file).counted, published(file).total) == (41, 1, 100)
    steps._plan(total=200)
    assert (published(file).first, published(file).total) == (41, 200)
    steps._plan(done=0)
    assert (steps.step, published(file).first + published(file).counted) == (0, 0)
    assert is_plausible(published(file), clock.now)
    steps.advance()
    assert steps.step == 1
    steps._plan(total=0)
    assert steps.total is None


@pytest.mark.parametrize(("method", "state"), [("evaluating", EVALUATING), ("saving", SAVING)])
def test_what_the_program_does_beside_steps(method: str, state: int, file: Path, clock: Clock) -> None:
    steps = Steps(str(file))
    steps.advance()
    clock.pass_(0.25)  # of the next step, in which it does something else
    with getattr(steps, method)():
        assert (published(file).state, published(file).changed_ns) == (state, clock.now)
        clock.pass_(100)
    record = published(file)
    assert (record.state, record.changed_ns) == (RUNNING, clock.now)
    clock.pass_(0.25)
    steps.advance()
    record = published(file)
    assert (record.counted, record.untimed, record.busy_ns, record.squares) == (1, 0, SECOND // 2, 0.25)
    assert record.last_ns == clock.now
    assert is_plausible(record, clock.now)


def test_one_thing_inside_another(file: Path, clock: Clock) -> None:
    steps = Steps(str(file))
    steps.advance()
    clock.pass_(1)
    with steps.evaluating():
        clock.pass_(1)
        with steps.saving():
            assert published(file).state == SAVING
            clock.pass_(1)
        assert published(file).state == EVALUATING
        steps.advance()  # it counts what it evaluates: that is a step whose time nobody knows
        clock.pass_(1)
    assert (published(file).state, published(file).untimed) == (RUNNING, 1)
    clock.pass_(1)
    steps.advance()
    record = published(file)
    assert (record.counted, record.untimed, record.busy_ns) == (2, 1, 2 * SECOND)


def test_it_ends_with_an_exception(file: Path, clock: Clock) -> None:
    steps = Steps(str(file))
    steps.advance()
    with pytest.raises(ZeroDivisionError), steps.evaluating():
        raise ZeroDivisionError
    assert published(file).state == RUNNING


def test_a_checkpoint_is_no_part_of_a_step(own: Path, tmp_path: Path) -> None:
    seen: list[int] = []

    class Watched:
        def __reduce__(self) -> Any:
            seen.append(published(own).state)
            return (int, ("1",))

    checkpoint = Checkpointer(tmp_path / "checkpoints", every_steps=1, environment={})
    checkpoint.save(Watched.__name__)  # before any step, and without a counter
    training.steps().advance()
    checkpoint.save(Watched())
    checkpoint.at_boundary(Watched)
    assert seen == [SAVING, SAVING]
    assert published(own).state == RUNNING


# ---- loops ---------------------------------------------------------------------------------------------------------------


def test_a_loop_is_counted(own: Path, clock: Clock) -> None:
    steps = training.steps(total=6)
    found = []
    for _epoch in range(2):
        clock.pass_(30)  # workers are started, the data is opened
        for item in training.count("abc"):
            clock.pass_(0.5)
            found.append((item, steps.step))
    assert found == [(item, number) for number, item in enumerate("abcabc")]
    record = published(own)
    assert (record.first + record.counted, record.total, record.untimed) == (6, 6, 1)
    assert record.busy_ns == 4 * SECOND // 2, "of each loop all but the first step, which begins at an unknown time"


def test_a_loop_with_a_plan_and_a_length(own: Path) -> None:
    counted = training.count([1, 2, 3], total=30, done=10)
    assert len(counted) == 3
    assert list(counted) == [1, 2, 3]
    assert (training.steps().step, training.steps().total) == (13, 30)
    with pytest.raises(TypeError):
        len(training.count(iter([1])))
    assert list(training.count(iter([1]))) == [1]


def test_what_is_left_in_the_middle_is_not_done(own: Path) -> None:
    for number in training.count(range(10)):
        if number == 4:
            break
    assert training.steps().step == 4


def test_a_process_has_one_counter(own: Path) -> None:
    assert training.steps() is training.steps(total=5)
    assert training.steps().total == 5


@pytest.mark.parametrize(
    ("environment", "rank"),
    [({}, 0), ({"EBB_TASK": "5"}, 5), ({"EBB_TASK": "5", "RANK": "7"}, 7), ({"RANK": "x"}, 0), ({"RANK": "9" * 30}, 0)],
)
def test_the_rank(environment: dict[str, str], rank: int, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    training.steps().advance()
    assert published(own).rank == rank


def test_the_examples_of_the_documentation_run(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = (ROOT / "docs/training.md").read_text().partition("\n## Count your steps\n")[2].partition("\n## ")[0]
    loop, by_hand = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    exec(loop, {"epochs": 2, "loader": [1, 2, 3], "train_one_step": lambda _: None})
    assert (training.steps().step, training.steps().total) == (6, 6)
    monkeypatch.setattr(step_counter, "_own", None)
    monkeypatch.chdir(tmp_path)
    own.unlink()
    evaluated: list[int] = []

    def evaluate(state: SimpleNamespace) -> None:
        assert published(own).state == EVALUATING
        evaluated.append(state.step)

    names = {"total": 2000, "fresh_state": lambda: SimpleNamespace(step=0), "train_one_step": lambda _: None}
    exec(by_hand, {**names, "evaluate": evaluate})
    assert evaluated == [1000, 2000]
    record = published(own)
    assert (record.first + record.counted, record.total, record.state) == (2000, 2000, RUNNING)


# ---- nothing happens to the training -------------------------------------------------------------------------------------


def test_outside_of_ebb_there_is_no_file(own: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("EBB_STEPS_FILE")
    monkeypatch.setattr(counting, "claim", pytest.fail)
    steps = training.steps(total=10)
    for _ in training.count(range(5)):
        pass
    with steps.evaluating(), steps.saving():
        steps.advance()
    assert steps.step == 6
    assert not own.exists()
    assert caplog.messages == []


@pytest.mark.parametrize("kind", ["a folder that is missing", "a folder", "a fifo", "a link", "not ours", "nonsense"])
def test_a_file_that_cannot_be_had(kind: str, file: Path, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """The steps are counted, and the log says once why they are not shown."""
    target = file.with_name("target")
    path = str(file)
    match kind:
        case "a folder that is missing":
            path = str(file / "steps")
        case "a folder":
            file.mkdir()
        case "a fifo":
            os.mkfifo(file)
        case "a link":
            file.symlink_to(target)
        case "not ours":
            path = "/proc/1/steps"
        case "nonsense":
            path = "\0"
    steps = Steps(path)
    for _ in range(5):
        steps.advance()
        clock.pass_(2)
    assert steps.step == 5
    (said,) = caplog.messages
    assert said.startswith("steps are not shown: ")
    assert said.endswith(". The training goes on")
    assert not target.exists()


def test_it_tries_again_but_not_all_the_time(file: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    claim = counting.claim

    def counted(path: str) -> Any:
        tries.append(clock.now - START)
        return claim(path)

    monkeypatch.setattr(counting, "claim", counted)
    steps = Steps(str(file / "missing" / "steps"))
    for _ in range(25):
        steps.advance()
        clock.pass_(0.1)
    assert tries == [0, SECOND, 2 * SECOND]
    (file / "missing").mkdir(parents=True)
    clock.pass_(1)
    steps.advance()
    record = published(file / "missing" / "steps")
    assert (record.first, record.counted) == (1, 25), "with all that was counted meanwhile"


def test_a_file_that_goes_or_is_replaced(file: Path) -> None:
    steps = Steps(str(file))
    steps.advance()
    file.unlink()
    steps.advance()
    file.write_bytes(bytes(SIZE))
    steps.advance()
    assert steps.step == 3


@pytest.mark.parametrize("left", [b"", b"x", bytes(SIZE), b"EBBSTEP0" + bytes(SIZE), b"\xff" * 5000], ids=repr)
def test_a_file_with_something_else_in_it(left: bytes, file: Path) -> None:
    file.write_bytes(left)
    steps = Steps(str(file))
    steps.advance(7)
    assert published(file).first == 7


@pytest.mark.parametrize("wrong", [-1, 1.5, "x", None, 1 << 63])
def test_wrong_numbers(wrong: Any, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps(str(file))
    steps.advance()
    steps.advance(wrong)
    steps._plan(total=wrong, done=wrong)
    assert steps.step == 1
    assert len(caplog.messages) == 1
    steps.advance()
    assert (steps.step, published(file).counted) == (2, 1)


def test_anything_that_goes_wrong_inside(file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps(str(file))
    steps.advance()

    def broken() -> int:
        raise MemoryError("out of luck")

    monkeypatch.setattr(counting, "monotonic_ns", broken)
    for _ in range(3):
        steps.advance()
        steps._plan(total=3)
        with steps.saving():
            pass
    assert caplog.record_tuples == [
        ("client_sdk.training", logging.WARNING, "steps are not shown: MemoryError: out of luck. The training goes on")
    ]


FULL_DISK = """
import os, resource
from client_sdk import training
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
for _ in training.count(range(1000)):
    pass
print(training.steps().step)
"""


def script(code: str, file: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "EBB_STEPS_FILE": str(file)}
    command = [sys.executable, "-c", code, *more.pop("arguments", ())]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=True, **more)


def test_a_disk_without_room(file: Path) -> None:
    """Where a file cannot grow, as on a full disk, nothing is mapped: a store there would be a SIGBUS."""
    done = script(FULL_DISK, file)
    assert done.stdout == "1000\n"
    assert done.stderr.count("\n") == 1
    assert "steps are not shown: " in done.stderr


def test_all_of_the_file_is_on_the_disk_before_it_is_mapped(file: Path) -> None:
    file.touch()
    os.truncate(file, 1 << 20)  # a hole
    steps = Steps(str(file))
    steps.advance()
    assert file.stat().st_blocks > 0
    with file.open("rb") as opened:
        assert os.lseek(opened.fileno(), 0, os.SEEK_HOLE) >= SIZE


# ---- threads and signals -------------------------------------------------------------------------------------------------


def test_threads_lose_no_step(file: Path) -> None:
    steps = Steps(str(file))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=lambda: [steps.advance() for _ in range(2000)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
    finally:
        sys.setswitchinterval(before)
    assert steps.step == 8000
    record = published(file)
    assert record.first + record.counted == 8000
    assert is_plausible(record, time.monotonic_ns())


def test_a_handler_of_a_signal_may_count(file: Path) -> None:
    """Whatever its thread is doing, also counting: it neither waits for itself, nor leaves a record that is none."""
    steps = Steps(str(file))
    handled = 0

    def handle(_number: int, _frame: object) -> None:
        nonlocal handled
        handled += 1
        for _ in range(3):
            steps.advance()
        with steps.saving():
            pass

    before = signal.signal(signal.SIGUSR1, handle)
    done = threading.Event()

    def send() -> None:
        while not done.is_set():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)  # type: ignore[arg-type]
            time.sleep(1e-4)

    sender = threading.Thread(target=send)
    sender.start()
    counted = 0
    try:
        while handled < 300:
            steps.advance()
            counted += 1
            assert read(file.read_bytes()) is not None
    finally:
        done.set()
        sender.join(LIMIT)
        signal.signal(signal.SIGUSR1, before)
    steps.advance()
    assert counted <= steps.step <= counted + 3 * handled + 1, "a step that is interrupted may swallow those of the handler"
    record = published(file)
    assert record.first + record.counted == steps.step
    assert is_plausible(record, time.monotonic_ns())


# ---- what it costs -------------------------------------------------------------------------------------------------------


def calls(act: Any) -> list[str]:
    """What is called inside, in Python and in C."""
    seen: list[str] = []

    def note(frame: Any, event: str, function: Any) -> None:
        if event == "call":
            seen.append(frame.f_code.co_name)
        elif event == "c_call":
            seen.append(function.__name__)

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return seen[:-1]  # the last one ends the profile


def test_a_step_is_a_handful_of_calls_and_none_of_the_system(file: Path) -> None:
    """`make bench ONLY=hook` has the time. None of these calls enters the kernel: the clock is read in user space."""
    steps = Steps(str(file))
    steps.advance()
    steps.advance()
    assert calls(steps.advance) == ["advance", "monotonic_ns", "_add", "count", "pack_into", "crc32", "__exit__"]


def test_outside_of_ebb_a_step_is_less(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EBB_STEPS_FILE")
    steps = training.steps()
    steps.advance()
    assert calls(steps.advance) == ["advance", "monotonic_ns", "_advance", "_add", "_publish", "__exit__"]


@pytest.mark.parametrize(
    ("names", "needed"),
    [
        ("", ()),
        (
            "steps, count",
            (
                "ebb_inject",
                *(
                    f"ebb_inject.ebb_hook{name}"
                    for name in ("", ".imported_modules", ".step_file", ".step_file_lock", ".steps")
                ),
            ),
        ),
    ],
)
def test_only_the_standard_library_and_little_of_it_is_imported(file: Path, names: str, needed: tuple[str, ...]) -> None:
    """A training script pays for the import of what it uses. `make bench ONLY=hook` has the time."""
    code = f"""
import sys
before = set(sys.modules)
import client_sdk.training
{f"from client_sdk.training import {names}" if names else ""}
new = set(sys.modules) - before
ours = {{name for name in new if name.startswith(("client_sdk", "ebb"))}}
print(sorted(name for name in {{name.partition(".")[0] for name in new - ours}} if name not in sys.stdlib_module_names))
print(sorted(name for name in ours if not name.startswith("client_sdk.training.")))
print(sorted({{"asyncio", "dataclasses", "inspect", "datetime", "multiprocessing", "ssl", "socket", "logging", "json"}} & new))
print(sorted({{"threading", "pickle", "pathlib", "hashlib", "ctypes"}} & new) if not {names!r} else [])
"""
    assert script(code, file).stdout.splitlines() == ["[]", str(["client_sdk", "client_sdk.training", *needed]), "[]", "[]"]


@pytest.mark.usefixtures("training_packages")
def test_no_module_takes_the_place_of_a_public_name(file: Path) -> None:
    """Python sets an imported module as an attribute of its package, whatever was to be imported later by that name."""
    code = """
import pkgutil, importlib, types
import client_sdk.training as package
for found in pkgutil.walk_packages(package.__path__, "client_sdk.training."):
    importlib.import_module(found.name)
print([name for name in package.__all__ if isinstance(getattr(package, name), types.ModuleType)])
print(sorted(package.__all__) == sorted(package._MODULES), set(package.__all__) <= set(dir(package)))
"""
    assert script(code, file).stdout.splitlines() == ["[]", "True True"]
