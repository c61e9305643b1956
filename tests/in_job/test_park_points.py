"""Programs that the hook does not know, that are ranks, or that use the SDK beside the hook."""

import socket
from pathlib import Path

import pytest

from ebb_inject.ebb_hook import control
from tests.in_job.programs import ROOT, started, until
from tests.in_job.scripts import LOOP

pytestmark = pytest.mark.usefixtures("training_packages")


BY_ITSELF = """
import sys, threading, torch
from contextlib import nullcontext
sys.path.append(sys.argv[1])
from client_sdk import training
torch.set_num_threads(1)
weights = torch.ones(1000)


def train():
    if sys.argv[2] == "count":
        for _ in training.count(iter(int, 1)):
            weights.mul_(1.0)
    with training.Checkpointer() if sys.argv[2] == "boundary" else nullcontext() as checkpoint:
        while True:
            weights.mul_(1.0)
            if checkpoint is None:
                training.park_point()
            else:
                checkpoint.at_boundary(lambda: None)


if "thread" in sys.argv:
    threading.Thread(target=train).start()
else:
    train()
"""


@pytest.mark.parametrize("how", ["boundary", "count", "park_point"])
def test_a_program_without_the_hook_parks_where_it_says(how: str, tmp_path: Path) -> None:
    with started(tmp_path, BY_ITSELF, str(ROOT), how, PYTHONPATH="") as program:
        assert program.parked()["bytes"] == 4000
        program.resumed()
        parked = program.parked(at_step=10)
        assert parked["step"] >= 10
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
        step = first.published().counted + 300
        numbers = [control.send(path, control.PARK, at_step=step) for path in paths]
        answers = [program.answer(path, number) for program, path, number in zip((first, second), paths, numbers, strict=True)]
        assert [answer["state"] for answer in answers] == [control.PARKED] * 2
        assert answers[0]["step"] == answers[1]["step"]
        for program in (first, second):
            program.resumed()
        until(lambda: first.published().counted > step + 50, "both go on")
