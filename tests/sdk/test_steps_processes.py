"""Several processes of a task that count: which of them publishes, and what a fork, a worker and a killed process do."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebb_inject.ebb_hook.step_file import Record, read
from tests.agent.conftest import until

ROOT = Path(__file__).parents[2]
LIMIT = 60

COUNTS = """
import sys
from client_sdk import training
from ebb_inject.ebb_hook import steps as counting

counting._RETRY_NS = 0  # each step tries: the test waits for no clock
steps = training.steps()
for line in sys.stdin:
    steps.advance(int(line))
    print(steps.step, flush=True)
"""


class Counting:
    """A process that counts as it is told."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.pid = process.pid

    def advance(self, n: int = 1) -> int:
        """How many steps it has done then."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{n}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(LIMIT)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "steps"


def published(file: Path) -> Record:
    record = read(file.read_bytes())
    assert record is not None
    return record


def said(file: Path) -> tuple[int, int]:
    """Who publishes, and the step."""
    record = published(file)
    return record.pid, record.first + record.counted


@contextmanager
def started(file: Path, code: str = COUNTS) -> Iterator[Counting]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "EBB_STEPS_FILE": str(file)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield Counting(process)
        finally:
            process.kill()


def test_the_first_one_that_counts_publishes_until_it_is_gone(file: Path) -> None:
    """As the ranks that torchrun starts on a node: all do the same steps."""
    with started(file) as first, started(file) as second, started(file) as third:
        assert second.advance(10) == 10
        assert [first.advance(), third.advance(5), second.advance()] == [1, 5, 11]
        assert said(file) == (second.pid, 11)
        second.kill()
        assert said(file) == (second.pid, 11), "what it said last is still there"
        first.advance()
        assert said(file) == (first.pid, 2)
        third.advance()
        assert said(file) == (first.pid, 2)
        first.kill()
        third.advance()
        assert said(file) == (third.pid, 7)


def test_a_shell_that_runs_one_program_after_another(file: Path) -> None:
    for number in (3, 4):
        with started(file) as program:
            program.advance(number)
            assert said(file) == (program.pid, number)


FORKS = """
import os, sys, time
from client_sdk import training
from ebb_inject.ebb_hook import steps as counting

counting._RETRY_NS = 0
steps = training.steps(total=100)
lines = iter(sys.stdin.readline, "")
steps.advance(int(next(lines)))
print(steps.step, flush=True)
heard, told = os.pipe()
child = os.fork()
if not child:
    for _ in range(7):
        steps.advance()  # not its parent's steps
    with steps.saving():
        pass
    os.write(told, b"x")
    while True:
        time.sleep(60)
os.read(heard, 1)
for line in lines:
    steps.advance(int(line))
    print(steps.step, flush=True)
"""


def test_a_fork_says_nothing_for_its_parent(file: Path) -> None:
    """As a worker that loads data. It also keeps nothing that would keep the parent's successor waiting."""
    with started(file, FORKS) as parent:
        parent.advance(3)
        assert parent.advance(2) == 5
        assert said(file) == (parent.pid, 5)
        assert published(file).total == 100
        (worker,) = children(parent.pid)
        assert str(file) not in Path(f"/proc/{worker}/maps").read_text()
        try:
            parent.kill()
            with started(file) as successor:
                successor.advance(9)
                assert said(file) == (successor.pid, 9)
        finally:
            os.kill(worker, signal.SIGKILL)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


CHILD_TRAINS = """
import os, sys
from client_sdk import training

steps = training.steps(total=50, done=20)
if os.fork():
    os.wait()
else:
    for line in sys.stdin:
        steps.advance(int(line))
        print(steps.step, flush=True)
"""


def test_a_fork_that_trains_counts_for_itself(file: Path) -> None:
    with started(file, CHILD_TRAINS) as parent:
        assert parent.advance(3) == 23
        (child,) = until(lambda: children(parent.pid), LIMIT)
        assert said(file) == (child, 23)
        assert published(file).total == 50


THREADS_FORK = """
import os, sys, threading
from client_sdk import training

steps = training.steps()
steps.advance()  # else a child might be the first
done = threading.Event()


def count():
    while not done.is_set():
        steps.advance()


counting = threading.Thread(target=count)
counting.start()
for _ in range(50):
    child = os.fork()
    if not child:
        steps.advance()  # also if it was born while the other thread was counting
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
done.set()
counting.join()
sys.stdin.readline()
print(steps.step, flush=True)
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_beside_a_thread_that_counts(file: Path) -> None:
    with started(file, THREADS_FORK) as parent:
        steps = parent.advance()
        assert said(file) == (parent.pid, steps)


FORK_IN_A_CLAIM = """
import os, sys, threading, time
from client_sdk import training
from ebb_inject.ebb_hook import steps as counting

claim, claiming, forking, seen = counting.claim, threading.Event(), threading.Event(), []


def slow(path):
    found = claim(path)
    claiming.set()
    forking.wait()
    for _ in range(1000):
        time.sleep(0)  # the fork would have all the time that it needs
    seen.append("claimed")
    return found


counting.claim = slow
os.register_at_fork(before=forking.set, after_in_parent=lambda: seen.append("forked"))
steps = training.steps()
thread = threading.Thread(target=steps.advance)
thread.start()
claiming.wait()
heard, told = os.pipe()
child = os.fork()
if not child:
    os.write(told, b"x")
    while True:
        time.sleep(60)
os.read(heard, 1)
thread.join()
for line in sys.stdin:
    print(int(seen == ["claimed", "forked"]), flush=True)
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_waits_until_a_claim_is_made(file: Path) -> None:
    """A child that was born in the middle would keep the lock, and nobody could take over from its parent."""
    with started(file, FORK_IN_A_CLAIM) as parent:
        assert parent.advance() == 1, "first the claim, then the fork"
        assert said(file) == (parent.pid, 1)
        (worker,) = children(parent.pid)
        try:
            assert str(file) not in Path(f"/proc/{worker}/maps").read_text()
            assert str(file) not in {str(each.readlink()) for each in Path(f"/proc/{worker}/fd").iterdir()}
            parent.kill()
            with started(file) as successor:
                successor.advance(9)
                assert said(file) == (successor.pid, 9)
        finally:
            os.kill(worker, signal.SIGKILL)


LOADER = """
import multiprocessing, sys
from client_sdk import training


def load(asked, loaded):
    for number in iter(asked.get, None):
        loaded.put(number * number)


class Loader:
    \"\"\"As PyTorch's: workers that are forked anew for each epoch, and end with it.\"\"\"

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __iter__(self):
        asked, loaded = context.Queue(), context.Queue()
        workers = [context.Process(target=load, args=(asked, loaded), daemon=True) for _ in range(2)]
        for worker in workers:
            worker.start()
        for number in range(self.count):
            asked.put(number)
        for _ in range(self.count):
            yield loaded.get()
        for worker in workers:
            asked.put(None)
        for worker in workers:
            worker.join()


context = multiprocessing.get_context(sys.stdin.readline().strip())
if __name__ == "__main__":
    loader = Loader(10)
    for _ in range(3):
        assert sum(training.count(loader, total=3 * len(loader))) == 285
    print(training.steps().step, flush=True)
"""


def test_a_loader_with_workers(file: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "EBB_STEPS_FILE": str(file)}
    command = [sys.executable, "-c", LOADER]
    done = subprocess.run(command, env=environment, input="fork\n", capture_output=True, text=True, timeout=LIMIT, check=True)
    assert (done.stdout, done.stderr) == ("30\n", "")
    record = published(file)
    assert (record.first, record.counted, record.untimed, record.total) == (1, 29, 2, 30)
