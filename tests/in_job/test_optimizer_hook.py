"""Steps that are counted without a line in the program, and that nothing happens to the program."""

import ast
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ebb_inject
from ebb_inject.ebb_hook import autoload, control, optimizers, step_file
from ebb_inject.ebb_hook.optimizers import Hook
from tests.in_job.programs import LIMIT


@pytest.fixture(scope="module")
def torch(training_packages: None) -> Any:
    import torch

    torch.set_num_threads(1)
    return torch


@pytest.fixture
def hook(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    """In this process, for the optimizers of one test."""
    monkeypatch.setenv("EBB_STEPS_FILE", str(tmp_path / "steps"))
    monkeypatch.delenv("EBB_PARK_DIR", raising=False)
    monkeypatch.setattr(optimizers, "_COUNTER", "no.such.module")  # which other tests may have imported
    made = Hook(torch)
    yield made
    made._handle.remove()


def optimizer(torch: Any, kind: str = "SGD", **more: Any) -> Any:
    weight = torch.ones(2, requires_grad=True)
    weight.grad = torch.ones(2)
    return getattr(torch.optim, kind)([weight], lr=0.1, **more)


# ---- what counts as a step ---------------------------------------------------------------------------------------------------


def test_each_step_of_one_optimizer(torch: Any, hook: Hook, tmp_path: Path) -> None:
    one = optimizer(torch, "AdamW")
    for number in range(1, 6):
        one.step()
        assert hook.counter.step == number
    record = step_file.read((tmp_path / "steps").read_bytes())
    assert record is not None
    assert (record.pid, record.first, record.counted) == (os.getpid(), 1, 4)


def test_two_optimizers_in_turn(torch: Any, hook: Hook) -> None:
    generator, discriminator = optimizer(torch), optimizer(torch, "Adam")
    for number in range(1, 6):
        discriminator.step()
        generator.step()
        assert hook.counter.step == number


def test_one_that_steps_more_often(torch: Any, hook: Hook) -> None:
    generator, critic = optimizer(torch), optimizer(torch)
    for number in range(1, 4):
        for _ in range(5):
            critic.step()
        generator.step()
        assert hook.counter.step == 5 * number


def test_one_optimizer_for_each_parameter(torch: Any, hook: Hook) -> None:
    layers = [optimizer(torch) for _ in range(20)]
    for number in range(1, 4):
        for layer in layers:
            layer.step()
        assert hook.counter.step == number


def test_one_optimizer_after_the_other(torch: Any, hook: Hook) -> None:
    """The step with which the second one takes over is not counted."""
    for _ in range(2):
        one = optimizer(torch)
        for _ in range(10):
            one.step()
    assert hook.counter.step == 19


def test_a_derived_optimizer_that_steps_by_its_base(torch: Any, hook: Hook) -> None:
    base = optimizer(torch, "Adam")
    base.step()  # with this PyTorch hooks the step of Adam, too

    class Clipped(torch.optim.Adam):  # type: ignore[misc, name-defined]
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    weight = torch.ones(2, requires_grad=True)
    weight.grad = torch.ones(2)
    derived = Clipped([weight])
    before = hook.counter.step
    derived.step()
    del base
    for number in range(1, 6):
        derived.step()
        assert hook.counter.step == before + number


@pytest.mark.filterwarnings("ignore")
def test_what_stands_between_the_program_and_its_optimizer(torch: Any, hook: Hook) -> None:
    one = optimizer(torch)
    schedule = torch.optim.lr_scheduler.StepLR(one, 1)

    class Wrapped:
        def step(self) -> None:
            one.step()

    for number in range(1, 6):
        Wrapped().step()
        schedule.step()
        assert hook.counter.step == number
    found = optimizer(torch, "LBFGS", max_iter=3)
    found.step(lambda: torch.tensor(1.0))
    found.step(lambda: torch.tensor(1.0))
    assert hook.counter.step == 6


# ---- nothing happens to the program ------------------------------------------------------------------------------------------


def test_anything_that_goes_wrong_inside(
    torch: Any, hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise MemoryError("out of luck")

    monkeypatch.setattr(hook, "counter", hook._own)
    monkeypatch.setattr(hook._own, "advance", broken)
    one = optimizer(torch)
    for _ in range(3):
        one.step()
    assert caplog.record_tuples == [
        ("ebb_hook", logging.WARNING, "the hook is off: MemoryError: out of luck. The training goes on")
    ]


def test_no_place_for_a_control_file(
    torch: Any, hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EBB_PARK_DIR", str(tmp_path / "file" / "park"))
    one = optimizer(torch)
    for _ in range(3):
        one.step()
    (message,) = caplog.messages
    assert message.startswith("the process cannot park: ")
    assert hook.counter.step == 3


def test_outside_of_a_job_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "install", pytest.fail)
    for environment in ({}, {"EBB_STEPS_FILE": "x", "EBB_PARK_DIR": "y", "NO_EBB_HOOK": "1"}):
        for name in ("EBB_STEPS_FILE", "EBB_PARK_DIR", "NO_EBB_HOOK"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        autoload.install()


def python(code: str, folder: str = ebb_inject.FOLDER, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": folder, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )


def test_a_program_without_torch_is_not_touched(tmp_path: Path) -> None:
    done = python("import sys; print('ebb_hook' in sys.modules)", EBB_STEPS_FILE=str(tmp_path / "steps"))
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_torch_is_imported_although_the_hook_is_broken(torch: Any, tmp_path: Path) -> None:
    folder = tmp_path / "inject"
    shutil.copytree(ebb_inject.FOLDER, folder)
    (folder / "ebb_hook" / "optimizers.py").write_text("raise SyntaxError('half of a file')\n")
    done = python("import torch; print(torch.ones(3).sum())", str(folder), EBB_STEPS_FILE=str(tmp_path / "steps"))
    assert done.stdout == "tensor(3.)\n"
    assert done.stderr == "the hook is off: SyntaxError: half of a file. The training goes on\n"


COMPILED = """
import torch
from ebb_hook import optimizers
torch.set_num_threads(1)


class Own(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(0.5)


model = torch.nn.Linear(2, 2)
optimizer = Own(model.parameters())
compiled = torch.compile(model, backend="eager", fullgraph=True)
compiled(torch.ones(3, 2)).sum().backward()
torch.compile(optimizer.step, backend="eager", fullgraph=True)()
before = optimizers.hook.counter.step
optimizer.step()
print(before, optimizers.hook.counter.step)
"""


def test_compiled_code_has_no_break_from_the_hook(torch: Any, tmp_path: Path) -> None:
    """So a step of an optimizer that is compiled itself does not count."""
    done = python(COMPILED, EBB_STEPS_FILE=str(tmp_path / "steps"))
    assert (done.stdout, "hook" in done.stderr) == ("0 1\n", False)


def test_an_old_python_reads_every_file() -> None:
    """PyTorch 2.5 runs on Python 3.9."""
    for file in Path(ebb_inject.FOLDER, "ebb_hook").glob("*.py"):
        tree = ast.parse(file.read_text(), feature_version=(3, 9))
        annotated = any(isinstance(node, ast.FunctionDef) and node.returns is not None for node in ast.walk(tree))
        first = [node for node in tree.body if isinstance(node, ast.ImportFrom)][:1]
        assert not annotated or file.name == "autoload.py" or first[0].module == "__future__", file


# ---- where it parks ----------------------------------------------------------------------------------------------------------


class Asked:
    """In the place of `Parking`: the request that is due, and how often the program came to where it is obeyed."""

    def __init__(self) -> None:
        self.word, self.seen = [0], 0
        self.request: tuple[int, int] | bool | None = None
        self.boundaries = 0

    def asks(self, request: tuple[int, int] | bool | None) -> None:
        self.word[0] += 1
        self.request = request

    def is_due(self, _counter: object) -> tuple[int, int] | bool | None:
        return self.request

    def at_boundary(self, _counter: object) -> None:
        self.boundaries += 1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    made = Asked()
    monkeypatch.setattr(optimizers.parking, "find_parking", lambda: made)
    return made


def test_a_program_without_forward_passes_comes_to_each_request_by_a_step_of_its_own(
    torch: Any, hook: Hook, asked: Asked
) -> None:
    """Whether it has forward passes is not known until a step later, of each request anew: the ranks of a gang must agree."""
    one = optimizer(torch)
    asked.asks((control.RESUME, 0))
    one.step()
    asked.asks((control.PARK_TOGETHER, 7))
    one.step()
    assert not asked.boundaries
    asked.asks((control.PARK_TOGETHER, 7))  # the same again
    one.step()
    assert asked.boundaries == 1


@pytest.mark.parametrize("is_over", [True, False])
def test_a_forward_pass_obeys_no_request_that_is_not_due_any_more(torch: Any, hook: Hook, asked: Asked, is_over: bool) -> None:
    one, model = optimizer(torch), torch.nn.Linear(2, 2)
    asked.asks((control.PARK, 1))
    one.step()
    asked.asks(None)
    if is_over:
        asked.seen = asked.word[0]
    one.step()
    model(torch.ones(2))
    assert not asked.boundaries
    asked.asks((control.PARK, 9))
    one.step()
    model(torch.ones(2))
    model(torch.ones(2))
    assert asked.boundaries == 1


def test_a_control_file_that_an_older_sdk_has_opened(torch: Any, hook: Hook, asked: Asked) -> None:
    """It says whether a request is due, and not which."""
    one, model = optimizer(torch), torch.nn.Linear(2, 2)
    asked.asks(False)
    one.step()
    model(torch.ones(2))
    assert not asked.boundaries
    for parks in (1, 2):
        asked.asks(True)
        one.step()
        model(torch.ones(2))
        assert asked.boundaries == parks
    one.step()
    one.step()  # without a forward pass
    assert asked.boundaries == 3
