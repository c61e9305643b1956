"""Training programs that are parked and resumed, in real processes and by real signals."""

import os
import random
import signal
import socket
import time
from pathlib import Path

import pytest

from ebb_inject.ebb_hook import control
from tests.in_job.programs import ROOT, started, until
from tests.torch_needed import require_torch

pytestmark = pytest.mark.usefixtures("_torch")


@pytest.fixture(scope="module")
def _torch() -> None:
    require_torch()


TRAINING = """
import copy, json, select, sys, torch
torch.set_num_threads(1)
torch.manual_seed(3)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(200, 64)
        self.lstm = torch.nn.LSTM(64, 64, batch_first=True)
        self.norm = torch.nn.BatchNorm1d(64)
        self.drop = torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(64, 200, bias=False)
        self.head.weight = self.embedding.weight  # tied
        self.late = torch.nn.Linear(64, 64)  # has no gradient, and so no state, before step 100

    def forward(self, words, late):
        hidden = self.lstm(self.embedding(words))[0][:, -1]
        if late:
            hidden = hidden + self.late(hidden)
        return self.head(self.drop(self.norm(hidden)))


model = Model()
mean = copy.deepcopy(model)
view = model.embedding.weight.data.view(-1)[7:19]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400)
identities = [id(parameter) for parameter in model.parameters()]
losses, step, goal = [], 0, int(sys.argv[1])
while step != goal:
    words = torch.randint(200, (8, 6))
    loss = torch.nn.functional.cross_entropy(model(words, step >= 100), words[:, 0])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    with torch.no_grad():
        for kept, parameter in zip(mean.parameters(), model.parameters()):
            kept.lerp_(parameter, 0.01)
    step += 1
    losses.append(loss.item().hex())
    if step % 10 == 0 and select.select([sys.stdin], [], [], 0)[0]:
        goal = step
state = [view.sum(), *(kept.sum() for kept in mean.parameters()), *(part.sum() for part in model.state_dict().values())]
assert identities == [id(parameter) for parameter in model.parameters()]
assert model.head.weight is model.embedding.weight
print(json.dumps([losses, [part.item().hex() for part in state if part.is_floating_point()]]))
"""


@pytest.mark.parametrize("parks", [8, pytest.param(50, marks=pytest.mark.long)])
def test_parks_change_no_bit(parks: int, tmp_path: Path) -> None:
    """Tied weights, views, an average of the weights, and optimizer state that is created late."""
    chosen = random.Random(11)
    with started(tmp_path / "parked", TRAINING, "-1") as program:
        steps = []
        for _ in range(parks):
            time.sleep(chosen.uniform(0, 0.02))  # the moment is random, and no result depends on it
            parked = program.parked()
            steps.append(parked["step"])
            assert parked["left"] == {}
            assert parked["residue"] == 0
            if chosen.random() < 0.5:
                program.stop()
                program.go_on()
            program.resumed()
        until(lambda: program.published().counted > 150, "the last layer trains, too")
        program.tell()
        (found,) = program.results()
    assert steps == sorted(steps)
    with started(tmp_path / "alone", TRAINING, str(len(found[0]))) as alone:
        (expected,) = alone.results()
    assert found == expected


LOOP = """
import os, signal, sys, torch
torch.set_num_threads(1)
model = torch.nn.Linear(1000, 1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def caught(number, frame):
    print("caught", model.weight.untyped_storage().nbytes(), flush=True)
    if number == signal.SIGUSR1:
        sys.exit(7)


if "catch" in sys.argv:
    signal.signal(signal.SIGTERM, caught)
    signal.signal(signal.SIGUSR1, caught)
if "ignore" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "pid" in sys.argv:
    print("pid", os.getpid(), flush=True)
x = torch.randn(4, 1000)
if "big" in sys.argv:
    kept = [torch.ones(1 << 20) for _ in range(64)]
if "functional" in sys.argv:
    forward = lambda x: torch.nn.functional.linear(x, model.weight, model.bias)
else:
    forward = model
while True:
    loss = forward(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_memory_is_gone_as_the_system_sees_it(tmp_path: Path) -> None:
    """256 MiB of tensors. The kernel counts the arena, a shared mapping, apart from them."""
    with started(tmp_path, LOOP, "big") as program:
        until(lambda: program.published().counted > 3 if program.steps.exists() else None, "steps")
        before = program.memory()
        parked = program.parked()
        program.stop()
        assert parked["bytes"] > 256 << 20
        assert parked["residue"] == 0
        assert program.memory() < before - 0.99 * parked["bytes"]
        assert program.memory("RssShmem") > 0.99 * parked["bytes"]
        program.go_on()
        program.resumed()
        assert program.memory() > before - 0.05 * parked["bytes"]
        again = program.parked()
        assert program.memory("RssShmem") < 1.05 * again["bytes"], "the arena is used again"


def test_a_stopped_process_uses_no_processor_and_counts_no_step(tmp_path: Path) -> None:
    with started(tmp_path, LOOP) as program:
        parked = program.parked()
        at = program.published()
        assert (at.first + at.counted) == parked["step"]
        program.stop()
        ticks = Path(f"/proc/{program.pid}/schedstat").read_text().split()[0]
        number = control.send(program.control, control.RESUME)
        assert Path(f"/proc/{program.pid}/schedstat").read_text().split()[0] == ticks
        program.go_on()
        assert program.answer(program.control, number)["state"] == control.RUNNING
        until(lambda: program.published().counted > at.counted + 5, "it goes on")
        after = program.published()
        assert after.untimed == at.untimed
        assert after.busy_ns - at.busy_ns <= after.last_ns - at.last_ns


def test_a_process_that_dies_while_it_is_parked(tmp_path: Path) -> None:
    with started(tmp_path, LOOP) as program:
        path = program.control
        program.parked()
        program.stop()
        program.process.kill()
        program.ended()
        assert Path(path).exists()
        assert control.live(str(program.park)) == []
        assert list(program.park.iterdir()) == []
        assert control.live(str(program.park)) == []


def test_sigterm_of_a_parked_program_that_has_no_handler(tmp_path: Path) -> None:
    with started(tmp_path, LOOP) as program:
        program.parked()
        program.process.terminate()
        assert program.ended() == -signal.SIGTERM
        assert control.live(str(program.park)) == []


def test_sigterm_of_a_stopped_program_is_handled_when_its_tensors_are_back(tmp_path: Path) -> None:
    with started(tmp_path, LOOP, "catch") as program:
        program.parked()
        program.stop()
        program.process.terminate()
        program.go_on()
        assert program.ask(control.PARK)["state"] == control.PARKED
        assert "caught" not in program.output
        program.resumed()
        program.said("caught 4000000")
        program.parked()
        os.kill(program.pid, signal.SIGUSR1)
        program.resumed()
        assert program.ended() == 7
        assert program.output.count("caught 4000000") == 2
        assert list(program.park.iterdir()) == [], "a program that exits removes its files"


def test_a_program_that_ignores_sigterm(tmp_path: Path) -> None:
    with started(tmp_path, LOOP, "ignore") as program:
        program.parked()
        program.process.terminate()
        program.resumed()
        program.process.terminate()
        program.parked()
        program.resumed()


def test_what_else_is_requested(tmp_path: Path) -> None:
    with started(tmp_path, LOOP) as program:
        assert program.resumed()["request"] == 1, "a running program is running"
        assert program.ask(control.PARK, most_bytes=1 << 20) | {"step": 0, "pid": 0} == {
            "request": 2,
            "state": control.REFUSED,
            "reason": "11 MiB would be moved to host memory, and the limit is 1 MiB",
            "step": 0,
            "pid": 0,
        }
        assert "the command 9 is unknown" in program.ask(9)["reason"]
        prepared = program.ask(control.PREPARE)
        assert (prepared["state"], prepared["pid"]) == (control.PREPARED, program.pid)
        arena = program.memory("RssShmem")
        later = program.published().counted + 300
        parked = program.parked(at_step=later)
        assert later <= parked["step"] <= later + 1
        assert program.ask(control.PREPARE)["state"] == control.PARKED
        assert program.parked()["step"] == parked["step"]
        assert program.memory("RssShmem") - arena <= prepared["bytes"] + (1 << 20)
        program.resumed()


def test_a_request_that_wakes_nobody_is_found(tmp_path: Path) -> None:
    """The FIFO is gone; the process looks once a second."""
    with started(tmp_path, LOOP) as program:
        program.parked()
        path = program.control
        Path(path + control.WAKE).unlink()
        with pytest.raises(FileNotFoundError):
            control.send(path, control.RESUME)
        found = control.answer(path)
        assert found is not None
        assert program.answer(path, found["request"] + 1)["state"] == control.RUNNING


def test_a_program_without_modules_parks_after_the_next_step(tmp_path: Path) -> None:
    with started(tmp_path, LOOP, "functional") as program:
        program.parked()
        program.resumed()
        for later in (50, 51):  # also if the request waits for an even or an odd number of steps
            step = program.published().counted + later
            assert program.parked(at_step=step)["step"] == step + 1
            program.resumed()


BY_ITSELF = """
import sys, threading, torch
sys.path.append(sys.argv[1])
from client_sdk import training
torch.set_num_threads(1)
weights = torch.ones(1000)


def train():
    if sys.argv[2] == "count":
        for _ in training.count(iter(int, 1)):
            weights.mul_(1.0)
    while True:
        weights.mul_(1.0)
        training.park_point()


if "thread" in sys.argv:
    threading.Thread(target=train).start()
else:
    train()
"""


@pytest.mark.parametrize("how", ["count", "park_point"])
def test_a_program_without_the_hook_parks_where_it_says(how: str, tmp_path: Path) -> None:
    with started(tmp_path, BY_ITSELF, str(ROOT), how, PYTHONPATH="") as program:
        assert program.parked()["bytes"] == 4000
        program.resumed()
        parked = program.parked(at_step=10)
        assert parked["step"] > 10
        program.resumed()
        assert program.steps.exists() == (how == "count")


def test_training_outside_of_the_main_thread_is_not_parked(tmp_path: Path) -> None:
    with started(tmp_path, BY_ITSELF, str(ROOT), "park_point", "thread", PYTHONPATH="") as program:
        answer = program.ask(control.PARK)
        assert answer["state"] == control.REFUSED
        assert "main thread" in answer["reason"]


def test_the_sdk_and_the_hook_share_one_control_file(tmp_path: Path) -> None:
    code = LOOP.replace("x = torch", "from client_sdk import training\nsteps = training.steps()\nx = torch", 1)
    code = code.replace("    optimizer.step()\n", "    optimizer.step()\n    steps.advance()\n    training.park_point()\n")
    with started(tmp_path, f"import sys\nsys.path.append({str(ROOT)!r})\n{code}") as program:
        for _ in range(3):
            parked = program.parked()
            program.resumed()
        record = program.published()
        assert record.first + record.counted >= parked["step"]
        assert len(control.live(str(program.park))) == 1


def test_without_torch_nothing_can_be_moved(tmp_path: Path) -> None:
    code = (
        f"import sys\nsys.path.append({str(ROOT)!r})\nfrom client_sdk import training\nwhile True:\n    training.park_point()\n"
    )
    with started(tmp_path, code) as program:
        answer = program.ask(control.PARK)
        assert (answer["state"], answer["reason"]) == (control.REFUSED, "the process has not imported torch")


def test_two_ranks_park_after_the_same_step(tmp_path: Path) -> None:
    ranks = LOOP.replace(
        "x = torch.randn",
        """
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(model)
x = torch.randn""",
        1,
    )
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        port = str(kept.getsockname()[1])
    both = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with started(tmp_path / "0", ranks, RANK="0", **both) as first, started(tmp_path / "1", ranks, RANK="1", **both) as second:
        paths = first.control, second.control
        assert "2 ranks must park after the same one" in first.ask(control.PARK)["reason"]
        step = first.published().counted + 1000
        numbers = [control.send(path, control.PARK, at_step=step) for path in paths]
        answers = [program.answer(path, number) for program, path, number in zip((first, second), paths, numbers, strict=True)]
        assert [answer["state"] for answer in answers] == [control.PARKED] * 2
        assert answers[0]["step"] == answers[1]["step"]
        for program in (first, second):
            program.resumed()
        until(lambda: first.published().counted > step + 50, "both go on")
